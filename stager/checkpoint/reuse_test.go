package checkpoint

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/conformance"
	"github.com/stager-dev/stager/backends/mem"
)

// frozen returns a model of which a part never changes.
func frozen(step string) map[string]string {
	m := model(step)
	m["base/weights.safetensors.txt"] = strings.Repeat("frozen ", 5000)
	return m
}

// sentOf counts the uploads of a file.
func sentOf(faults *conformance.Faults, name string) (n int) {
	for _, call := range faults.Calls(conformance.Create) {
		if strings.HasSuffix(call.Key, "/"+name) {
			n++
		}
	}
	return n
}

func TestUploadReusesFilesOfPreviousStep(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b, dir, faults := mem.New(), t.TempDir(), new(conformance.Faults)
		u := newUploader(t, dir, faults.Wrap(b), func(c *Config) { c.Keep.Last = 2 })
		for _, step := range []string{"1", "2", "3", "4", "5"} {
			write(t, filepath.Join(dir, "checkpoint-"+step), frozen(step))
			settled(t, u)
			r, files := restoreNewest(t, b)
			equal(t, "step "+step, files, frozen(step))
			if fmt.Sprint(r.Step) != step {
				t.Errorf("restored step %d, want %s", r.Step, step)
			}
			if got := unreferenced(t, b); len(got) != 0 {
				t.Errorf("after step %s unreferenced: %v", step, got)
			}
		}
		if got := sentOf(faults, "base/weights.safetensors.txt"); got != 1 {
			t.Errorf("the frozen file was sent %d times, want once", got)
		}
		if got, want := commits(b), []string{stepDir(4, 0), stepDir(5, 0)}; !slices.Equal(got, want) {
			t.Errorf("committed %v, want %v", got, want)
		}
		steps, err := Steps(t.Context(), newStore(b))
		if err != nil || len(steps) != 3 || steps[0].Shared != 35000 || steps[0].Problem != "" || steps[2].Committed {
			t.Errorf("got %+v, %v; want two good steps that share 35000 bytes, and what they share", steps, err)
		}
		// Its content changes, and later no step needs the old one. Missing files are accepted
		// from the second checkpoint on.
		for _, step := range []string{"6", "7", "8"} {
			write(t, filepath.Join(dir, "checkpoint-"+step), map[string]string{"base/weights.safetensors.txt": strings.Repeat("FROZEN ", 5000)})
			settled(t, u)
		}
		if keys := strings.Join(b.Keys(), " "); strings.Contains(keys, stepDir(1, 0)) {
			t.Errorf("what nobody refers to is left: %s", keys)
		}
	})
}

// A shared file that is missing from the store is sent again instead of being referred to.
func TestFileMissingInStoreIsUploadedAgain(t *testing.T) {
	b := mem.New()
	c := push(t, b, 1, frozen("1"))
	_ = b.Delete(t.Context(), stepDir(1, 0)+"/"+c.Data+"/base/weights.safetensors.txt")
	push(t, b, 2, frozen("2"))
	r, files := restoreNewest(t, b)
	equal(t, "restored", files, frozen("2"))
	if r.Step != 2 || len(r.FellBackFrom) > 0 {
		t.Errorf("restored %+v, want step 2", r)
	}
}

