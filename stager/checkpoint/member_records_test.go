package checkpoint

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/mem"
	"github.com/stager-dev/stager/stager/checkpoint/group"
)

// These tests put records at the destination that this stager does not write: truncated, forged,
// of a later version, or with another clock.

// viewOf reads the current view.
func viewOf(t *testing.T, b *mem.Backend) group.View {
	t.Helper()
	text, _ := b.Get(group.ViewKey)
	view, err := group.DecodeView(text)
	if err != nil {
		t.Fatal(err)
	}
	return view
}

// forgePart writes a part of node 1 with a payload.
func forgePart(t *testing.T, b *mem.Backend, step int64, payload string) string {
	t.Helper()
	view := viewOf(t, b)
	p := group.Part{
		Header: group.Header{APIVersion: apiVersion, Kind: "Part"}, View: view.Digest, Save: 1, Step: step,
		Index: 1, Count: view.Count, Boot: view.Boots[1], Payload: json.RawMessage(payload),
	}
	text, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	key := group.PartKey(step, group.SaveID{View: view.Digest, Number: 1}, 1)
	b.Put(key, text)
	return key
}

// Regression: a COMMIT.json that failed its own validation was retried every two seconds forever,
// and no later step was saved.
func TestSaveWithoutValidCommitIsGivenUp(t *testing.T) {
	for _, tt := range []struct{ what, payload, want string }{
		{"a path that leads out", `{"data":"data/` + strings.Repeat("1", 16) + `","files":[{"path":"../x","size":1,"digest":"crc64nvme:0123456789abcdef"}]}`, `"../x"`},
		{"another kind of payload", `[1]`, "cannot unmarshal"},
	} {
		t.Run(tt.what, func(t *testing.T) {
			inBubble(t, func(t *testing.T) { testInvalidCommit(t, tt.payload, tt.want) })
		})
	}
}

func testInvalidCommit(t *testing.T, payload, want string) {
	b := mem.New()
	g := startGang(t, b, "job-a", 2)
	time.Sleep(time.Minute)
	g.kill(1)
	forged := forgePart(t, b, 1, payload)
	g.saveOn(0, g.dirs[0], "1")
	time.Sleep(time.Minute)
	f := g.us[0].Status().Failed
	if len(f) != 1 || f[0].Step != 1 || !strings.Contains(f[0].Reason, "its parts make no valid COMMIT.json: ") || !strings.Contains(f[0].Reason, want) {
		t.Fatalf("got failed %+v, want step 1 with %s", f, want)
	}
	data := slices.ContainsFunc(b.Keys(), func(key string) bool { return strings.HasSuffix(key, "/rank0.pt") })
	if _, there := b.Get(forged); !there || !data || len(commits(b)) > 0 {
		t.Errorf("the destination has %q, want all parts and data, and no COMMIT", b.Keys())
	}
	// The next step is saved, and Drain reports the one that is not.
	g.start(1)
	time.Sleep(time.Minute)
	g.save("2")
	g.waitFor(2)
	_, files := restoreNewest(t, b)
	equal(t, "step 2", files, together(2, "2"))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	err := g.us[0].Drain(ctx, Exit{Success: true, Gone: true})
	if !strings.Contains(fmt.Sprint(err), "is held in") || !strings.Contains(fmt.Sprint(err), "its parts make no valid COMMIT.json") {
		t.Errorf("the end: got %v, want that step 1 is held", err)
	}
}

// notes is a log that can be read while it is written.
type notes struct {
	mu   sync.Mutex // guards text
	text strings.Builder
}

func (n *notes) Write(p []byte) (int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.text.Write(p)
}

// lines returns the lines that contain all words.
func (n *notes) lines(words ...string) (lines []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for line := range strings.Lines(n.text.String()) {
		if !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(line, w) }) {
			lines = append(lines, line)
		}
	}
	return lines
}

const unreadableNote = "cannot read a record, leaving it unchanged"

