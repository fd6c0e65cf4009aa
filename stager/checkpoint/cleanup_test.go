package checkpoint

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/mem"
)

// tardy is a store that works slowly.
type tardy struct {
	*mem.Backend
	page   time.Duration // of a listing
	remove time.Duration
	began  chan struct{} // receives once something is being removed
}

const tardyPage = 10 // objects

func newTardy(page, remove time.Duration) *tardy {
	return &tardy{mem.New(), page, remove, make(chan struct{}, 1)}
}

func (b *tardy) List(ctx context.Context, prefix string) iter.Seq2[backends.Object, error] {
	return func(yield func(backends.Object, error) bool) {
		n := 0
		for obj, err := range b.Backend.List(ctx, prefix) {
			if n%tardyPage == 0 && pause(ctx, b.page) != nil {
				yield(backends.Object{}, ctx.Err())
				return
			}
			n++
			if !yield(obj, err) {
				return
			}
		}
	}
}

func (b *tardy) Delete(ctx context.Context, key string) error {
	if strings.HasPrefix(key, "step-") {
		select {
		case b.began <- struct{}{}:
		default:
		}
	}
	if pause(ctx, b.remove) != nil {
		return ctx.Err()
	}
	return b.Backend.Delete(ctx, key)
}

func (b *tardy) Sweep(ctx context.Context, _ string, _ func(backends.Orphan) bool) error {
	return pause(ctx, b.page)
}

// killedUpload creates the objects of an upload of dir that was killed.
func killedUpload(t *testing.T, b *mem.Backend, dir string, objects int) {
	t.Helper()
	const id = "0123456789abcdef"
	write(t, dir, map[string]string{uploadsName: id + "\n"})
	for i := range objects {
		b.Put(fmt.Sprintf("%s/%s/%s/%05d", stepDir(1, 0), dataDir, id, i), nil)
	}
}

func saveNow(t *testing.T, u *Uploader, step int64) {
	t.Helper()
	name := fmt.Sprint("step-", step)
	write(t, filepath.Join(u.cfg.Dir, name), model(name))
	if _, err := u.Commit(t.Context(), CommitRequest{Path: name, Step: -1}); err != nil {
		t.Fatal(err)
	}
}

// A store that listed or deleted slowly delayed the next checkpoint until all older steps and the
// data of killed uploads were removed. A drain with less time lost it.
func TestSlowCleanupDoesNotDelayCheckpoint(t *testing.T) {
	for _, tt := range []struct {
		name         string
		page, remove time.Duration
		objects      int
	}{
		{"listings of 10 s a page", 10 * time.Second, time.Second, 200},
		{"deletions of 10 s", time.Second, 10 * time.Second, 100},
		{"10,000 deletions", time.Millisecond, 100 * time.Millisecond, 10_000},
	} {
		for _, connections := range []int{0, 1} {
			for _, drained := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, connections %d, drained %t", tt.name, connections, drained), func(t *testing.T) {
					inBubble(t, func(t *testing.T) {
						b, dir := newTardy(tt.page, tt.remove), t.TempDir()
						killedUpload(t, b.Backend, dir, tt.objects)
						u := newUploader(t, dir, b, func(c *Config) {
							c.Keep.Last = 1
							c.Store = backends.NewStore(b, "mem://test", backends.Options{Connections: connections})
						})
						saveNow(t, u, 2)
						run, stop := context.WithCancel(t.Context())
						var running sync.WaitGroup
						running.Go(func() { u.run(run, nil) })
						if err := u.Wait(t.Context(), 2); err != nil {
							t.Fatal(err)
						}
						<-b.began
						// The sender itself lists four times, one page each.
						within, cancel := context.WithTimeout(t.Context(), 2*b.remove+4*b.page+5*time.Second)
						defer cancel()
						began := time.Now()
						saveNow(t, u, 3)
						var err error
						if drained {
							err = u.Drain(within, Exit{})
						} else {
							err = u.Wait(within, 3)
						}
						if got, want := commits(b.Backend), stepDir(3, 0); err != nil || !slices.Contains(got, want) {
							t.Errorf("got %v committed and %v after %v, want %s", got, err, time.Since(began), want)
						}
						if !drained {
							u.cleanup.wait(t.Context())
							if got := unreferenced(t, b.Backend); len(got) > 0 || !slices.Equal(commits(b.Backend), []string{stepDir(3, 0)}) {
								t.Errorf("got %v committed and %d other objects after the cleanup, want %s alone", commits(b.Backend), len(got), stepDir(3, 0))
							}
						}
						stop()
						running.Wait()
					})
				})
			}
		}
	}
}

