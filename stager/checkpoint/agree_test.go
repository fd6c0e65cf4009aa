package checkpoint

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/conformance"
	"github.com/stager-dev/stager/backends/mem"
	"github.com/stager-dev/stager/stager/checkpoint/group"
)

// restoreOn restores on one node of job-a, which has two nodes.
func restoreOn(t *testing.T, b backends.Backend, node int, change ...func(*RestoreConfig)) (Restored, error) {
	t.Helper()
	cfg := RestoreConfig{
		Store: newStore(b), Dir: filepath.Join(t.TempDir(), "to"), Step: Newest, Node: AnyNode,
		Among: Among{Job: "job-a", Index: node, Count: 2, Pod: fmt.Sprint("pod-", node), Patience: 5 * time.Second},
	}
	for _, c := range change {
		c(&cfg)
	}
	return Restore(t.Context(), cfg)
}

// wantRestored restores on a node and expects a step.
func wantRestored(t *testing.T, b backends.Backend, node int, want int64, change ...func(*RestoreConfig)) {
	t.Helper()
	done, err := restoreOn(t, b, node, change...)
	if err != nil || done.Step != want {
		t.Errorf("node %d: got step %d, %v, want step %d", node, done.Step, err, want)
	}
}

// podsOf names the pods of a gang as restoreOn does.
func podsOf(c *Config) { c.Pod = fmt.Sprint("pod-", c.Node) }

// Regression: a step was committed between the restores of two nodes, and each restored the
// newest step that it found. If both restore again afterwards, they use the newer step.
func TestNodesRestoreStepThatTheyAgreeOn(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := mem.New()
		g := savedGang(t, b, 2, podsOf)
		wantRestored(t, b, 0, 1)
		g.save("2")
		g.waitFor(2)
		wantRestored(t, b, 1, 1)
		g.save("3")
		g.waitFor(3)
		wantRestored(t, b, 1, 3)
		g.save("4")
		g.waitFor(4)
		wantRestored(t, b, 0, 3)
		// Node 0 restarts, and node 1 may be another pod by then.
		wantRestored(t, b, 0, 4)
		wantRestored(t, b, 1, 4, func(c *RestoreConfig) { c.Among.Pod = "another" })
	})
}

// A checkpoint that was written before the nodes restored, and committed afterwards, does not
// prove that the job ran.
func TestLateCommitSplitsNoNodes(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := mem.New()
		g := savedGang(t, b, 2, podsOf)
		wantRestored(t, b, 0, 1)
		wantRestored(t, b, 1, 1)
		g.saveOn(0, g.dirs[0], "2") // and node 1 is slow
		time.Sleep(30 * time.Second)
		wantRestored(t, b, 0, 1)
		g.saveOn(1, g.dirs[1], "2")
		g.waitFor(2)
		wantRestored(t, b, 0, 1)
		wantRestored(t, b, 1, 1)
	})
}

// The agreed step was removed by retention, or damaged, before the second node restored it.
func TestNodesAgreeAnewOnDamagedStep(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := mem.New()
		g := savedGang(t, b, 2, podsOf)
		g.save("2")
		g.waitFor(2)
		wantRestored(t, b, 0, 2)
		for _, key := range b.Keys() {
			if strings.HasPrefix(key, "step-00000002/data/") {
				text, _ := b.Get(key)
				b.Put(key, bytes.ToUpper(text))
			}
		}
		_, err := restoreOn(t, b, 1)
		if backends.KindOf(err) != backends.Unavailable || !strings.Contains(err.Error(), "node 0") {
			t.Errorf("while node 0 holds step 2: got %v, want that node 1 names it", err)
		}
		wantRestored(t, b, 0, 1)
		wantRestored(t, b, 1, 1)
	})
}

func TestNodesAgreeToBeginWithoutCheckpoint(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := mem.New()
		empty := func(c *RestoreConfig) { c.Among.Empty = true }
		if _, err := restoreOn(t, b, 0); !backends.Empty(err) || len(b.Keys()) != 0 {
			t.Errorf("got %v and %q, want that there is nothing, and no agreement", err, b.Keys())
		}
		if _, err := restoreOn(t, b, 0, empty); !backends.Empty(err) {
			t.Errorf("got %v, want that there is nothing", err)
		}
		g := startGang(t, b, "job-a", 2, podsOf)
		time.Sleep(time.Minute)
		g.save("1")
		g.waitFor(1)
		for _, change := range [][]func(*RestoreConfig){nil, {empty}} {
			if _, err := restoreOn(t, b, 1, change...); !backends.Empty(err) || !strings.Contains(err.Error(), "agreed to begin without") {
				t.Errorf("node 1: got %v, want that the nodes agreed to begin without", err)
			}
		}
		g.save("2")
		g.waitFor(2)
		wantRestored(t, b, 0, 2)
		wantRestored(t, b, 1, 2)
	})
}