// edited returns a record with one field replaced.
func edited(t *testing.T, text []byte, field string, value any) []byte {
	t.Helper()
	var rec map[string]any
	if err := json.Unmarshal(text, &rec); err != nil {
		t.Fatal(err)
	}
	rec[field] = value
	text, err := json.Marshal(rec)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// spoiled returns invalid variants of a record; field is one that its key repeats.
func spoiled(t *testing.T, good []byte, field string, value any) map[string][]byte {
	return map[string][]byte{
		"cut short":          good[:len(good)/2],
		"empty":              {},
		"another kind":       edited(t, good, "kind", "Other"),
		"a later version":    edited(t, good, "requires", []string{"what only a later version knows"}),
		"of another, forged": edited(t, good, field, value),
	}
}

// A record that a member needs and cannot read is reported once and never replaced or removed.
// Nothing is committed without it. When a person removes it, the job continues.
func TestUnreadableRecordsStayAsTheyAre(t *testing.T) {
	for _, rec := range []struct {
		key   string
		field string
		value any
	}{
		{"nodes/members/000001.json", "index", 0},
		{group.ViewKey, "view", strings.Repeat("0", 32)},
	} {
		for _, how := range []string{"cut short", "empty", "another kind", "a later version", "of another, forged"} {
			t.Run(rec.key+" "+how, func(t *testing.T) {
				inBubble(t, func(t *testing.T) { testUnreadable(t, rec.key, rec.field, rec.value, how) })
			})
		}
	}
}

func testUnreadable(t *testing.T, key, field string, value any, how string) {
	b, log := mem.New(), new(notes)
	g := startGang(t, b, "job-a", 2, func(c *Config) { c.Log = slog.New(slog.NewTextHandler(log, nil)) })
	time.Sleep(time.Minute)
	good, ok := b.Get(key)
	if !ok {
		t.Fatalf("there is no %s in %q", key, b.Keys())
	}
	bad := spoiled(t, good, field, value)[how]
	for n := range g.us {
		g.kill(n)
	}
	b.Put(key, bad)
	for n := range g.us {
		g.start(n)
	}
	time.Sleep(time.Minute)
	g.save("1")
	time.Sleep(2 * time.Minute)
	if now, _ := b.Get(key); !bytes.Equal(now, bad) {
		t.Errorf("the record became %q, want it as it was: %q", now, bad)
	}
	if got := commits(b); len(got) > 0 {
		t.Errorf("committed %q, want nothing", got)
	}
	lines := log.lines(unreadableNote, key, "reason=")
	if len(lines) < 1 || len(lines) > len(g.us) {
		t.Errorf("got %d lines, want 1 for each node that reads it:\n%s", len(lines), strings.Join(lines, ""))
	}
	if err := b.Delete(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Minute)
	g.waitFor(1)
	_, files := restoreNewest(t, b)
	equal(t, "step 1", files, together(2, "1"))
}

// Announcements and parts are created once, so an unreadable one belongs to a save that never
// completes. Regression: the nodes waited for such a part forever and saved no later step.
func TestUnreadableRecordOfSaveEndsThatSave(t *testing.T) {
	for _, what := range []string{"announcement", "part"} {
		for _, how := range []string{"cut short", "empty", "another kind", "a later version", "of another, forged"} {
			t.Run(what+" "+how, func(t *testing.T) {
				inBubble(t, func(t *testing.T) { testUnreadableOfSave(t, what, how) })
			})
		}
	}
}

func testUnreadableOfSave(t *testing.T, what, how string) {
	b, log := mem.New(), new(notes)
	g := startGang(t, b, "job-a", 2, func(c *Config) { c.Log = slog.New(slog.NewTextHandler(log, nil)) })
	time.Sleep(time.Minute)
	g.save("1")
	g.waitFor(1)
	view := viewOf(t, b).Digest
	from, to := fmt.Sprintf("%s%s/%08d.json", group.ViewsPrefix, view, 1), fmt.Sprintf("%s%s/%08d.json", group.ViewsPrefix, view, 2)
	if what == "part" {
		from, to = group.PartKey(1, group.SaveID{View: view, Number: 1}, 1), group.PartKey(2, group.SaveID{View: view, Number: 2}, 1)
	}
	good, _ := b.Get(from)
	good = edited(t, edited(t, good, "save", 2), "step", 2)
	bad := spoiled(t, good, "save", 9)[how]
	b.Put(to, bad)
	g.save("2")
	time.Sleep(time.Minute)
	g.save("3")
	g.waitFor(3)
	_, files := restoreNewest(t, b)
	equal(t, "step 3", files, together(2, "3"))
	if now, _ := b.Get(to); !bytes.Equal(now, bad) {
		t.Errorf("the record became %q, want it as it was: %q", now, bad)
	}
	if lines := log.lines(unreadableNote, to, "reason="); what == "announcement" && len(lines) != 2 || len(lines) > 2 {
		t.Errorf("got %d lines, want one for each node:\n%s", len(lines), strings.Join(lines, ""))
	}
	committed := slices.Contains(commits(b), "step-00000002")
	if what == "announcement" && !committed {
		t.Error("step 2 is not committed, want it announced under the next number")
	}
	if what == "part" && committed {
		t.Error("step 2 is committed, and a part of it cannot be read")
	}
	for n, u := range g.us {
		if f := u.Status().Failed; what == "part" && (len(f) != 1 || f[0].Step != 2 || !strings.Contains(f[0].Reason, "part of ")) {
			t.Errorf("node %d: got failed %+v, want step 2 and whose part cannot be read", n, f)
		}
	}
}

// A COMMIT of a later version is not replaced, whatever the conflict mode.
func TestCommitOfLaterVersionIsNotReplacedByNodes(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := mem.New()
		g := savedGang(t, b, 2, func(c *Config) { c.Conflict = ConflictOverwrite })
		good, _ := b.Get("step-00000001/" + commitKey)
		later := edited(t, edited(t, good, "step", 2), "requires", []string{"what only a later version knows"})
		b.Put("step-00000002/"+commitKey, later)
		g.save("2")
		time.Sleep(2 * time.Minute)
		if now, _ := b.Get("step-00000002/" + commitKey); !bytes.Equal(now, later) {
			t.Errorf("the COMMIT became %q, want it as it was", now)
		}
		if f := g.us[0].Status().Failed; len(f) != 1 || !strings.Contains(f[0].Reason, "has a COMMIT.json that cannot be read") {
			t.Errorf("got failed %+v, want that the step has a COMMIT.json that cannot be read", f)
		}
	})
}