// Drain waits for the cleanup, and for no more than half of its time. What is left is logged.
func TestDrainLimitsCleanup(t *testing.T) {
	for _, tt := range []struct {
		name   string
		remove time.Duration
		gone   bool
		most   time.Duration
		left   bool
	}{
		{"fast", 0, true, time.Second, false},
		{"slow", 10 * time.Second, true, 16 * time.Second, true},
		{"slow, and the trainer lives", 10 * time.Second, false, 16 * time.Second, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				b, dir := newTardy(0, tt.remove), t.TempDir()
				killedUpload(t, b.Backend, dir, 100)
				var log bytes.Buffer
				u := newUploader(t, dir, b, func(c *Config) {
					c.Keep.Last, c.Log = 1, slog.New(slog.NewTextHandler(&log, nil))
				})
				saveNow(t, u, 2)
				within, cancel := context.WithTimeout(t.Context(), 30*time.Second)
				defer cancel()
				began := time.Now()
				if err := u.Drain(within, Exit{Gone: tt.gone}); err != nil {
					t.Errorf("drain: %v", err)
				}
				if took := time.Since(began); took > tt.most {
					t.Errorf("the drain took %v, want at most %v", took, tt.most)
				}
				u.Close()
				if got := len(unreferenced(t, b.Backend)) > 0; got != tt.left {
					t.Errorf("objects left: got %t, want %t", got, tt.left)
				}
				if got := strings.Contains(log.String(), "older steps and data of killed uploads are not all removed"); got != tt.left {
					t.Errorf("the log names what is left: got %t, want %t\n%s", got, tt.left, log.String())
				}
			})
		})
	}
}

// A checkpoint that is complete while Drain waits for the cleanup is saved.
func TestDrainSavesCheckpointDuringCleanup(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b, dir := newTardy(0, 10*time.Second), t.TempDir()
		killedUpload(t, b.Backend, dir, 100)
		u := newUploader(t, dir, b, nil)
		saveNow(t, u, 2)
		drained := make(chan error, 1)
		within, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		go func() { drained <- u.Drain(within, Exit{}) }()
		<-b.began
		saveNow(t, u, 3)
		if err := <-drained; err != nil {
			t.Errorf("drain: %v", err)
		}
		committed(t, b.Backend, 2, 3)
	})
}

// A node of several did not send its part before the cleanup of an earlier step had ended.
func TestSlowCleanupDoesNotDelayNodes(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newTardy(0, 10*time.Minute)
		g := savedGang(t, b, 2, func(c *Config) { c.Keep.Last = 1 })
		g.save("2")
		g.waitFor(2)
		<-b.began
		began := time.Now()
		g.save("3")
		g.waitFor(3)
		if took := time.Since(began); took > 20*time.Second {
			t.Errorf("step 3 took %v beside a cleanup, want at most 20 s", took)
		}
		if got, want := commits(b.Backend), stepDir(1, 0); !slices.Contains(got, want) {
			t.Errorf("got %v committed, want %s among them: the cleanup was over", got, want)
		}
	})
}

