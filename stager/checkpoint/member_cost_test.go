package checkpoint

import (
	"context"
	"fmt"
	"io"
	"iter"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/mem"
)

// metered is a store over a network: each request has a delay and is counted.
type metered struct {
	backends.Backend
	latency time.Duration

	mu     sync.Mutex           // guards all below
	counts map[string]int       // requests, by operation and kind of key
	came   map[string]time.Time // when a key was first written
}

func (b *metered) request(ctx context.Context, op, key string) error {
	b.mu.Lock()
	b.counts[op+" "+kindOfKey(key)]++
	b.mu.Unlock()
	return pause(ctx, b.latency)
}

// kindOfKey returns the purpose of an object.
func kindOfKey(key string) string {
	switch {
	case strings.HasSuffix(key, commitKey):
		return "COMMIT"
	case strings.HasPrefix(key, "nodes/members/"):
		return "member"
	case strings.HasPrefix(key, "nodes/views/"):
		return "announcement"
	case strings.HasPrefix(key, "nodes/"):
		return "view"
	case strings.Contains(key, "/parts/"):
		return "part"
	case strings.Contains(key, "/data/"):
		return "data"
	case strings.HasPrefix(key, "step-"):
		return "step"
	}
	return "other"
}

// reset returns the counts and clears them.
func (b *metered) reset() map[string]int {
	b.mu.Lock()
	defer b.mu.Unlock()
	counts := b.counts
	b.counts = make(map[string]int)
	return counts
}

func sum(counts map[string]int) (total int) {
	for _, n := range counts {
		total += n
	}
	return total
}

func words(counts map[string]int) string {
	var text []string
	for _, what := range slices.Sorted(maps.Keys(counts)) {
		text = append(text, fmt.Sprint(what, " ", counts[what]))
	}
	return strings.Join(text, ", ")
}

// commitLag returns the time between the last part of a step and its COMMIT.
func (b *metered) commitLag(dir string) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	var last time.Time
	for key, at := range b.came {
		if strings.HasPrefix(key, dir+"/parts/") && at.After(last) {
			last = at
		}
	}
	return b.came[dir+"/"+commitKey].Sub(last)
}

// List makes one request per thousand objects.
func (b *metered) List(ctx context.Context, prefix string) iter.Seq2[backends.Object, error] {
	return func(yield func(backends.Object, error) bool) {
		n := 0
		if err := b.request(ctx, "list", prefix); err != nil {
			yield(backends.Object{}, err)
			return
		}
		for obj, err := range b.Backend.List(ctx, prefix) {
			if n++; n%1000 == 0 && err == nil {
				err = b.request(ctx, "list", prefix)
			}
			if !yield(obj, err) || err != nil {
				return
			}
		}
	}
}

func (b *metered) Stat(ctx context.Context, key string) (backends.Object, error) {
	if err := b.request(ctx, "stat", key); err != nil {
		return backends.Object{}, err
	}
	return b.Backend.Stat(ctx, key)
}

func (b *metered) OpenRange(ctx context.Context, obj backends.Object, off, n int64) (io.ReadCloser, error) {
	if err := b.request(ctx, "read", obj.Key); err != nil {
		return nil, err
	}
	return b.Backend.OpenRange(ctx, obj, off, n)
}

func (b *metered) Delete(ctx context.Context, key string) error {
	if err := b.request(ctx, "delete", key); err != nil {
		return err
	}
	return b.Backend.Delete(ctx, key)
}

func (b *metered) Create(ctx context.Context, key string, opts backends.CreateOptions) (backends.Writer, error) {
	w, err := b.Backend.Create(ctx, key, opts)
	return meteredWriter{w, b, key}, err
}

type meteredWriter struct {
	backends.Writer
	b   *metered
	key string
}