// shifted is a store whose clock is off.
type shifted struct {
	backends.Backend
	by time.Duration
}

func (b shifted) List(ctx context.Context, prefix string) iter.Seq2[backends.Object, error] {
	return func(yield func(backends.Object, error) bool) {
		for obj, err := range b.Backend.List(ctx, prefix) {
			obj.ModTime = obj.ModTime.Add(b.by)
			if !yield(obj, err) {
				return
			}
		}
	}
}

func (b shifted) Stat(ctx context.Context, key string) (backends.Object, error) {
	obj, err := b.Backend.Stat(ctx, key)
	obj.ModTime = obj.ModTime.Add(b.by)
	return obj, err
}

// Whether another job is alive is decided by the counter in its record, on the observer's own
// clock. Times of records do not matter, nor does a store whose clock is an hour off.
func TestClocksAnHourOffDoNotMatter(t *testing.T) {
	for _, by := range []time.Duration{-time.Hour, time.Hour} {
		t.Run(by.String(), func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				b := mem.New()
				g := startGang(t, shifted{b, by}, "job-a", 2)
				time.Sleep(time.Minute)
				g.save("1")
				g.waitFor(1)
				other := startGang(t, shifted{b, -by}, "job-b", 2)
				for n, u := range other.us {
					var refused *RefusedError
					if err := u.Register(t.Context()); !errors.As(err, &refused) {
						t.Errorf("node %d of the second job: got %v, want that job-a is alive", n, err)
					}
				}
				for n := range g.us {
					g.kill(n)
				}
				next := startGang(t, shifted{b, -by}, "job-c", 2)
				for n, u := range next.us {
					if err := u.Register(t.Context()); err != nil {
						t.Errorf("node %d of the job after: got %v, want it registered", n, err)
					}
				}
				time.Sleep(time.Minute)
				next.save("2")
				next.waitFor(2)
				_, files := restoreNewest(t, b)
				equal(t, "step 2", files, together(2, "2"))
			})
		})
	}
}
