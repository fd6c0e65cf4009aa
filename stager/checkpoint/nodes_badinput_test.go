package checkpoint

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/conformance"
	"github.com/stager-dev/stager/backends/mem"
	"github.com/stager-dev/stager/stager/checkpoint/group"
)

// logs collects the logs of Uploaders.
type logs struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// count returns the number of lines that contain a text.
func (l *logs) count(text string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.text.String()) {
		if strings.Contains(line, text) {
			n++
		}
	}
	return n
}

func (l *logs) into(c *Config) { c.Log = slog.New(slog.NewTextHandler(l, nil)) }

// drained drains an Uploader and returns the error.
func drained(t *testing.T, u *Uploader) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	return u.Drain(ctx, Exit{Success: true, Gone: true})
}

// Two daemons have the index of one node. The later one is the node. The earlier one commits
// nothing more and reports what it holds. What both nodes saved stays.
func TestDaemonsWithTheSameIndex(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := mem.New()
		g := savedGang(t, b, 2)
		old := g.us[0]
		g.dirs[0] = t.TempDir()
		g.start(0)
		time.Sleep(time.Minute)
		write(t, old.cfg.Dir+"/step-2", shardOf(0, "2 of the old one"))
		write(t, old.cfg.Dir+"/step-2", map[string]string{markerName: ""})
		g.save("2")
		g.waitFor(2)
		_, files := restoreNewest(t, b)
		equal(t, "step 2", files, together(2, "2"))
		if err := drained(t, old); err == nil || !strings.Contains(err.Error(), "a newer pod has replaced this node") {
			t.Errorf("the old daemon ended with %v, want that a newer pod took its place", err)
		}
	})
}

// Nodes with different counts save nothing together, and each reports the other's count.
func TestNodesThatCountDifferently(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := mem.New()
		g := &gang{t: t, b: b, job: "job-a", dirs: []string{t.TempDir(), t.TempDir()}, us: make([]*Uploader, 2), stop: make([]func(), 2)}
		g.startAs(0, 0, 2)
		g.startAs(1, 1, 3)
		time.Sleep(time.Minute)
		g.save("1")
		time.Sleep(time.Minute)
		if got := commits(b); len(got) != 0 {
			t.Errorf("got %v committed, want nothing", got)
		}
		if got, want := g.us[0].Status().Nodes, "node 1, which counts 3 nodes and not 2"; !strings.Contains(got, want) {
			t.Errorf("node 0 waits for %q, want %q", got, want)
		}
		if err := drained(t, g.us[1]); err == nil || !strings.Contains(err.Error(), "step 1") {
			t.Errorf("node 1 ended with %v, want that step 1 is not safe", err)
		}
		g.kill(1)
		g.start(1)
		time.Sleep(time.Minute)
		g.save("2")
		g.waitFor(2)
	})
}

// The identity of a job changes. The nodes continue when the leases of the former members expire.
// Committed steps stay, and uncommitted ones are not completed.
func TestJobIdentityThatChanges(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := mem.New()
		g := savedGang(t, b, 2)
		g.saveOn(0, g.dirs[0], "2")
		time.Sleep(time.Second)
		g.kill(0)
		g.kill(1)
		g.job = "job-b"
		g.start(0)
		g.start(1)
		time.Sleep(3 * time.Minute)
		if r, files := restoreNewest(t, b); r.Step != 1 {
			t.Errorf("restored step %d of %v, want 1", r.Step, files)
		}
		g.save("3")
		g.waitFor(3)
		_, files := restoreNewest(t, b)
		equal(t, "step 3", files, together(2, "3"))
	})
}

// A store without compare-and-swap is reported at the start.
func TestStoreWithoutConditionalCreateIsNamed(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b, said := mem.New(), new(logs)
		g := startGang(t, weak{b}, "job-a", 2, said.into)
		time.Sleep(time.Minute)
		if got := said.count("this store cannot compare and write a record in one step"); got != 2 {
			t.Errorf("got %d warnings of 2 nodes, want one of each", got)
		}
		g.save("1")
		g.waitFor(1)
	})
}

// weak is a store that ignores conditions.
type weak struct{ *mem.Backend }

func (w weak) Capabilities() backends.Capabilities {
	f := w.Backend.Capabilities()
	f.ConditionalCreate, f.Guard = false, backends.GuardNone
	return f
}

