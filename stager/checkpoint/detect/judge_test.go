package detect

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stager-dev/stager/stager/checkpoint/format"
)

var wholeZip = format.Result{Verdict: format.Whole, Kind: "zip"}

// viewOf returns the view of a directory with these files, all whole.
func viewOf(name string, paths ...string) View {
	v := View{Name: name, Notes: make(map[string]Note), Beside: make(map[string]Note)}
	for i, p := range slices.Sorted(slices.Values(paths)) {
		v.Files = append(v.Files, File{Path: p, Size: int64(i + 10), Modified: int64(len(p)), Format: wholeZip})
	}
	return v
}

// sameTime returns the view with equal times for all files.
func (v View) sameTime() View {
	v.Files = slices.Clone(v.Files)
	for i := range v.Files {
		v.Files[i].Modified = 1
	}
	return v
}

func TestJudge(t *testing.T) {
	const quiet = 10 * time.Second
	with := func(v View, do func(*View)) View { v = v.sameTime(); do(&v); return v }
	plain := viewOf("step-500", "model.pt", "optim.pt").sameTime()
	for name, c := range map[string]struct {
		View
		want Kind
		word string
	}{
		"empty":               {View{Name: "step-500", Quiet: time.Hour}, Waiting, "empty"},
		"half, no quiet":      {viewOf("step-500", "model.pt"), Waiting, "changing"},
		"half, quiet":         {with(viewOf("step-500", "model.pt"), func(v *View) { v.Quiet = quiet }), Quiet, "quiet 10s"},
		"committed":           {with(plain, func(v *View) { v.Committed = true }), Said, "commit"},
		"marked":              {with(plain, func(v *View) { v.Marked = true }), Said, "marker"},
		"renamed":             {with(plain, func(v *View) { v.Renamed = true }), Said, "rename"},
		"renamed, unfinished": {with(plain, func(v *View) { v.Renamed, v.Mark = true, "step-500-unfinished" }), Denied, "unfinished"},
		"ended":               {with(plain, func(v *View) { v.Ended = true }), End, "end"},
		"open":                {with(plain, func(v *View) { v.Files[0].Writing, v.Quiet = true, time.Hour }), Denied, "open"},
		"torn": {with(plain, func(v *View) {
			v.Files[1].Format, v.Quiet = format.Result{Verdict: format.Incomplete, Reason: "breaks off"}, time.Hour
		}), Denied, "torn"},
		"removed":          {with(plain, func(v *View) { v.Shrunk, v.Marked = "a.pt", true }), Denied, "removed"},
		"just in time":     {with(viewOf("checkpoint-5", incompleteMark, "trainer_state.json"), func(v *View) { v.Quiet = time.Hour }), Denied, "incomplete"},
		"temporary":        {with(viewOf("step-500", "model.pt", "optim.pt.tmp"), func(v *View) { v.Quiet = time.Hour }), Denied, "temporary"},
		"orbax temporary":  {with(viewOf("500", "default.orbax-checkpoint-tmp-7/d/x"), func(v *View) { v.Quiet = time.Hour }), Denied, "temporary"},
		"dcp":              {viewOf("step-500", ".metadata", "__0_0.distcp").sameTime(), Sign, "sign .metadata"},
		"dcp, no sign":     {with(viewOf("step-500", "__0_0.distcp"), func(v *View) { v.Quiet = time.Hour }), Denied, "no sign"},
		"dcp, old sign":    {with(viewOf("step-500", ".metadata", "__0_0.distcp"), func(v *View) { v.Files[1].Modified = 2 }), Denied, "old sign"},
		"dcp below":        {viewOf("step-500", "model/.metadata", "model/__0_0.distcp").sameTime(), Waiting, "changing"},
		"dcp of each rank": {with(viewOf("step-500", "__0.metadata", "__0_0.distcp", "__1.metadata", "__1_0.distcp"), func(v *View) { v.Quiet = quiet }), Quiet, "quiet 10s"},
		"dcp, rank 1 late": {with(viewOf("step-500", "__0.metadata", "__0_0.distcp", "__1_0.distcp"), func(v *View) { v.Quiet = time.Hour }), Denied, "no sign"},
		"dcp, rank 1 missing": {with(viewOf("step-500", "__0.metadata", "__0_0.distcp", "__2.metadata", "__2_0.distcp"), func(v *View) {
			v.Quiet = time.Hour
		}), Denied, "no sign"},
		"trainer, json breaks off": {with(viewOf("checkpoint-5", "optimizer.pt", "trainer_state.json"), func(v *View) {
			v.Files[1].Format = format.Result{Verdict: format.Incomplete}
		}), Denied, "torn"},
		"trainer":               {viewOf("checkpoint-5", "optimizer.pt", "rng_state.pth", "trainer_state.json").sameTime(), Sign, "sign trainer_state.json"},
		"trainer, random later": {with(viewOf("checkpoint-5", "optimizer.pt", "rng_state.pth", "trainer_state.json"), func(v *View) { v.Files[1].Modified++ }), Sign, "sign trainer_state.json"},
		"trainer, no random":    {viewOf("checkpoint-5", "optimizer.pt", "trainer_state.json").sameTime(), Waiting, "changing"},
		"trainer, DeepSpeed":    {viewOf("checkpoint-5", "global_step5/mp_rank_00_model_states.pt", "latest", "trainer_state.json").sameTime(), Denied, "no sign"},
		"trainer, only model":   {viewOf("checkpoint-5", "model.safetensors", "trainer_state.json").sameTime(), Sign, "sign trainer_state.json"},
		"trainer, state empty": {with(viewOf("checkpoint-5", "optimizer.pt", "trainer_state.json"), func(v *View) {
			v.Files[1].Format, v.Quiet = format.Result{}, time.Hour
		}), Denied, "torn"},
		"orbax of 2023":   {with(viewOf("500", "default/_METADATA", "default/checkpoint"), func(v *View) { v.Quiet = quiet }), Quiet, "quiet 10s"},
		"orbax, removed":  {with(viewOf("500", "_METADATA", "commit_success.txt"), func(v *View) { v.Quiet = time.Hour }), Denied, "no sign"},
		"trainer, ranks":  {viewOf("checkpoint-5", "optimizer.pt", "rng_state_0.pth", "trainer_state.json").sameTime(), Waiting, "changing"},
		"trainer, pruned": {with(viewOf("checkpoint-5", "optimizer.pt", "rng_state.pth", "trainer_state.json"), func(v *View) { v.Changed = int64(time.Hour) }), Waiting, "changing"},
		"accelerate":      {viewOf("checkpoint-5", "optimizer.bin", "random_states_0.pkl").sameTime(), Waiting, "changing"},
		"unknown writer":  {with(viewOf("checkpoint-5", "model.safetensors"), func(v *View) { v.Quiet = time.Hour }), Denied, "no sign"},
		"deepspeed": {with(viewOf("global_step500", "mp_rank_00_model_states.pt"), func(v *View) {
			v.Beside = map[string]Note{"latest": {"global_step500\n", 2}}
		}), Sign, "sign latest"},
		"deepspeed, before": {with(viewOf("global_step500", "mp_rank_00_model_states.pt"), func(v *View) {
			v.Beside, v.Quiet = map[string]Note{"latest": {"global_step400", 2}}, time.Hour
		}), Denied, "no sign"},
		"megatron": {with(viewOf("iter_0000500", "mp_rank_00/model_optim_rng.pt"), func(v *View) {
			v.Beside = map[string]Note{"latest_checkpointed_iteration.txt": {"500", 2}}
		}), Sign, "sign latest_checkpointed_iteration.txt"},
		"ray train": {with(viewOf("checkpoint_2026-11-25_08-53-52.962076", "model.pt"), func(v *View) {
			v.Beside = map[string]Note{raySnapshot: {`{"checkpoint_results":[{"checkpoint_dir_name":"checkpoint_2026-11-25_08-53-52.962076"}]}`, 2}}
		}), Sign, "sign " + raySnapshot},
		"ray train, before": {with(viewOf("checkpoint_2026-11-25_08-53-52.962076", "model.pt"), func(v *View) {
			v.Beside = map[string]Note{raySnapshot: {`{"checkpoint_results":[{"checkpoint_dir_name":"checkpoint_2026-11-25_08-53-52.917030"}]}`, 2}}
		}), Waiting, "changing"},
		"orbax": {viewOf("500", "_CHECKPOINT_METADATA", "_METADATA", "commit_success.txt").sameTime(), Sign, "sign commit_success.txt"},
		"tensorflow": {with(viewOf("ckpt-500", "ckpt-500.data-00000-of-00001", "ckpt-500.index"), func(v *View) {
			v.Group = true
		}), Sign, "sign ckpt-500.index"},
		"tensorflow, shard missing": {with(viewOf("ckpt-500", "ckpt-500.data-00000-of-00002", "ckpt-500.index"), func(v *View) {
			v.Group, v.Quiet = true, time.Hour
		}), Denied, "parts"},
		"keras 3.0":               {with(viewOf("backup", kerasWeights), func(v *View) { v.Quiet = ShortQuiet }), Quiet, "quiet 1s"},
		"keras 3.0, at once":      {viewOf("backup", kerasWeights), Waiting, "changing"},
		"keras 3.0, ended":        {with(viewOf("backup", kerasWeights), func(v *View) { v.Ended = true }), End, "end"},
		"keras, metadata alone":   {with(viewOf("backup", kerasMetadata), func(v *View) { v.Quiet = time.Hour }), Denied, "parts"},
		"keras 3.0, not readable": {with(viewOf("backup", kerasWeights), func(v *View) { v.Quiet, v.Files[0].Format = quiet, format.Result{} }), Quiet, "quiet 10s"},
		"shards, one missing":     {with(viewOf("step-500", "m-00001-of-00002.safetensors"), func(v *View) { v.Quiet = time.Hour }), Denied, "parts"},
		"index names a file elsewhere": {with(viewOf("step-500", "model.safetensors.index.json"), func(v *View) {
			v.Notes, v.Quiet = map[string]Note{"model.safetensors.index.json": {`{"weight_map":{"a":"../../etc/passwd"}}`, 1}}, time.Hour
		}), Denied, "index"},
		"index, shard missing": {with(viewOf("step-500", "model.safetensors.index.json"), func(v *View) {
			v.Notes, v.Quiet = map[string]Note{"model.safetensors.index.json": {`{"weight_map":{"a":"a.safetensors"}}`, 1}}, time.Hour
		}), Denied, "index"},
		"part of a node": {with(viewOf("step-500", ".metadata", "__1_0.distcp", "m-00001-of-00002.bin"), func(v *View) {
			v.Part = true
		}), Waiting, "changing"},
		"part of a node, quiet": {with(viewOf("step-500", ".metadata", "__1_0.distcp", "m-00001-of-00002.bin"), func(v *View) {
			v.Part, v.Quiet = true, quiet
		}), Sign, "sign .metadata"},
		"part of another node": {with(viewOf("step-500", "__1_0.distcp"), func(v *View) {
			v.Part, v.Other, v.Quiet = true, true, quiet
		}), Quiet, "quiet 10s"},
		"one file of a node": {with(viewOf("a-5.pt", "a-5.pt"), func(v *View) {
			v.One, v.Part, v.Quiet = true, true, ShortQuiet
		}), Waiting, "changing"},
		"one file":         {with(viewOf("a-5.pt", "a-5.pt"), func(v *View) { v.One, v.Quiet = true, ShortQuiet }), Structure, "structure zip"},
		"one file at once": {with(viewOf("a-5.pt", "a-5.pt"), func(v *View) { v.One = true }), Waiting, "changing"},
		"one file, unknown": {with(viewOf("a-5.ckpt", "a-5.ckpt"), func(v *View) {
			v.One, v.Quiet, v.Files[0].Format = true, quiet, format.Result{}
		}), Quiet, "quiet 10s"},
	} {
		if got := Judge(c.View, nil, quiet); got.Kind != c.want || got.Word != c.word || got.Reason == "" {
			t.Errorf("%s: got %+v, want %s (%s)", name, got, c.want, c.word)
		}
	}
}

