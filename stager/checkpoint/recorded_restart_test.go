package checkpoint

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stager-dev/stager/backends/mem"
)

// pruned replays a recording for a trainer that keeps one checkpoint. Each checkpoint is removed
// file by file as soon as it is complete and a later one has begun. at is called at each boundary
// between two operations of the library or of the removal, with its number.
type pruned struct {
	*replay
	at       func(boundary int)
	away     bool // no stager runs
	boundary int
	owed     map[int]bool // marks at which a stager scanned before anything was removed
}

func (p *pruned) step(i int) {
	p.t.Helper()
	if !p.away {
		pass(p.t, p.u)
		p.judge(i)
	}
	p.at(p.boundary)
	p.boundary++
}

func (p *pruned) stop() {
	p.t.Helper()
	if err := p.u.Close(); err != nil {
		p.t.Fatal(err)
	}
	p.away = true
}

func (p *pruned) start() {
	p.t.Helper()
	p.u, p.away = newUploader(p.t, p.dir, p.b, quietly), false
}

// runPart replays the operations of one checkpoint. Nothing was saved before.
func (p *pruned) runPart(part [2]int) {
	p.t.Helper()
	p.w.lax = true
	for _, o := range p.ops[:part[0]] {
		if p.w.do(o); o.Op == "mark" {
			if p.w.kill(); !unnumberedName(o.Path) {
				p.remove(o.Path, func() {})
			}
		}
	}
	p.run(part[0], part[1]+1)
}

func (p *pruned) run(from, to int) {
	p.t.Helper()
	p.w.lax, p.owed = true, make(map[int]bool)
	for i := from; i < to; i++ {
		o := p.ops[i]
		p.w.do(o)
		if !p.away {
			notify(p.u, o)
		}
		if o.Op == "mark" {
			p.owed[i] = !p.away && !unnumberedName(o.Path)
			p.w.kill()
		}
		p.step(i)
		if o.Op != "mark" || unnumberedName(o.Path) {
			continue // a name without a number is overwritten, and not removed
		}
		p.w.begin("later-999999999999999", "weights")
		p.remove(o.Path, func() { p.step(i) })
		if p.away {
			p.start()
		}
	}
	if p.away {
		p.start()
	}
	time.Sleep(time.Minute)
	pass(p.t, p.u)
	p.judge(to - 1)
	for i, o := range p.ops {
		if _, ok := p.has(p.truth[i]); p.owed[i] && !ok {
			p.t.Errorf("%s: %s was complete before a stager, was removed and is not committed; missed %v, waiting %v", p.name, o.Path, p.u.Status().Missed, p.u.Status().Waiting)
		}
	}
}

// Snapshots of incomplete checkpoints survive a restart of stager. They were removed at the next
// start, so a checkpoint that the trainer had removed meanwhile was lost. Here stager restarts at
// every boundary. In other runs it is down from one boundary until a checkpoint is removed. No
// incomplete state is ever final, and each checkpoint that a stager saw complete is committed.
func TestReplayOfPruningWithRestartsLosesNothing(t *testing.T) {
	t.Parallel()
	for _, r := range chosen(append(recordings(t), described(t)...)) {
		t.Run(r.name+"/a restart at each", func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				p := &pruned{replay: newReplay(t, r, &tally{evidence: make(map[string]bool)})}
				p.at = func(int) { p.stop(); p.start() }
				p.run(0, len(p.ops))
			})
		})
		t.Run(r.name+"/away from each", func(t *testing.T) {
			tried, parts := 0, r.parts()
			if testing.Short() {
				parts = parts[len(parts)-1:] // the one with the most to prune
			}
			for _, part := range parts {
				for _, away := range awayFrom(part) {
					inBubble(t, func(t *testing.T) {
						p := &pruned{replay: newReplay(t, r, &tally{evidence: make(map[string]bool)})}
						p.at = func(boundary int) {
							if boundary == away {
								p.stop()
							}
						}
						p.runPart(part)
					})
					if tried++; t.Failed() {
						t.Fatalf("stager was away from boundary %d of the operations from %d to %d", away, part[0], part[1])
					}
				}
			}
			t.Logf("%s: %d boundaries", r.name, tried)
		})
	}
}

// parts returns the first and the last operation of each checkpoint of a recording.
func (r *recording) parts() (parts [][2]int) {
	first := 0
	for i, o := range r.ops {
		if o.Op == "mark" {
			parts = append(parts, [2]int{first, i})
			first = i + 1
		}
	}
	return parts
}

// awayFrom returns the boundaries of a part at which stager goes down: those of its last
// operations and of the removal, and some of those before, or all of them in long trials.
func awayFrom(part [2]int) (boundaries []int) {
	const always, some, removals = 1, 2, 2
	length := part[1] - part[0] + 1
	for boundary := range length + removals {
		if os.Getenv("STAGER_TRIAL") == "full" || boundary >= length-always || boundary%(1+length/some) == 0 {
			boundaries = append(boundaries, boundary)
		}
	}
	return boundaries
}

// Unusable early snapshots of an earlier process are removed without a message to the user.
// Usable ones are kept within the budget of this run.
func TestEarlyHoldsOfAnEarlierProcessAreReadWithCare(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(t *testing.T, dir string)
		cfg   func(*Config)
		want  int
	}{
		"as it was":        {func(*testing.T, string) {}, nil, 1},
		"without a record": {func(t *testing.T, dir string) { removeAll(t, dir, earlyName) }, nil, 0},
		"a torn record":    {func(t *testing.T, dir string) { write(t, dir, map[string]string{earlyName: `{"name":"st`}) }, nil, 0},
		"a record that leads out": {func(t *testing.T, dir string) {
			write(t, dir, map[string]string{earlyName: `{"name":"../../etc","step":1}`})
		}, nil, 0},
		"a record that is a link": {func(t *testing.T, dir string) {
			removeAll(t, dir, earlyName)
			if err := os.Symlink("/etc/hostname", filepath.Join(dir, earlyName)); err != nil {
				t.Fatal(err)
			}
		}, nil, 0},
		"no file":           {func(t *testing.T, dir string) { removeAll(t, dir, dataDir+"/model-00001-of-00002.bin") }, nil, 0},
		"no data":           {func(t *testing.T, dir string) { removeAll(t, dir, dataDir) }, nil, 0},
		"nothing to hold":   {func(*testing.T, string) {}, func(c *Config) { c.Hold = &Hold{} }, 0},
		"no more of a kind": {func(*testing.T, string) {}, func(c *Config) { c.Mode = ModeNone }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				b, dir := mem.New(), t.TempDir()
				u := newUploader(t, dir, b, quietly)
				write(t, filepath.Join(dir, "step-1"), map[string]string{"model-00001-of-00002.bin": "x"})
				pass(t, u)
				held := heldEarly(t, dir)
				if len(held) != 1 {
					t.Fatalf("held %v, want one", held)
				}
				if err := u.Close(); err != nil {
					t.Fatal(err)
				}
				c.spoil(t, held[0])
				u = newUploader(t, dir, b, func(cfg *Config) {
					quietly(cfg)
					if c.cfg != nil {
						c.cfg(cfg)
					}
				})
				if got := len(u.early); got != c.want {
					t.Errorf("%d are held on, want %d", got, c.want)
				}
				if left := heldEarly(t, dir); len(left) != c.want || c.want == 1 && !slices.Equal(left, held) {
					t.Errorf("left %v of %v, want %d", left, held, c.want)
				}
			})
		})
	}
}
