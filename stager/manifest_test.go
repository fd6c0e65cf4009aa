package stager

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
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
