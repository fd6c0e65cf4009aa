package stager

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stager-dev/stager/stager/plan"
)

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
