package checkpoint

import (
	"bytes"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/mem"
)

// hurry is an output whose trainer is faster than stager, and what stager said of it.
type hurry struct {
	t       *testing.T
	b       *mem.Backend
	dir     string
	cfg     Config
	log     bytes.Buffer
	metrics *Metrics
	u       *Uploader
}

func newHurry(t *testing.T, cfg Config) *hurry {
	t.Helper()
	h := &hurry{t: t, b: mem.New(), dir: t.TempDir(), cfg: cfg, metrics: NewMetrics(nil)}
	h.start(h.b)
	return h
}

// start starts a stager, after the end of the one before.
func (h *hurry) start(b backends.Backend) {
	h.t.Helper()
	h.stop()
	h.u = newUploader(h.t, h.dir, b, func(c *Config) {
		c.Keep, c.When, c.Metrics, c.Log = h.cfg.Keep, h.cfg.When, h.metrics, slog.New(slog.NewTextHandler(&h.log, nil))
	})
}

func (h *hurry) stop() {
	h.t.Helper()
	if h.u != nil {
		if err := h.u.Close(); err != nil {
			h.t.Fatal(err)
		}
	}
}

// appears creates files, and reports the first element of their names as the kernel does.
func (h *hurry) appears(name string, files map[string]string) {
	h.t.Helper()
	write(h.t, filepath.Join(h.dir, name), files)
	h.u.appears(name, true)
}

// marked creates a complete checkpoint.
func (h *hurry) marked(name string) {
	h.t.Helper()
	h.appears(name, map[string]string{"model.pt": zipped(h.t, name)})
	write(h.t, filepath.Join(h.dir, name), map[string]string{markerName: ""})
}

// spoil truncates or removes the files that stager holds.
func (h *hurry) spoil(pattern string, spoil func(name string) error) {
	h.t.Helper()
	held, err := filepath.Glob(filepath.Join(h.dir, snapshotsName, pattern, dataDir, "*"))
	if err != nil || len(held) == 0 {
		h.t.Fatalf("held %v (%v), want files", held, err)
	}
	for _, name := range held {
		if err := spoil(name); err != nil {
			h.t.Fatal(err)
		}
	}
}

var torn = map[string]string{"model.pt": "PK\x03\x04torn"}

