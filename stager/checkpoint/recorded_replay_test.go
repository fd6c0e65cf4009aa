package checkpoint

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stager-dev/stager/backends/mem"
)

// tally holds the counts of the replays of a recording.
type tally struct {
	boundaries, torn, provisional, missed int
	seconds                               float64 // the longest time from completion to COMMIT
	evidence                              map[string]bool
	words                                 []string // the evidence of each mark
}

// replay replays a recording for an Uploader.
type replay struct {
	t *testing.T
	*recording
	b      *mem.Backend
	dir    string
	u      *Uploader
	w      *writer
	states map[string]bool // complete states, in canonical form
	known  map[string]bool // texts of COMMITs that were checked
	tally  *tally
}

func newReplay(t *testing.T, r *recording, count *tally) *replay {
	p := &replay{t: t, recording: r, b: mem.New(), dir: t.TempDir(), states: make(map[string]bool), known: make(map[string]bool), tally: count}
	p.w = newWriter(t, p.dir)
	t.Cleanup(p.w.kill)
	info, err := os.Stat(p.dir)
	if err != nil {
		t.Fatal(err)
	}
	p.w.clock = info.ModTime()
	for _, files := range r.truth {
		p.states[canonical(files)] = true
	}
	p.u = newUploader(t, p.dir, p.b, quietly)
	return p
}

func quietly(c *Config) { c.Log = nil }

// judge counts the incomplete states that are committed. It fails the test if one is final.
func (p *replay) judge(i int) {
	p.t.Helper()
	for _, c := range committedIn(p.t, p.b, p.known) {
		p.known[c.text] = true
		switch whole := p.states[canonical(c.files)]; {
		case whole:
		case c.Provisional:
			p.tally.provisional++
		default:
			p.tally.torn++
			p.t.Errorf("%s: at operation %d (%s %s) %s is final by %q and torn: %q", p.name, i, p.ops[i].Op, p.ops[i].Path, c.dir, c.Evidence, slices.Sorted(maps.Keys(c.files)))
		}
	}
}

// has reports whether a complete state is committed.
func (p *replay) has(files map[string]string) (c savedStep, ok bool) {
	p.t.Helper()
	want := canonical(files)
	for _, c := range committedIn(p.t, p.b, nil) {
		if canonical(c.files) == want {
			return c, true
		}
	}
	return c, false
}

// outlast waits longer than any timeout.
func (p *replay) outlast() {
	p.t.Helper()
	settled(p.t, p.u)
	time.Sleep(time.Hour)
	settled(p.t, p.u)
}

// mode is the event at each boundary of a replay.
type mode struct {
	name string
	at   func(*replay)
}

var modes = []mode{
	{"a pause longer than all timeouts", (*replay).outlast},
	{"a kill of the writer", func(p *replay) { p.w.kill(); p.outlast() }},
	{"a kill of stager", func(p *replay) { // and of the writer at the end of a step
		if err := p.u.Close(); err != nil {
			p.t.Fatal(err)
		}
		p.u = newUploader(p.t, p.dir, p.b, quietly)
		p.outlast()
	}},
}

// At every boundary of every recording there is a pause longer than all timeouts, with the files
// open or their writer killed, or stager restarts. No incomplete state is ever final, and every
// complete one is committed. Then the library writes without a pause, and the test measures the
// seconds from the completion of a step to its COMMIT.
func TestReplayOfRecordingsAtEveryBoundary(t *testing.T) {
	t.Parallel()
	t.Logf("%-34s %10s %5s %11s %6s %8s  %s", "recording", "boundaries", "torn", "provisional", "missed", "seconds", "evidence")
	for _, r := range chosen(append(recordings(t), described(t)...)) {
		count := &tally{evidence: make(map[string]bool)}
		for _, m := range modes {
			t.Run(r.name+"/"+m.name, func(t *testing.T) {
				inBubble(t, func(t *testing.T) { replayWith(newReplay(t, r, count), m) })
			})
		}
		t.Run(r.name+"/seconds", func(t *testing.T) {
			inBubble(t, func(t *testing.T) { measure(newReplay(t, r, count)) })
		})
		t.Run(r.name+"/removed at once", func(t *testing.T) {
			inBubble(t, func(t *testing.T) { removeAtOnce(newReplay(t, r, count)) })
		})
		t.Logf("%-34s %10d %5d %11d %6d %8.2f  %s", r.name, count.boundaries, count.torn, count.provisional, count.missed, count.seconds,
			strings.Join(slices.Sorted(maps.Keys(count.evidence)), ", "))
	}
}