// A shape is learned from one checkpoint. It completes later checkpoints and holds back one that
// lacks a file. A permanent change is learned from its second checkpoint, and reported.
func TestShapes(t *testing.T) {
	const quiet = 10 * time.Second
	shapes := new(Shapes)
	judge := func(name string, paths ...string) (View, Kind) {
		v := viewOf(name, paths...).sameTime()
		v.Quiet = ShortQuiet
		return v, Judge(v, shapes, quiet).Kind
	}
	v, got := judge("step-1", "model.pt", "optim.pt")
	if line := shapes.Learn(v, true); got != Waiting || line != "" {
		t.Errorf("the first: %s, %q, want waiting and no line", got, line)
	}
	if v, got = judge("step-2", "model.pt", "optim.pt"); got != Shape {
		t.Errorf("one of the same shape: %s, want shape", got)
	}
	shapes.Learn(v, true)
	v, _ = judge("step-3", "model.pt")
	v.Quiet = time.Hour
	if j := Judge(v, shapes, quiet); j.Kind != Waiting || !strings.Contains(j.Reason, "optim.pt") {
		t.Errorf("one without optim.pt: %+v, want it to wait for optim.pt", j)
	}
	if v.Draining = true; Judge(v, shapes, quiet).Kind != Quiet {
		t.Errorf("the same when stager ends: %s, want quiet", Judge(v, shapes, quiet).Kind)
	}
	v.Draining = false
	if v.Ended = true; Judge(v, shapes, quiet).Kind != Quiet {
		t.Errorf("the same at the end: %s, want quiet", Judge(v, shapes, quiet).Kind)
	}
	for i, want := range []string{"", "", "checkpoints have other files than before: 1 of ema.pt instead of 0", ""} {
		step := []int{4, 4, 5, 6}[i]
		v, got := judge(fmt.Sprintf("step-%d", step), "model.pt", "optim.pt", "ema.pt")
		if line := shapes.Learn(v, true); line != want || i < 3 && got == Shape || i == 3 && got != Shape {
			t.Errorf("step %d with ema.pt: %s, line %q, want line %q", step, got, line, want)
		}
	}
}

