package fileshare_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/conformance"
	"github.com/stager-dev/stager/backends/internal/fileshare"
)

// failing makes the calls of a protocol, of which one fails.
type failing struct {
	calls
	script *script
}

// script says which call fails, and how.
type script struct {
	how string
	c   calls

	mu        sync.Mutex // guards the fields below
	at, fails int
}

// call makes a call unless it fails before it is made.
func (s *script) call(do func() error) error {
	s.mu.Lock()
	s.at++
	fails := s.at == s.fails
	s.mu.Unlock()
	if !fails {
		return do()
	}
	lost := &fileshare.LostError{Err: errors.New("the connection was cut")}
	switch s.how {
	case "refused":
		return fs.ErrPermission
	case "cut before":
		s.c.session.Swap(new(session)).lost.Store(true)
		return lost
	}
	if err := do(); err != nil {
		return err
	}
	s.c.session.Swap(new(session)).lost.Store(true)
	return lost
}

func (f failing) Create(ctx context.Context, name string) (file fileshare.TempFile, err error) {
	err = f.script.call(func() error {
		file, err = f.calls.Create(ctx, name)
		return err
	})
	return failingFile{file, f.script}, err
}

func (f failing) Mkdir(ctx context.Context, name string) error {
	return f.script.call(func() error { return f.calls.Mkdir(ctx, name) })
}

func (f failing) Stat(ctx context.Context, name string) (i fileshare.Info, err error) {
	err = f.script.call(func() error {
		i, err = f.calls.Stat(ctx, name)
		return err
	})
	return i, err
}

func (f failing) Publish(ctx context.Context, u *fileshare.Upload) error {
	return f.script.call(func() error { return f.calls.Publish(ctx, u) })
}

// failingFile makes the calls on a temporary file.
type failingFile struct {
	fileshare.TempFile
	script *script
}

func (f failingFile) WriteAt(ctx context.Context, p []byte, off int64) (n int, err error) {
	err = f.script.call(func() error {
		n, err = f.TempFile.WriteAt(ctx, p, off)
		return err
	})
	return n, err
}

func (f failingFile) Reopen(ctx context.Context) (file fileshare.TempFile, err error) {
	err = f.script.call(func() error {
		file, err = f.TempFile.Reopen(ctx)
		return err
	})
	return failingFile{file, f.script}, err
}

func (f failingFile) Finish(ctx context.Context) (i fileshare.Info, err error) {
	err = f.script.call(func() error {
		i, err = f.TempFile.Finish(ctx)
		return err
	})
	return i, err
}

func (f failingFile) Discard(ctx context.Context) error {
	return f.script.call(func() error { return f.TempFile.Discard(ctx) })
}

// small is an example with small parts.
type small struct{ *example }

const smallPart = 8 << 10

func (small) Capabilities() backends.Capabilities {
	return backends.Capabilities{AtomicReplace: true, ConditionalCreate: true, Parallelism: 4, PartSize: smallPart}
}

// A server may fail at each call of an upload: refuse it, or lose the connection before or after it.
func TestUploadsWithACallThatFails(t *testing.T) {
	for _, how := range []string{"refused", "cut before", "cut after"} {
		t.Run(how, func(t *testing.T) {
			conformance.FailingCalls(t, func(use func(conformance.TB, conformance.Scripted)) {
				dir := t.TempDir()
				synctest.Test(t, func(t *testing.T) {
					b, err := newExample(dir, nil)
					if err != nil {
						t.Fatal(err)
					}
					s := &script{how: how, c: b.calls}
					c := fileshare.Config{Open: b.calls.Open, ChunkSize: 4 << 10, Window: 4, PartSize: smallPart, SpreadParts: true}
					b.Share = fileshare.New(failing{b.calls, s}, c)
					store := backends.NewStore(small{b}, "example://test", backends.Options{RetryFor: time.Minute})
					use(t, conformance.Scripted{
						Store: store,
						FailAt: func(n int) {
							s.mu.Lock()
							defer s.mu.Unlock()
							s.at, s.fails = 0, n
						},
						Calls: func() int {
							s.mu.Lock()
							defer s.mu.Unlock()
							return s.at
						},
						Names: func() (names []string) {
							entries, _ := os.ReadDir(dir)
							for _, e := range entries {
								names = append(names, e.Name())
							}
							return names
						},
					})
					if err := store.Close(); err != nil {
						t.Error(err)
					}
					time.Sleep(time.Minute) // until what was abandoned ends
				})
			})
		})
	}
}

// vague does not say why a directory cannot be made, as SFTP. In the first moments, another writer has just made it, and
// removes it.
type vague struct {
	calls
	moments *int
}

var errVague = errors.New("failure")

func (v vague) Mkdir(ctx context.Context, dir string) error {
	if *v.moments--; *v.moments >= 0 {
		return errVague
	}
	return v.calls.Mkdir(ctx, dir)
}

// A directory that another writer made and a Delete removed at once failed the upload.
func TestDirThatWasThereForAMoment(t *testing.T) {
	for name, tt := range map[string]struct {
		moments int
		want    error
	}{"once": {1, nil}, "some times": {5, nil}, "no directory can be made": {1000, errVague}} {
		b, err := newExample(t.TempDir(), nil)
		if err != nil {
			t.Fatal(err)
		}
		b.Share = fileshare.New(vague{b.calls, &tt.moments}, fileshare.Config{Open: b.calls.Open, ChunkSize: 4 << 10, Window: 4, PartSize: smallPart})
		store := backends.NewStore(b, "example://test", backends.Options{RetryFor: time.Nanosecond})
		if _, err := store.PutBytes(t.Context(), "a/k", []byte("x"), backends.CreateOptions{}); !errors.Is(err, tt.want) {
			t.Errorf("%s: got %v, want %v", name, err, tt.want)
		}
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	}
}