// Another process removes the previous step between the upload and the COMMIT.
func TestStepRemovedMeanwhileLosesNoSharedFiles(t *testing.T) {
	b := mem.New()
	push(t, b, 1, frozen("1"))
	push(t, b, 2, model("2"))
	push(t, b, 3, frozen("1"))
	first := true
	hook := &hooked{Backend: b, onCreate: func(key string) {
		if strings.HasPrefix(key, stepDir(4, 0)) && strings.Contains(key, "/parts/") && first {
			first = false
			_ = b.Delete(context.Background(), stepDir(3, 0)+"/"+commitKey)
			r := retention{store: newStore(b), keep: Keep{Last: 1}, log: newUploader(t, t.TempDir(), mem.New(), nil).log}
			if _, err := r.apply(context.Background()); err != nil {
				t.Error(err)
			}
		}
	}}
	dir := t.TempDir()
	write(t, dir, frozen("4"))
	if _, err := PushCheckpoint(t.Context(), PushCheckpointConfig{Store: newStore(hook), Path: dir, Step: 4}); err != nil {
		t.Fatal(err)
	}
	if first {
		t.Fatal("nothing was removed meanwhile")
	}
	r, files := restoreNewest(t, b)
	equal(t, "restored", files, frozen("4"))
	if r.Step != 4 || len(r.FellBackFrom) > 0 {
		t.Errorf("restored %+v, want step 4", r)
	}
}

func TestKeepChooses(t *testing.T) {
	var steps []good
	for _, step := range []int64{600, 500, 400, 300, 200, 100} {
		c := Commit{Step: step, Metrics: map[string]float64{"loss": float64((step * 7) % 500), "bleu": float64(step)}}
		if step == 600 {
			c.Metrics = nil
		}
		steps = append(steps, good{dir: fmt.Sprint(step), commit: c})
	}
	for _, tt := range []struct {
		keep Keep
		want string
	}{
		{Keep{}, "100 200 300 400 500 600"},
		{Keep{Last: 2}, "500 600"},
		{Keep{Last: 1, Every: 300}, "300 600"},
		{Keep{Last: 1, Best: 2, Metric: "loss"}, "300 500 600"}, // 0 of 500, 100 of 300
		{Keep{Last: 1, Best: 1, Metric: "bleu", Highest: true}, "500 600"},
		{Keep{Last: 1, Best: 9, Metric: "none"}, "600"},
		{Keep{Last: 9}, "100 200 300 400 500 600"},
	} {
		var got []string
		for dir := range tt.keep.choose(steps) {
			got = append(got, dir)
		}
		slices.Sort(got)
		if got := strings.Join(got, " "); got != tt.want {
			t.Errorf("%+v keeps %s, want %s", tt.keep, got, tt.want)
		}
	}
}

func TestRetentionKeepsBestByMetric(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b, dir := mem.New(), t.TempDir()
		u := newUploader(t, dir, b, func(c *Config) { c.Keep = Keep{Last: 1, Best: 1, Metric: "loss"} })
		for step, loss := range []float64{0.9, 0.1, 0.5, 0.4} {
			at := filepath.Join(dir, fmt.Sprint("checkpoint-", step))
			write(t, at, model(fmt.Sprint(step)))
			write(t, at, map[string]string{markerName: fmt.Sprintf(`{"step": %d, "metrics": {"loss": %g}}`, step, loss)})
			settled(t, u)
		}
		if got, want := commits(b), []string{stepDir(1, 0), stepDir(3, 0)}; !slices.Equal(got, want) {
			t.Errorf("committed %v, want %v", got, want)
		}
	})
}