// A sign completes a checkpoint with fewer files than earlier ones after a short quiet period,
// provisionally, and the second one of them at once.
func TestSignOfANewShape(t *testing.T) {
	const quiet = 10 * time.Second
	shapes := new(Shapes)
	of := func(step int, paths ...string) View {
		v := viewOf(fmt.Sprintf("global_step%d", step), paths...).sameTime()
		v.Beside["latest"] = Note{Text: v.Name, Modified: 1}
		return v
	}
	judge := func(v View, quietFor time.Duration) string {
		v.Quiet = quietFor
		j := Judge(v, shapes, quiet)
		return fmt.Sprint(j.Kind, " ", j.Word)
	}
	const model, optim, other = "mp_rank_00_model_states.pt", "bf16_zero_pp_rank_0_optim_states.pt", "zero_pp_rank_0_optim_states.pt"
	shapes.Learn(of(1, model, optim), true)
	first, second := of(2, model, other), of(3, model, other)
	if got, want := judge(first, ShortQuiet-1), "waiting changing"; got != want {
		t.Errorf("the first, at once: got %s, want %s", got, want)
	}
	if got, want := judge(first, ShortQuiet), "quiet sign latest"; got != want {
		t.Errorf("the first, after %v: got %s, want %s", ShortQuiet, got, want)
	}
	shapes.Learn(viewOf("step-1", ".metadata", "__0_0.distcp", "extra.pt").sameTime(), true)
	changed := viewOf("step-2", ".metadata", "__0_0.distcp").sameTime()
	if got, want := judge(changed, ShortQuiet), "quiet sign .metadata"; got != want {
		t.Errorf("without extra.pt: got %s, want %s", got, want)
	}
	changed.Changed = int64(time.Minute)
	if got, want := judge(changed, ShortQuiet), "waiting changing"; got != want {
		t.Errorf("without extra.pt, changed after the sign: got %s, want %s", got, want)
	}
	shapes.Learn(first, false)
	if got, want := judge(first, ShortQuiet), "quiet sign latest"; got != want {
		t.Errorf("the first, again: got %s, want %s", got, want)
	}
	if got, want := judge(second, 0), "sign sign latest"; got != want {
		t.Errorf("the second: got %s, want %s", got, want)
	}
	if got, want := judge(of(3, model), ShortQuiet), "quiet sign latest"; got != want {
		t.Errorf("a third shape: got %s, want %s", got, want)
	}
}

