package checkpoint

import (
	"context"
	"iter"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/mem"
	"github.com/stager-dev/stager/stager/checkpoint/group"
)

// saveAlone saves a step from a single node.
func saveAlone(t *testing.T, b *mem.Backend, step int64) {
	t.Helper()
	dir := t.TempDir()
	write(t, dir, model(time.Now().String()))
	if _, err := PushCheckpoint(t.Context(), PushCheckpointConfig{Store: newStore(b), Path: dir, Step: step}); err != nil {
		t.Fatal(err)
	}
}

// ofJob makes a node restore as a node of another job.
func ofJob(job string) func(*RestoreConfig) {
	return func(c *RestoreConfig) { c.Among.Job = job }
}

func pruneOld(t *testing.T, b backends.Backend) {
	t.Helper()
	if _, err := Prune(t.Context(), PruneConfig{Store: newStore(b), Abandoned: Abandoned}); err != nil {
		t.Fatal(err)
	}
}

// Where a single node saves, agreements on restores stayed forever, because nothing was swept
// without a view.
func TestAgreementsOfSingleNodeOutputsAreSwept(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := mem.New()
		saveAlone(t, b, 1)
		for node := range 2 {
			wantRestored(t, b, node, 1)
		}
		b.Put("nodes/members/000000.json", []byte("of a job that is about to form its first view"))
		b.Put("nodes/restores/notes.txt", []byte("a user's"))
		time.Sleep(Abandoned - time.Hour)
		wantRestored(t, b, 0, 1, ofJob("job-b"))
		young := nodeRecords(b)
		if pruneOld(t, b); !slices.Equal(nodeRecords(b), young) {
			t.Errorf("got %q of %q, want all as long as they are young", nodeRecords(b), young)
		}
		time.Sleep(2 * time.Hour)
		dir := t.TempDir()
		u := newUploader(t, dir, b, nil) // a daemon sweeps an hour after its start, and later
		time.Sleep(sweepNodesEvery)
		write(t, dir+"/step-2", model("2"))
		settled(t, u)
		var left []string
		for _, key := range nodeRecords(b) {
			k, ok := group.ParseRecordKey(key)
			if text, _ := b.Get(key); ok && k.Job != "" && strings.Contains(string(text), `"job-b"`) {
				continue
			}
			left = append(left, key)
		}
		if want := []string{"nodes/members/000000.json", "nodes/restores/notes.txt"}; !slices.Equal(left, want) {
			t.Errorf("after %v there are %q beside those of job-b, want %q", Abandoned, left, want)
		}
		if got := len(nodeRecords(b)) - len(left); got != 2 {
			t.Errorf("got %d records of job-b, want its agreement and its follower", got)
		}
		wantRestored(t, b, 1, 1, ofJob("job-b")) // as its node 0
	})
}

// A running job restores repeatedly. Its last agreements stay.
func TestAgreementsOfRunningJobAreBounded(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := mem.New()
		saveAlone(t, b, 1)
		for range keptAgreements + 20 {
			wantRestored(t, b, 0, 1)
			time.Sleep(Abandoned / 10)
		}
		pruneOld(t, b)
		agreements := slices.DeleteFunc(nodeRecords(b), func(key string) bool { return !strings.HasPrefix(key, group.RestoresPrefix) })
		if len(agreements) != keptAgreements {
			t.Errorf("got %d agreements, want %d", len(agreements), keptAgreements)
		}
		wantRestored(t, b, 1, 1)
		pruneOld(t, b)
		wantRestored(t, b, 0, 1)
	})
}

// whileRead calls do once, when an object is read.
type whileRead struct {
	*mem.Backend
	prefix string
	do     func()
}

func (w *whileRead) List(ctx context.Context, prefix string) iter.Seq2[backends.Object, error] {
	listed := slices.Collect(func(yield func(backends.Object) bool) {
		for obj := range w.Backend.List(ctx, prefix) {
			if !yield(obj) {
				return
			}
		}
	})
	if do := w.do; do != nil && prefix == w.prefix {
		w.do = nil
		do()
	}
	return func(yield func(backends.Object, error) bool) {
		for _, obj := range listed {
			if !yield(obj, nil) {
				return
			}
		}
	}
}

// A node follows an old agreement while its records are removed. The node that restores next must
// find the agreement.
func TestAgreementStaysWhenNodeRestoresDuringSweep(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := mem.New()
		saveAlone(t, b, 1)
		wantRestored(t, b, 0, 1)
		time.Sleep(Abandoned + time.Hour)
		pruneOld(t, &whileRead{b, group.RecordsPrefix, func() { wantRestored(t, b, 1, 1) }})
		if got := len(nodeRecords(b)); got != 3 {
			t.Errorf("got %d records, want the agreement and two followers: %q", got, nodeRecords(b))
		}
	})
}

// A view that cannot be read may need any record.
func TestAgreementsStayBesideUnreadableView(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := mem.New()
		saveAlone(t, b, 1)
		wantRestored(t, b, 0, 1)
		b.Put(group.ViewKey, []byte("{"))
		before := nodeRecords(b)
		time.Sleep(Abandoned + time.Hour)
		if pruneOld(t, b); !slices.Equal(nodeRecords(b), before) {
			t.Errorf("got %q, want %q", nodeRecords(b), before)
		}
	})
}
