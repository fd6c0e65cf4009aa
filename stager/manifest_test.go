package stager

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/stager/plan"
)

// vanishing is a store in whose listings a file was removed meanwhile, and which has a FIFO.
type vanishing struct{ backends.Backend }

func (v vanishing) List(ctx context.Context, prefix string) iter.Seq2[backends.Object, error] {
	return func(yield func(backends.Object, error) bool) {
		backends.Skip(ctx, backends.Skipped{Key: prefix + "fifo", What: "a FIFO"})
		backends.Skip(ctx, backends.Skipped{Key: prefix + "gone.tar", What: "a file", Vanished: true})
		for obj, err := range v.Backend.List(ctx, prefix) {
			if !yield(obj, err) {
				return
			}
		}
	}
}

// A window over a directory from which a file was removed during the listing delivered the others,
// and the epoch was complete.
func TestWindowOfWhatVanishesIsAnError(t *testing.T) {
	for exclude, want := range map[string]backends.Kind{"": backends.Changed, ", exclude: [gone*]": backends.Unknown} {
		j := newJob(t, "  inputs:\n"+strings.Replace(strings.Replace(windowInput, "mem://", "vanishing://", 1), ", mode:", exclude+", mode:", 1))
		j.start()
		j.await("it is listed", func() bool {
			in := j.Snapshot().Inputs[0]
			return in.Error != "" || in.Window != nil
		})
		if got := j.Snapshot().Inputs[0].Error; strings.Contains(got, "gone.tar") != (want == backends.Changed) {
			t.Errorf("with %q got the error %q, want kind %v", exclude, got, want)
		}
		if got := backends.KindOf(j.finish()); got != want {
			t.Errorf("with %q got kind %v, want %v", exclude, got, want)
		}
	}
}

// For a dataset that was written class by class, the classes are mixed, leases report samples, and
// the quality of the delivered order is reported.
func TestQualityOfWhatWasDelivered(t *testing.T) {
	j := newJob(t, `  inputs:
  - name: train
    source: mem://b/set/
    path: DIR/data
    mode: window
    window: {size: 1Mi}
    order: {by: balanced, over: 40}
    index: index.jsonl
`)
	var index strings.Builder
	for i := range 30 {
		class := "cat"
		if i >= 20 {
			class = "dog"
		}
		j.mem.Put(fmt.Sprintf("set/%02d.tar", i), []byte("shard"))
		fmt.Fprintf(&index, "{\"key\": \"%02d.tar\", \"samples\": 10, \"classes\": {%q: 10}}\n", i, class)
	}
	j.mem.Put("set/index.jsonl", []byte(index.String()))
	j.start()
	j.ready()
	for range 30 {
		l := j.lease()
		if l.Samples != 10 {
			t.Fatalf("got %+v, want 10 samples", l)
		}
		j.ack(l)
	}
	code, text := j.call("GET", "/v1/inputs/train/quality?epoch=0", "")
	var q plan.Quality
	if err := json.Unmarshal([]byte(text), &q); err != nil || code != 200 {
		t.Fatalf("got %d %s, %v", code, text, err)
	}
	// Any four shards have one dog, or two: never further than a sixth from a third.
	if q.Objects != 30 || q.Measured != 26 || q.WorstMix > 0.17 || q.P95Mix > q.WorstMix {
		t.Errorf("got %+v, want 30 shards in an even mix", q)
	}
	if code, text := j.call("GET", "/v1/inputs/trian/quality", ""); code != 404 {
		t.Errorf("of an input that is not there: got %d %s, want 404", code, text)
	}
	if err := j.finish(); err != nil {
		t.Error(err)
	}
}

// The name of a plan on disk is the digest of its whole manifest, so that a run continues after an
// upgrade, whether the digest was computed during the listing or after it.
func TestPlanNameIsDigestOfManifest(t *testing.T) {
	for _, order := range []string{
		"order: {by: name}",
		"order: {by: shuffle, seed: 3}, exclude: [s1*]",
		"order: {by: block, block: 2}",
		"order: {by: shuffle}, index: index.jsonl",
		"order: {by: shuffle, equalize: drop}, index: index.jsonl",
		"order: {by: list, list: names.txt}",
	} {
		j := newJob(t, "  inputs:\n"+strings.Replace(windowInput, "order: {by: name, epochs: 1}", order, 1))
		var index strings.Builder
		for i := range 4 {
			fmt.Fprintf(&index, "{\"key\": \"s%d.tar\", \"samples\": 10}\n", i)
		}
		if strings.Contains(order, "index") {
			j.mem.Put("train/index.jsonl", []byte(index.String()))
		}
		if strings.Contains(order, "names") {
			j.mem.Put("train/names.txt", []byte("s3.tar\ns0.tar\n"))
		}
		j.start()
		j.ready()
		in := j.inputs[0]
		in.mu.Lock()
		m := in.manifest
		in.mu.Unlock()
		digest, err := plan.Digest(m, in.spec.Order, plan.Shard{})
		if err != nil {
			t.Fatal(err)
		}
		stamp, err := os.ReadFile(filepath.Join(j.dir, "train", ".stager", "plan"))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(string(stamp), `"`+digest) {
			t.Errorf("%s: got the plan %s, want %s", order, stamp, digest)
		}
		if err := j.finish(); err != nil {
			t.Errorf("%s: %v", order, err)
		}
	}
}