// Files of an earlier save do not match a known shape; neither does a name that is written
// repeatedly.
func TestShapesOfTwoSaves(t *testing.T) {
	shapes := new(Shapes)
	shapes.Learn(viewOf("step-1", "a.pt", "b.pt").sameTime(), true)
	shapes.Learn(viewOf("latest", "a.pt", "b.pt").sameTime(), true)
	v := viewOf("step-2", "a.pt", "b.pt").sameTime()
	v.Quiet = ShortQuiet
	v.Files[1].Modified += int64(time.Hour)
	if got := Judge(v, shapes, time.Minute); got.Kind != Waiting {
		t.Errorf("files that were written an hour apart: %+v, want waiting", got)
	}
	v.Name, v.Files[1].Modified = "latest", v.Files[0].Modified
	if got := Judge(v, shapes, time.Minute); got.Kind != Waiting {
		t.Errorf("a name without a number: %+v, want waiting", got)
	}
	v.Name, v.Files[0].Format = "step-2", format.Result{}
	if got := Judge(v, shapes, time.Minute); got.Kind != Shape {
		t.Errorf("a file of an unknown format with the size of before: %+v, want shape", got)
	}
	v.Files[0].Size++
	if got := Judge(v, shapes, time.Minute); got.Kind != Waiting {
		t.Errorf("a file of an unknown format with another size: %+v, want waiting", got)
	}
}