// A dry run logged that steps were removed.
func TestPruneDryRunLogsWhatWouldBeRemoved(t *testing.T) {
	b := mem.New()
	for step := range int64(3) {
		push(t, b, step, frozen(fmt.Sprint(step)))
	}
	b.Put(stepDir(2, 1)+"/data/0123456789abcdef/x", []byte("xyz"))
	var text bytes.Buffer
	cfg := PruneConfig{Store: newStore(b), Keep: Keep{Last: 1}, DryRun: true, Log: slog.New(slog.NewTextHandler(&text, nil))}
	if _, err := Prune(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	if got := text.String(); !strings.Contains(got, "an older step would be removed") || strings.Contains(got, " is removed") || strings.Contains(got, " is swept") {
		t.Errorf("got %s, want what would be removed and nothing that is", got)
	}
}

func TestPruneDryRunThenRemove(t *testing.T) {
	b := mem.New()
	for step := range int64(4) {
		push(t, b, step, frozen(fmt.Sprint(step)))
	}
	b.Put(stepDir(2, 1)+"/data/0123456789abcdef/x", []byte("xyz"))
	before := b.Keys()
	cfg := PruneConfig{Store: newStore(b), Keep: Keep{Last: 2}, DryRun: true}
	reported, err := Prune(t.Context(), cfg)
	if err != nil || !slices.Equal(b.Keys(), before) {
		t.Fatalf("a dry run: %v; %d keys, had %d", err, len(b.Keys()), len(before))
	}
	cfg.DryRun = false
	done, err := Prune(t.Context(), cfg)
	if err != nil || !slices.Equal(done, reported) || len(done) != 3 {
		t.Errorf("removed %+v, %v; told %+v", done, err, reported)
	}
	if got, want := commits(b), []string{stepDir(2, 0), stepDir(3, 0)}; !slices.Equal(got, want) {
		t.Errorf("left %v, want %v", got, want)
	}
	if got := unreferenced(t, b); len(got) != 0 {
		t.Errorf("unreferenced: %v", got)
	}
	for _, step := range []int64{2, 3} {
		if err := Verify(t.Context(), newStore(b), stepDir(step, 0), func(int64) {}); err != nil {
			t.Errorf("step %d: %v", step, err)
		}
	}
	// A COMMIT of a later version may refer to anything.
	b.Put(stepDir(9, 0)+"/"+commitKey, []byte(`{"apiVersion":"stager.dev/v9"}`))
	cfg.Keep.Last = 1
	if _, err := Prune(t.Context(), cfg); err != nil {
		t.Error(err)
	}
	if keys := strings.Join(b.Keys(), " "); !strings.Contains(keys, stepDir(2, 0)+"/data/") || strings.Contains(keys, stepDir(2, 0)+"/COMMIT") {
		t.Errorf("step 2's data went, or its COMMIT stayed: %s", keys)
	}
}

func TestVerifyReadsEveryByte(t *testing.T) {
	b := mem.New()
	push(t, b, 1, frozen("1"))
	c := push(t, b, 2, frozen("2"))
	var read atomic.Int64
	if err := Verify(t.Context(), newStore(b), stepDir(2, 0), func(n int64) { read.Add(n) }); err != nil || read.Load() != c.Bytes {
		t.Errorf("read %d bytes, %v; want %d", read.Load(), err, c.Bytes)
	}
	// Flip a bit of a file that the step shares with the previous one.
	key := c.Files[slices.IndexFunc(c.Files, func(f File) bool { return f.At != "" })].At
	text, _ := b.Get(key)
	text[9] ^= 1
	b.Put(key, text)
	for _, step := range []int64{1, 2} {
		if err := Verify(t.Context(), newStore(b), stepDir(step, 0), func(int64) {}); !Bad(err) || backends.KindOf(err) != backends.Corrupt {
			t.Errorf("step %d: %v, want corrupt", step, err)
		}
	}
}

// The COMMIT has the format of the first releases.
func TestCommitOfOldFormatIsReadable(t *testing.T) {
	text := `{"apiVersion": "stager.dev/v1alpha1", "kind": "Checkpoint", "step": 5, "created": "2026-11-01T10:00:00Z", "nodes": 1, "attempt": 0,
		"data": "data/0123456789abcdef", "bytes": 0, "files": [{"path": "a", "size": 0, "mode": 420, "modified": "2026-11-01T09:00:00Z", "digest": "crc64nvme:0000000000000000"}]}`
	b := mem.New()
	b.Put(stepDir(5, 0)+"/"+commitKey, []byte(text))
	b.Put(stepDir(5, 0)+"/data/0123456789abcdef/a", nil)
	if r, files := restoreNewest(t, b); r.Step != 5 || len(files) != 1 {
		t.Errorf("restored %+v with %v, want step 5", r, files)
	}
}