// The cleanup removes a step that the trainer writes again. Its request must not wait for the upload
// that waits for it.
func TestCleanupDoesNotHoldStepWrittenAgain(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b, dir := newTardy(0, 3*time.Second), t.TempDir()
		u := newUploader(t, dir, b, func(c *Config) { c.Keep.Last = 1 })
		for _, step := range []int64{1, 2} {
			saveNow(t, u, step)
			if err := u.send(t.Context(), false); err != nil {
				t.Fatal(err)
			}
		}
		<-b.began // the COMMIT of step 1 is being removed
		write(t, filepath.Join(dir, "step-1"), map[string]string{"more": "again"})
		if _, err := u.Commit(t.Context(), CommitRequest{Path: "step-1", Step: -1}); err != nil {
			t.Fatal(err)
		}
		within, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		began := time.Now()
		if err := u.Drain(within, Exit{}); err != nil {
			t.Errorf("drain: %v", err)
		}
		if took := time.Since(began); took > 20*time.Second {
			t.Errorf("the drain took %v", took)
		}
		committed(t, b.Backend, 1, 2)
		if c, err := readCommit(t.Context(), newStore(b.Backend), stepDir(1, 0)); err != nil || len(c.Files) != 4 {
			t.Errorf("step 1 has %d files, %v, want the 4 of its last writing", len(c.Files), err)
		}
	})
}

// blocking is a store whose listings and removals wait.
type blocking struct {
	backends.Backend
	list, remove func(key string)
}

func (b blocking) List(ctx context.Context, prefix string) iter.Seq2[backends.Object, error] {
	b.list(prefix)
	return b.Backend.List(ctx, prefix)
}

func (b blocking) Delete(ctx context.Context, key string) error {
	b.remove(key)
	return b.Backend.Delete(ctx, key)
}

// A step is committed while the cleanup lists, and the process learns of its COMMIT while the cleanup
// removes another one. By all clocks the step is older than that of an earlier run. The cleanup must
// not take it for one of that run.
func TestCleanupSparesStepThatIsBeingCommitted(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b, dir := mem.New(), t.TempDir()
		ahead(t, b, 9)
		written, removing, sent := make(chan struct{}), make(chan struct{}), make(chan struct{})
		saved := 0
		sender := &hooked{Backend: b, onCreate: func(key string) {
			if key != latestKey {
				return
			}
			if saved++; saved == 3 { // after the COMMIT of step 3
				close(written)
				<-removing
			}
		}}
		u := newUploader(t, dir, sender, func(c *Config) { c.Keep.Last = 1 })
		u.cleanup.store = newStore(blocking{
			b, func(string) { <-written },
			func(key string) {
				if key == stepDir(7, 0)+"/"+commitKey {
					close(removing)
					<-sent
				}
			},
		})
		for _, step := range []int64{7, 5, 3} {
			saveNow(t, u, step)
			if err := u.send(t.Context(), false); err != nil {
				t.Fatal(err)
			}
		}
		close(sent)
		u.cleanup.wait(t.Context())
		committed(t, b, 3, 9)
	})
}

// ahead pushes a step whose clock is an hour ahead.
func ahead(t *testing.T, b *mem.Backend, step int64) {
	t.Helper()
	dir := t.TempDir()
	write(t, dir, model("ahead"))
	pushTo(t, b, step, dir)
	c, err := readCommit(t.Context(), newStore(b), stepDir(step, 0))
	if err != nil {
		t.Fatal(err)
	}
	c.Created, c.Completed = c.Created.Add(time.Hour), c.Created.Add(time.Hour)
	text, err := encode(&c)
	if err != nil {
		t.Fatal(err)
	}
	b.Put(stepDir(step, 0)+"/"+commitKey, text)
}

// gated is a store whose listings and sweeps wait.
type gated struct {
	*mem.Backend
	list, sweep func()
}

func (b *gated) List(ctx context.Context, prefix string) iter.Seq2[backends.Object, error] {
	b.list()
	return b.Backend.List(ctx, prefix)
}