// Names that are equal after replacing numbers are counted.
func TestShapesCountNamesThatCollide(t *testing.T) {
	shapes := new(Shapes)
	shapes.Learn(viewOf("step-1", "layer1.pt", "layer2.pt", "layer10.pt", "1/2.pt", "2/1.pt").sameTime(), true)
	v := viewOf("step-2", "layer1.pt", "layer2.pt", "1/2.pt", "2/1.pt", "3/3.pt").sameTime()
	v.Quiet = time.Hour
	if got := Judge(v, shapes, time.Minute); got.Kind != Waiting || !strings.Contains(got.Reason, "3 of layer#.pt") {
		t.Errorf("got %+v, want it to wait for the third layer", got)
	}
}

// For a directory of 10^5 files, time and memory grow with their number.
func TestJudgeManyFiles(t *testing.T) {
	paths := make([]string, 100_000)
	for i := range paths {
		paths[i] = fmt.Sprintf("rank%d/__%d_0.distcp", i%7, i)
	}
	for i := range 7 {
		paths = append(paths, fmt.Sprintf("rank%d/.metadata", i))
	}
	shapes := new(Shapes)
	v := viewOf("step-1", paths...).sameTime()
	v.Quiet = time.Hour
	if got := Judge(v, shapes, time.Minute); got.Kind != Quiet {
		t.Errorf("got %+v, want quiet", got)
	}
	shapes.Learn(v, true)
	if got := Judge(v, shapes, time.Minute); got.Kind != Shape {
		t.Errorf("got %+v, want shape", got)
	}
	v.Files = v.Files[:20_000]
	for name, c := range map[string]struct {
		even, odd string
		want      Kind
	}{
		"directories with signs":    {"%06d/.metadata", "%06d/__0_0.distcp", Quiet},
		"directories without":       {"%06d/__0_0.distcp", "%06d/__1_0.distcp", Denied},
		"ranks in one directory":    {"__%d.metadata", "__%d_0.distcp", Quiet},
		"directories of DeepSpeed":  {"%06d/mp_rank_00_model_states.pt", "%06d/x_optim_states.pt", Denied},
		"parts of many":             {"a%d-1-of-2.bin", "a%d-2-of-2.bin", Quiet},
		"files of unknown ranks":    {"%d.distcp", "%d.metadata", Denied},
		"directories of one number": {"d/%06d", "e/%06d", Quiet},
	} {
		for i := range v.Files {
			v.Files[i].Path = fmt.Sprintf([]string{c.even, c.odd}[i%2], i/2)
		}
		slices.SortFunc(v.Files, func(a, b File) int { return strings.Compare(a.Path, b.Path) })
		if got := Judge(v, nil, time.Minute); got.Kind != c.want {
			t.Errorf("%s: got %+v, want %s", name, got, c.want)
		}
	}
}