func replayWith(p *replay, m mode) {
	for i, o := range p.ops {
		p.w.do(o)
		notify(p.u, o)
		if o.Op == "mark" {
			p.w.kill()
		}
		m.at(p)
		p.tally.boundaries++
		p.judge(i)
		if files := p.truth[i]; o.Op == "mark" {
			if _, ok := p.has(files); !ok {
				p.tally.missed++
				p.t.Errorf("%s: %s is complete at operation %d and not committed; waiting %v, failed %v", p.name, o.Path, i, p.u.Status().Waiting, p.u.Status().Failed)
			}
		}
	}
	if failed := p.u.Status().Failed; len(failed) > 0 {
		p.t.Errorf("%s: failed %v", p.name, failed)
	}
}

// measure measures the seconds from each completion to its COMMIT.
func measure(p *replay) {
	for i, o := range p.ops {
		p.w.do(o)
		notify(p.u, o)
		if o.Op != "mark" {
			time.Sleep(50 * time.Millisecond)
			pass(p.t, p.u)
			p.judge(i)
			continue
		}
		began := time.Now()
		for {
			pass(p.t, p.u)
			p.judge(i)
			took := time.Since(began)
			c, ok := p.has(p.truth[i])
			limit := 2 * time.Second
			if ok && c.Provisional {
				limit += p.u.cfg.QuietPeriod
			}
			if !ok && took <= 2*time.Second+p.u.cfg.QuietPeriod {
				time.Sleep(time.Second / 8)
				continue
			}
			p.tally.seconds = max(p.tally.seconds, took.Seconds())
			p.tally.evidence[c.Evidence], p.tally.words = true, append(p.tally.words, c.Evidence)
			if !ok || took > limit {
				p.t.Errorf("%s: %s was committed %v, %v after its completion by %q, want at most %v; waiting %v", p.name, o.Path, ok, took, c.Evidence, limit, p.u.Status().Waiting)
			}
			break
		}
	}
}

// removeAtOnce removes each checkpoint file by file as soon as the library reports it complete,
// stager has scanned once, and a later one has begun. It scans after each removal. All
// checkpoints are saved from their snapshots.
func removeAtOnce(p *replay) {
	p.w.lax = true
	for i, o := range p.ops {
		p.w.do(o)
		notify(p.u, o)
		pass(p.t, p.u)
		if o.Op != "mark" {
			p.judge(i)
			continue
		}
		p.w.kill()
		if unnumberedName(o.Path) {
			continue // it is overwritten, and not removed
		}
		p.w.begin("later-999999999999999", "weights")
		p.remove(o.Path, func() { pass(p.t, p.u); p.judge(i) })
	}
	time.Sleep(time.Minute)
	pass(p.t, p.u)
	p.judge(len(p.ops) - 1)
	for i, o := range p.ops {
		if o.Op != "mark" || unnumberedName(o.Path) {
			continue
		}
		if _, ok := p.has(p.truth[i]); !ok {
			p.tally.missed++
			p.t.Errorf("%s: %s was removed when it was complete and is not committed; missed %v", p.name, o.Path, p.u.Status().Missed)
		}
	}
}

func unnumberedName(name string) bool {
	_, dir := stepOf(name, true)
	_, file := stepOf(name, false)
	return !dir && !file
}

// remove removes a checkpoint file by file, in an order derived from its name.
func (p *replay) remove(name string, each func()) {
	p.t.Helper()
	var paths []string
	for _, q := range slices.Sorted(maps.Keys(checkpointAt(p.t, p.dir, name))) {
		at := filepath.Join(name, q)
		if info, err := os.Lstat(filepath.Join(p.dir, name)); err != nil || !info.IsDir() {
			at = filepath.Join(filepath.Dir(name), q)
		}
		paths = append(paths, at)
	}
	random := rand.New(rand.NewPCG(1, uint64(len(name))))
	random.Shuffle(len(paths), func(i, j int) { paths[i], paths[j] = paths[j], paths[i] })
	for _, q := range paths {
		if err := os.Remove(filepath.Join(p.dir, q)); err != nil {
			p.t.Fatal(fmt.Errorf("%s: %w", p.name, err))
		}
		p.w.stamp(path.Dir(q))
		each()
	}
	removeAll(p.t, p.dir, name)
	each()
}