// Each checkpoint that began and is not committed is named once: in the log, in the status and by a
// counter with the reason.
func TestMissedCheckpointIsNamedOnceWithItsReason(t *testing.T) {
	for name, c := range map[string]struct {
		cfg   Config
		do    func(h *hurry)
		label string // empty: nothing is missed
		why   string
	}{
		"removed before a scan": {do: func(h *hurry) {
			h.appears("step-1", torn)
			removeAll(h.t, h.dir, "step-1")
		}, label: missedRemoved, why: "before a scan found it"},
		"removed after a scan that began before it": {do: func(h *hurry) {
			h.appears("step-1", torn)
			h.u.vanished(nil, nil)
			removeAll(h.t, h.dir, "step-1")
		}, label: missedRemoved, why: "before a scan found it"},
		"removed after it was listed and before it was read": {do: func(h *hurry) {
			h.marked("step-0")
			h.appears("step-1", torn)
			link := h.u.snapshots.hardLink
			h.u.snapshots.hardLink = func(oldname, newname string) error {
				removeAll(h.t, h.dir, "step-1")
				return link(oldname, newname)
			}
			pass(h.t, h.u)
		}, label: missedRemoved, why: "before a scan found it"},
		"removed after it was held": {do: func(h *hurry) {
			h.marked("step-1")
			h.appears("step-2", torn)
			link := h.u.snapshots.hardLink
			h.u.snapshots.hardLink = func(oldname, newname string) error {
				err := link(oldname, newname)
				removeAll(h.t, h.dir, "step-1")
				return err
			}
			pass(h.t, h.u)
			h.u.snapshots.hardLink = link
			write(h.t, filepath.Join(h.dir, "step-2"), map[string]string{"model.pt": zipped(h.t, "2"), markerName: ""})
		}},
		// A save of Orbax was reported as removed: its temporary directory had appeared while a scan ran.
		"under its temporary name after a scan that began before it": {do: func(h *hurry) {
			h.appears("tmp-step-1", torn)
			h.u.vanished(nil, nil)
			if err := os.Rename(filepath.Join(h.dir, "tmp-step-1"), filepath.Join(h.dir, "step-1")); err != nil {
				h.t.Fatal(err)
			}
			h.u.departed("tmp-step-1")
			h.marked("step-1")
		}},
		"removed under its temporary name after a scan that began before it": {do: func(h *hurry) {
			h.appears("tmp-step-1", torn)
			h.u.vanished(nil, nil)
			removeAll(h.t, h.dir, "tmp-step-1")
		}, label: missedRemoved, why: "before a scan found it"},
		"removed before it is complete": {do: func(h *hurry) {
			h.appears("step-1", torn)
			pass(h.t, h.u)
			removeAll(h.t, h.dir, "step-1")
		}, label: missedRemoved, why: "model.pt"},
		"removed under its temporary name": {do: func(h *hurry) {
			h.appears("tmp-step-1", torn)
			pass(h.t, h.u)
			removeAll(h.t, h.dir, "tmp-step-1")
		}, label: missedRemoved, why: "tmp-step-1"},
		"a file that is removed under its temporary name": {do: func(h *hurry) {
			write(h.t, h.dir, map[string]string{"step-1.pt.tmp": "x"})
			h.u.appears("step-1.pt.tmp", false)
			pass(h.t, h.u)
			removeAll(h.t, h.dir, "step-1.pt.tmp")
		}, label: missedRemoved, why: "step-1.pt.tmp"},
		"renamed to another name": {do: func(h *hurry) {
			h.appears("tmp-step-1", torn)
			pass(h.t, h.u)
			if err := os.Rename(filepath.Join(h.dir, "tmp-step-1"), filepath.Join(h.dir, "elsewhere")); err != nil {
				h.t.Fatal(err)
			}
			h.u.departed("tmp-step-1")
		}},
		"superseded": {cfg: Config{Keep: Keep{Last: 1}, When: When{Exit: true}}, do: func(h *hurry) {
			for _, name := range []string{"step-1", "step-2"} {
				h.marked(name)
				pass(h.t, h.u)
				time.Sleep(time.Second)
			}
		}, label: missedSuperseded, why: "newer checkpoints were complete"},
		"held by an earlier process, incomplete, and damaged": {do: func(h *hurry) {
			h.appears("step-1", torn)
			pass(h.t, h.u)
			h.spoil(earlyPrefix+"*", os.Remove)
			removeAll(h.t, h.dir, "step-1")
			h.start(h.b)
		}, label: missedUnusable, why: "it holds no file"},
		"held by an earlier process, complete, and damaged": {cfg: Config{When: When{Exit: true}}, do: func(h *hurry) {
			h.marked("step-1")
			pass(h.t, h.u)
			h.spoil("*", func(name string) error { return os.Truncate(name, 1) })
			removeAll(h.t, h.dir, "step-1")
			h.start(h.b)
		}, label: missedUnusable, why: "it changed"},
		"saved, then removed": {do: func(h *hurry) {
			h.marked("step-1")
			pass(h.t, h.u)
			removeAll(h.t, h.dir, "step-1")
		}},
		"written under a temporary name, renamed, saved and removed": {do: func(h *hurry) {
			h.appears("tmp-step-1", map[string]string{"model.pt": zipped(h.t, "1")})
			pass(h.t, h.u)
			if err := os.Rename(filepath.Join(h.dir, "tmp-step-1"), filepath.Join(h.dir, "step-1")); err != nil {
				h.t.Fatal(err)
			}
			h.u.appears("step-1", true)
			pass(h.t, h.u)
			removeAll(h.t, h.dir, "step-1")
		}},
		"no checkpoint": {do: func(h *hurry) {
			for _, name := range []string{".step-1.pt", "notes.txt", "log-1"} {
				write(h.t, h.dir, map[string]string{name: "x"})
				h.u.appears(name, false)
				removeAll(h.t, h.dir, name)
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				h := newHurry(t, c.cfg)
				c.do(h)
				for range 3 {
					settled(t, h.u)
				}
				want := 0
				if c.label != "" {
					want = 1
				}
				missed := h.u.Status().Missed
				if len(missed) != want || want == 1 && (strings.TrimSuffix(missed[0].Name, ".pt") != "step-1" || !strings.Contains(missed[0].Reason, c.why)) {
					t.Errorf("missed %v, want %d of step-1 with %q", missed, want, c.why)
				}
				for _, label := range []string{missedRemoved, missedSuperseded, missedUnusable} {
					n := 0
					if label == c.label {
						n = 1
					}
					if got := testutil.ToFloat64(h.metrics.missed.WithLabelValues("ckpt", label)); got != float64(n) {
						t.Errorf("counted %v as %s, want %d", got, label, n)
					}
				}
				if got := len(notSaved.FindAllString(h.log.String(), -1)); got != want {
					t.Errorf("the log names %d checkpoints, want %d:\n%s", got, want, h.log.String())
				}
			})
		})
	}
}