// randomView selects names that are evidence.
func randomView(r *rand.Rand) View {
	names := []string{
		"model.pt", "optim.pt", ".metadata", "__0_0.distcp", "__1_0.distcp", "__0.metadata", "__1.metadata", "m/.metadata", "m/__0_0.distcp",
		"trainer_state.json", "optimizer.pt", "rng_state_0.pth", "training_args.bin", "config.json", "model.safetensors", "random_states_0.pkl",
		"_METADATA", "_CHECKPOINT_METADATA", "commit_success.txt", "m-00001-of-00002.bin", "m-00002-of-00002.bin", "mp_rank_00_model_states.pt",
		"x.tmp", "a.orbax-checkpoint-tmp-1/b", incompleteMark,
	}
	r.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	v := viewOf([]string{"step-5", "checkpoint-5", "global_step5", "5", "latest"}[r.IntN(5)], names[:1+r.IntN(6)]...)
	for i := range v.Files {
		v.Files[i].Modified = int64(r.IntN(3))
		v.Files[i].Writing = r.IntN(20) == 0
		v.Files[i].Format = format.Result{Verdict: format.Verdict(r.IntN(12) % 3 * (r.IntN(4) / 3)), Kind: "zip"}
	}
	v.Quiet = time.Duration(r.IntN(30)) * time.Second
	v.Renamed, v.Marked, v.Committed, v.Ended = r.IntN(9) == 0, r.IntN(9) == 0, r.IntN(9) == 0, r.IntN(9) == 0
	return v
}