func (w meteredWriter) Commit(ctx context.Context) (backends.Object, error) {
	if err := w.b.request(ctx, "put", w.key); err != nil {
		return backends.Object{}, err
	}
	obj, err := w.Writer.Commit(ctx)
	if err == nil {
		w.b.mu.Lock()
		if _, ok := w.b.came[w.key]; !ok {
			w.b.came[w.key] = time.Now()
		}
		w.b.mu.Unlock()
	}
	return obj, err
}

func newMetered(latency time.Duration) *metered {
	return &metered{Backend: mem.New(), latency: latency, counts: make(map[string]int), came: make(map[string]time.Time)}
}

// Measures the cost of a checkpoint on a store with 20 ms of latency. Regression: a node listed
// all steps, and the data of all nodes of the newest one, before it sent its own files.
func TestCheckpointOfSeveralNodesCostsFewRequests(t *testing.T) {
	sizes := []int{2, 4, 50}
	if os.Getenv("STAGER_TRIAL") == "full" {
		sizes = []int{2, 3, 4, 8, 50, 200}
	}
	for _, nodes := range sizes {
		t.Run(fmt.Sprint(nodes), func(t *testing.T) { inBubble(t, func(t *testing.T) { testCost(t, nodes) }) })
	}
}

func testCost(t *testing.T, nodes int) {
	b := newMetered(20 * time.Millisecond)
	g := startGang(t, b, "job-a", nodes)
	time.Sleep(5 * time.Minute)
	for step := range 3 { // each references a file of the previous one
		name := fmt.Sprint(step + 1)
		dir := stepDir(int64(step+1), 0)
		b.reset()
		for n, directory := range g.dirs { // one file that never changes, and one that does
			write(t, filepath.Join(directory, "step-"+name), map[string]string{
				fmt.Sprintf("rank%d.pt", n): fmt.Sprintf("rank %d of %s", n, name), fmt.Sprintf("frozen%d.pt", n): strings.Repeat("frozen ", 10),
			})
		}
		for _, directory := range g.dirs {
			write(t, filepath.Join(directory, "step-"+name), map[string]string{markerName: ""})
		}
		began := time.Now()
		g.waitFor(int64(step + 1))
		counts, took := b.reset(), time.Since(began)
		lag := b.commitLag(dir)
		t.Logf("%d nodes, step %d: %d requests, %.1f a node, safe on all after %v, COMMIT %v after the last part\n\t%s",
			nodes, step+1, sum(counts), float64(sum(counts))/float64(nodes), took, lag, words(counts))
		if most := 60 + 27*nodes; sum(counts) > most {
			t.Errorf("%d nodes, step %d: got %d requests, want %d at most:\n\t%s", nodes, step+1, sum(counts), most, words(counts))
		}
		if lag > time.Second {
			t.Errorf("%d nodes: COMMIT %v after the last part, want 1s at most", nodes, lag)
		}
	}
}

// A checkpoint of a single node cost 13, 18 and 19 requests before several writers could share a
// destination. Since then, one more listing after COMMIT verifies the data before success is
// reported. One more put protects data of an earlier step until the COMMIT that references it
// exists. COMMIT is not read back if the store creates it atomically, which saves two requests.
func TestCheckpointOfOneNodeCostsAsBefore(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newMetered(20 * time.Millisecond)
		dir := t.TempDir()
		u := newUploader(t, dir, b, nil)
		for step, most := range []int{13, 18, 19, 19} {
			name := fmt.Sprint(step + 1)
			write(t, filepath.Join(dir, "step-"+name), map[string]string{"rank.pt": "rank of " + name, "frozen.pt": strings.Repeat("frozen ", 10)})
			write(t, filepath.Join(dir, "step-"+name), map[string]string{markerName: ""})
			b.reset()
			began := time.Now()
			pass(t, u)
			counts := b.reset()
			if sum(counts) > most || sum(counts) < 5 {
				t.Errorf("step %s: got %d requests, want %d at most, and 5 at least:\n\t%s", name, sum(counts), most, words(counts))
			}
			t.Logf("step %s: %d requests, %v: %s", name, sum(counts), time.Since(began), words(counts))
		}
	})
}