// notSaved matches the log lines about checkpoints that will not be committed, and their names.
var notSaved = regexp.MustCompile(`(?m)msg="(?:a checkpoint was removed before it was complete|newer checkpoints are complete|a checkpoint is not saved: its files|not saved, because).*?(?:checkpoint|name)=(?:tmp-)?(step-[0-9]+)`)

// Of a trainer that saves faster than stager scans, breaks off, keeps two and removes the others at
// any moment, each step that stager saw is committed, or named once.
func TestUploaderAccountsForEachStep(t *testing.T) {
	saved, named := 0, 0
	for seed := range uint64(5) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				random := rand.New(rand.NewPCG(seed, 1))
				h := newHurry(t, Config{Keep: Keep{Last: random.IntN(3)}})
				began := make(map[string]bool)
				const steps = 40
				for step := 1; step <= steps; step++ {
					h.hurriedStep(random, step)
					began[fmt.Sprintf("step-%d", step)] = true
				}
				if err := h.u.Drain(t.Context(), Exit{}); err != nil {
					t.Errorf("drain: %v", err)
				}
				h.accountFor(began, &saved, &named)
			})
		})
	}
	if saved < 20 || named < 20 {
		t.Errorf("%d steps were committed and %d named, want many of both", saved, named)
	}
}

// hurriedStep writes a step, removes an older one, and scans, sends or restarts now and then.
func (h *hurry) hurriedStep(random *rand.Rand, step int) {
	h.t.Helper()
	name := fmt.Sprintf("step-%d", step)
	at, scan := name, func() {
		switch random.IntN(6) {
		case 0:
			pass(h.t, h.u)
		case 1:
			if err := h.u.scan(false); err != nil {
				h.t.Fatal(err)
			}
		case 2:
			time.Sleep(time.Second)
		case 3:
			if err := h.u.scan(false); err != nil { // so that the next process finds what this one saw
				h.t.Fatal(err)
			}
			h.start(h.b)
			pass(h.t, h.u)
		}
	}
	if random.IntN(4) == 0 {
		at = "tmp-" + name
	}
	h.appears(at, map[string]string{"a.pt": zipped(h.t, name)})
	scan()
	if random.IntN(4) > 0 { // otherwise it breaks off
		write(h.t, filepath.Join(h.dir, at), map[string]string{"b.pt": zipped(h.t, name)})
		scan()
		if at != name {
			if err := os.Rename(filepath.Join(h.dir, at), filepath.Join(h.dir, name)); err != nil {
				h.t.Fatal(err)
			}
			h.u.departed(at)
			h.u.appears(name, true)
		}
	}
	scan()
	for _, old := range []string{"", "tmp-"} {
		removeAll(h.t, h.dir, fmt.Sprintf("%sstep-%d", old, step-random.IntN(3)))
	}
	removeAll(h.t, h.dir, fmt.Sprintf("step-%d", step-2))
	removeAll(h.t, h.dir, fmt.Sprintf("tmp-step-%d", step-2))
	scan()
}

// accountFor requires that each step is committed or named once, and not both, and counts them.
func (h *hurry) accountFor(began map[string]bool, saved, named *int) {
	h.t.Helper()
	said := make(map[string]int)
	for _, m := range notSaved.FindAllStringSubmatch(h.log.String(), -1) {
		said[m[1]]++
	}
	safe := regexp.MustCompile(`msg="a checkpoint is (?:safe|saved, provisional)".* step=([0-9]+)`).FindAllStringSubmatch(h.log.String(), -1)
	for name := range began {
		committed := 0
		if slices.ContainsFunc(safe, func(m []string) bool { return "step-"+m[1] == name }) {
			committed = 1
		}
		*saved, *named = *saved+committed, *named+said[name]
		if said[name]+committed != 1 {
			h.t.Errorf("%s: committed %d times, named %d times, want one of both", name, committed, said[name])
		}
	}
	if h.t.Failed() {
		h.t.Log(h.log.String())
	}
}