// A denied checkpoint is not complete. Waiting, or adding another denial, does not lift a denial.
func TestJudgeIsMonotone(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	kinds := make(map[Kind]int)
	for range 2_000 {
		v := randomView(r)
		shapes := new(Shapes)
		if r.IntN(2) == 0 {
			shapes.Learn(v, true)
		}
		got := Judge(v, shapes, 10*time.Second)
		kinds[got.Kind]++
		if got.Kind == Denied && got.Complete() || got.Final() && !got.Complete() || got.Reason == "" || got.Word == "" {
			t.Fatalf("%+v: got %+v", v, got)
		}
		longer := v
		longer.Quiet += time.Hour
		if after := Judge(longer, shapes, 10*time.Second); got.Kind == Denied && after.Kind != Denied || got.Complete() && !after.Complete() {
			t.Fatalf("%+v: %+v, and an hour later %+v", v, got, after)
		}
		for _, tt := range []struct { // in one order, so that each run draws the same views
			name string
			deny func(*View)
		}{
			{"a file open for writing", func(v *View) { v.Files[r.IntN(len(v.Files))].Writing = true }},
			{"a temporary file", func(v *View) {
				v.Committed = false
				v.Files = append(v.Files, File{Path: "zz.tmp"})
			}},
			{"a file that breaks off", func(v *View) {
				v.Committed, v.Marked, v.Renamed = false, false, false
				v.Files[r.IntN(len(v.Files))].Format = format.Result{Verdict: format.Incomplete}
			}},
			{"a removed file", func(v *View) { v.Committed, v.Shrunk = false, "gone.pt" }},
		} {
			worse := longer
			worse.Files = slices.Clone(v.Files)
			tt.deny(&worse)
			if after := Judge(worse, shapes, 10*time.Second); after.Complete() {
				t.Fatalf("%+v with %s: got %+v, want denied", v, tt.name, after)
			}
		}
	}
	if len(kinds) < 6 {
		t.Errorf("only %v were drawn", slices.Sorted(maps.Keys(kinds)))
	}
}

func FuzzJudge(f *testing.F) {
	f.Add("step-500", "a\nb", "latest", "text")
	f.Fuzz(func(t *testing.T, name, paths, note, text string) {
		v := viewOf(name, strings.Split(paths, "\n")...)
		v.Notes[note], v.Beside[note] = Note{text, 1}, Note{text, 1}
		shapes := new(Shapes)
		shapes.Learn(v, true)
		if got := Judge(v, shapes, time.Second); got.Reason == "" {
			t.Errorf("%+v has no reason", got)
		}
	})
}

// Nodes may have different files in each checkpoint.
func TestShapesOfPartsCountForNothing(t *testing.T) {
	const quiet = 10 * time.Second
	shapes := new(Shapes)
	shapes.Learn(viewOf("step-1", "a.pt", "b.pt").sameTime(), true)
	for _, paths := range [][]string{{"a.pt"}, {"a.pt", "b.pt"}} {
		v := viewOf("step-2", paths...).sameTime()
		v.Part, v.Quiet = true, ShortQuiet
		if got := Judge(v, shapes, quiet); got.Word != "changing" {
			t.Errorf("%q: after a second got %+v, want changing", paths, got)
		}
		v.Quiet = quiet
		if got := Judge(v, shapes, quiet); got.Kind != Quiet {
			t.Errorf("%q: after the quiet period got %+v, want quiet", paths, got)
		}
	}
}

func TestSignedForAll(t *testing.T) {
	named := func(v View, name, text string) View {
		v.Beside[name] = Note{Text: text, Modified: 2}
		return v.sameTime()
	}
	for name, c := range map[string]struct {
		View
		want bool
	}{
		"dcp":           {viewOf("step-5", ".metadata", "__0_0.distcp").sameTime(), true},
		"dcp, no sign":  {viewOf("step-5", "__0_0.distcp").sameTime(), false},
		"dcp by rank":   {viewOf("step-5", "__0.metadata", "__0_0.distcp").sameTime(), false},
		"deepspeed":     {named(viewOf("global_step5", "mp_rank_00_model_states.pt"), "latest", "global_step5"), true},
		"deepspeed old": {named(viewOf("global_step5", "mp_rank_00_model_states.pt"), "latest", "global_step4"), false},
		"megatron":      {named(viewOf("iter_0000005", "mp_rank_00/model.pt"), "latest_checkpointed_iteration.txt", "5"), true},
		"trainer":       {viewOf("checkpoint-5", "optimizer.pt", "rng_state.pth", "trainer_state.json").sameTime(), false},
		"plain":         {viewOf("step-5", "model.pt").sameTime(), false},
	} {
		if got := c.SignedForAll(); got != c.want {
			t.Errorf("%s: got %v, want %v", name, got, c.want)
		}
	}
}