func (b *gated) Sweep(context.Context, string, func(backends.Orphan) bool) error {
	b.sweep()
	return nil
}

// A step was written again and again. What the second writing replaced was spared by the cleanup,
// because the third was being saved, and nothing removed it when that had ended.
func TestCleanupRemovesAllThatWasReplaced(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b, dir := mem.New(), t.TempDir()
		u := newUploader(t, dir, b, nil)
		store := &gated{b, func() {}, func() {}}
		u.cleanup.store = newStore(store)
		again := func(name string) {
			t.Helper()
			write(t, filepath.Join(dir, "step-2"), map[string]string{name: "again"})
			if _, err := u.Commit(t.Context(), CommitRequest{Path: "step-2", Step: -1}); err != nil {
				t.Fatal(err)
			}
		}
		send := func() {
			t.Helper()
			if err := u.send(t.Context(), false); err != nil {
				t.Fatal(err)
			}
		}
		saveNow(t, u, 2)
		send()
		u.cleanup.wait(t.Context()) // from now on only what was replaced says that the upload is over
		held, swept, sent := make(chan struct{}), make(chan struct{}), make(chan struct{})
		store.list = func() { <-held }
		store.sweep = sync.OnceFunc(func() {
			close(swept)
			<-sent
		})
		again("second")
		send()
		again("third")
		close(held)
		<-swept
		send()
		close(sent)
		u.cleanup.wait(t.Context())
		committed(t, b, 2)
		if got := unreferenced(t, b); len(got) > 0 {
			t.Errorf("got %v, want nothing but the last writing", got)
		}
	})
}

// The cleanup listed an upload that was being sent. Until it came to it, the upload was committed,
// another step referred to its data, and the trainer wrote the first step again. The cleanup took the
// data for that of an upload which is over, and the other step was not whole.
func TestCleanupSparesUploadThatIsReplacedMeanwhile(t *testing.T) {
	for _, held := range []bool{false, true} {
		weaken.cleanHeld = held
		defer func() { weaken.cleanHeld = false }()
		inBubble(t, func(t *testing.T) {
			b, dir := mem.New(), t.TempDir()
			listed, removing, removed := make(chan struct{}), make(chan struct{}), make(chan struct{})
			begun := sync.OnceFunc(func() { close(removing) })
			uploaded := sync.OnceFunc(func() {
				close(listed)
				<-removing
			})
			sender := &hooked{Backend: b, onCreate: func(key string) {
				if key == stepDir(2, 0)+"/"+commitKey {
					uploaded()
				}
			}}
			u := newUploader(t, dir, sender, nil)
			save := func(step int64, base, w string) {
				t.Helper()
				name := fmt.Sprint("step-", step)
				write(t, filepath.Join(dir, name), map[string]string{"base": base, "w": w})
				if _, err := u.Commit(t.Context(), CommitRequest{Path: name, Step: -1}); err != nil {
					t.Fatal(err)
				}
			}
			send := func() {
				t.Helper()
				if err := u.send(t.Context(), false); err != nil {
					t.Fatal(err)
				}
			}
			save(5, "frozen", "five")
			send()
			u.cleanup.wait(t.Context())
			u.cleanup.store = newStore(blocking{
				b, func(string) { <-listed },
				func(key string) {
					if strings.HasPrefix(key, stepDir(5, 0)) {
						begun()
						<-removed
					}
				},
			})
			save(2, "thawed", "two")
			time.Sleep(time.Second)
			save(5, "frozen", "again") // sent first; it begins the cleanup
			send()
			save(3, "thawed", "three")
			send()
			save(2, "frozen", "again")
			send()
			close(removed)
			u.cleanup.wait(t.Context())
			if !held {
				committed(t, b, 2, 3, 5)
			} else if Verify(t.Context(), newStore(b), stepDir(3, 0), func(int64) {}) == nil {
				t.Error("without the protection, step 3 is whole: the test shows nothing")
			}
		})
	}
}