const memberKey0 = group.MembersPrefix + "000000.json"

// An unreadable node record is left unchanged and reported once. The node waits, saves nothing,
// and continues when somebody has removed the record.
func TestMemberRecordThatCannotBeRead(t *testing.T) {
	for name, text := range map[string]string{
		"cut short":       `{"apiVersion":"stager.dev/v1alpha1","kind":"Member","job":"job-a","ind`,
		"empty":           "",
		"of another kind": `{"apiVersion":"stager.dev/v1alpha1","kind":"View"}`,
		"impossible":      `{"apiVersion":"stager.dev/v1alpha1","kind":"Member","job":"job-a","index":7,"count":2,"boot":"b","beat":1}`,
		"later version":   `{"apiVersion":"stager.dev/v1alpha1","kind":"Member","requires":["more"],"job":"job-a","index":0,"count":2,"boot":"b","beat":1}`,
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				b, said := mem.New(), new(logs)
				b.Put(memberKey0, []byte(text))
				g := startGang(t, b, "job-a", 2, said.into)
				time.Sleep(time.Minute)
				g.save("1")
				time.Sleep(time.Minute)
				if got, _ := b.Get(memberKey0); string(got) != text {
					t.Errorf("the record is now %q, want it as it was", got)
				}
				if got := said.count(`msg="cannot read a record, leaving it unchanged" output=ckpt key=` + memberKey0); got != 1 {
					t.Errorf("it was named %d times, want once", got)
				}
				if err := drained(t, g.us[0]); err == nil || !strings.Contains(err.Error(), "step 1") {
					t.Errorf("node 0 ended with %v, want that step 1 is not safe", err)
				}
				if err := b.Delete(t.Context(), memberKey0); err != nil {
					t.Fatal(err)
				}
				g.waitFor(1)
				_, files := restoreNewest(t, b)
				equal(t, "step 1", files, together(2, "1"))
			})
		})
	}
}

// A forged record at a node's index fences the node. Committed steps stay.
func TestMemberRecordThatIsForged(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := mem.New()
		g := savedGang(t, b, 2)
		forged, err := json.Marshal(group.Member{
			Header: group.Header{APIVersion: apiVersion, Kind: "Member"}, Job: "job-a", Index: 0, Count: 2, Boot: "forged", Beat: 99,
		})
		if err != nil {
			t.Fatal(err)
		}
		b.Put(memberKey0, forged)
		time.Sleep(time.Minute)
		g.save("2")
		time.Sleep(time.Minute)
		if err := drained(t, g.us[0]); err == nil || !strings.Contains(err.Error(), "a newer pod has replaced this node") {
			t.Errorf("node 0 ended with %v, want that a newer pod took its place", err)
		}
		if r, files := restoreNewest(t, b); r.Step != 1 {
			t.Errorf("restored step %d of %v, want 1", r.Step, files)
		}
	})
}

// One node has no write permission at the destination. It reports so, the other node names it,
// and no step is committed without it.
func TestDestinationIsReadOnlyForOneNode(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b, faults := mem.New(), new(conformance.Faults)
		faults.Always(conformance.Create, conformance.Fail(backends.Permission))
		g := &gang{t: t, b: b, job: "job-a", dirs: []string{t.TempDir(), t.TempDir()}, us: make([]*Uploader, 2), stop: make([]func(), 2)}
		g.start(0)
		g.b = faults.Wrap(b)
		g.start(1)
		time.Sleep(time.Minute)
		g.save("1")
		time.Sleep(time.Minute)
		lastError := ""
		for range 20 { // each successful pass clears it
			if time.Sleep(time.Second / 4); lastError == "" {
				lastError = g.us[1].Status().LastError
			}
		}
		if !strings.Contains(lastError, "permission") {
			t.Errorf("node 1 has the error %q, want that it lacks the permission", lastError)
		}
		if got := g.us[0].Status().Nodes; !strings.Contains(got, "node 1") {
			t.Errorf("node 0 waits for %q, want node 1", got)
		}
		if got := commits(b); len(got) != 0 {
			t.Errorf("got %v committed, want nothing", got)
		}
		err := drained(t, g.us[1])
		var refused *backends.Error
		if err == nil || !strings.Contains(err.Error(), "step 1") {
			t.Errorf("node 1 ended with %v (%v), want that step 1 is not safe", err, errors.As(err, &refused))
		}
	})
}