// An explicit step on one node applies to all nodes.
func TestStepByHandIsAgreedOn(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := mem.New()
		g := savedGang(t, b, 2, podsOf)
		g.save("2")
		g.waitFor(2)
		hand := func(c *RestoreConfig) { c.Step = 1 }
		wantRestored(t, b, 0, 1, hand)
		wantRestored(t, b, 1, 1)
		wantRestored(t, b, 1, 1, hand)
		g.save("3")
		g.waitFor(3)
		wantRestored(t, b, 1, 3)
		if _, err := restoreOn(t, b, 0, func(c *RestoreConfig) { c.Step = 9 }); backends.KindOf(err) != backends.NotExist {
			t.Errorf("step 9: got %v, want kind notExist", err)
		}
	})
}

// A node with read-only credentials follows the agreement of the others. Without an agreement,
// each node restores the newest step and logs that there is no agreement.
func TestReadOnlyNodeFollowsAgreement(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b, faults := mem.New(), new(conformance.Faults)
		g := savedGang(t, b, 2, podsOf)
		faults.Always(conformance.Create, conformance.Fail(backends.Permission))
		var log bytes.Buffer
		logged := func(c *RestoreConfig) { c.Log = slog.New(slog.NewTextHandler(&log, nil)) }
		wantRestored(t, faults.Wrap(b), 1, 1, logged)
		if !strings.Contains(log.String(), "did not agree") {
			t.Errorf("logged %s, want that the nodes did not agree", log.String())
		}
		wantRestored(t, b, 0, 1)
		late := b.Keys()
		g.saveOn(0, g.dirs[0], "2")
		g.saveOn(1, g.dirs[1], "2")
		g.waitFor(2)
		// The agreement ends as soon as the job has saved after it.
		wantRestored(t, faults.Wrap(b), 1, 2)
		if got := slices.ContainsFunc(late, func(key string) bool { return strings.HasPrefix(key, group.FollowersPrefix) }); !got {
			t.Errorf("there are %q, want a record of node 0", late)
		}
	})
}

// Obsolete restore records are removed. Those of a job that has a COMMIT stay, except agreements
// that later ones replace.
func TestRecordsOfRestoresAreSwept(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := mem.New()
		g := savedGang(t, b, 2, podsOf)
		for range keptAgreements + 3 {
			wantRestored(t, b, 0, 1)
		}
		if _, err := restoreOn(t, b, 0, func(c *RestoreConfig) { c.Among.Job = "job-b" }); err != nil {
			t.Fatal(err)
		}
		for n := range g.us {
			g.kill(n)
		}
		count := func() (n int) {
			for _, key := range b.Keys() {
				if strings.HasPrefix(key, group.RestoresPrefix) {
					n++
				}
			}
			return n
		}
		if _, err := Prune(t.Context(), PruneConfig{Store: newStore(b), Abandoned: Abandoned}); err != nil || count() != keptAgreements+4 {
			t.Errorf("young records: got %d agreements, %v, want %d", count(), err, keptAgreements+4)
		}
		time.Sleep(Abandoned + time.Minute)
		if _, err := Prune(t.Context(), PruneConfig{Store: newStore(b), Abandoned: Abandoned}); err != nil || count() != keptAgreements {
			t.Errorf("old records: got %d agreements, %v, want %d", count(), err, keptAgreements)
		}
		if n, err := lastAgreement(t.Context(), newStore(b), "job-a"); n != keptAgreements+3 || err != nil {
			t.Errorf("the last agreement is %d, %v, want %d", n, err, keptAgreements+3)
		}
	})
}

// No node proceeds past an unreadable record, because it might start from another step than the
// others.
func TestUnreadableAgreementEndsRestore(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := mem.New()
		savedGang(t, b, 2, podsOf)
		text, err := json.Marshal(group.Header{APIVersion: apiVersion, Kind: "RestoreAgreement", Requires: []string{"later"}})
		if err != nil {
			t.Fatal(err)
		}
		b.Put(group.AgreementsPrefix("job-a")+"000001.json", text)
		if _, err := restoreOn(t, b, 0); backends.KindOf(err) != backends.Unsupported || !strings.Contains(err.Error(), "--alone") {
			t.Errorf("got %v, want kind unsupported and what to do", err)
		}
		wantRestored(t, b, 0, 1, func(c *RestoreConfig) { c.Among = Among{} })
	})
}
