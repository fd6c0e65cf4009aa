package fileshare_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/conformance"
	"github.com/stager-dev/stager/backends/internal/fileshare"
)

// example is a whole Backend over a directory of this machine: a protocol to start from.
type example struct {
	*fileshare.Share
	calls calls
}

func newExample(dir string, budget fileshare.Budget) (*example, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	c := calls{root: root, session: new(atomic.Pointer[session])}
	c.session.Store(new(session))
	return &example{calls: c, Share: fileshare.New(c, fileshare.Config{Open: c.Open, ChunkSize: 128 << 10, Window: 4, Budget: budget, PartSize: 1 << 20, SpreadParts: true})}, nil
}

func (*example) Capabilities() backends.Capabilities {
	return backends.Capabilities{AtomicReplace: true, ConditionalCreate: true, Parallelism: 4, PartSize: 1 << 20}
}

// session stands for a connection.
type session struct{ lost atomic.Bool }

func (s *session) Err() error {
	if s.lost.Load() {
		return &fileshare.LostError{Err: errors.New("the server was restarted")}
	}
	return nil
}

// calls implements fileshare.Protocol.
type calls struct {
	root    *os.Root
	session *atomic.Pointer[session] // the current one
}

func (calls) CheckKey(op, key string) error               { return fileshare.CheckKey(op, key) }
func (calls) Reserved(name string) bool                   { return fileshare.Reserved(name) }
func (calls) Unreachable(name string) string              { return fileshare.Unreachable(name) }
func (calls) Same(a, b backends.Version) bool             { return a == b }
func (c calls) Close() error                              { return c.root.Close() }
func (c calls) Mkdir(_ context.Context, dir string) error { return c.root.Mkdir(dir, 0o755) }

func (calls) Version(i fileshare.Info) backends.Version {
	return backends.Version(fmt.Sprintf("%x-%x-%x", i.Size, i.ModTime.UnixNano(), i.ID))
}

func (calls) Classify(op, key string, err error) error {
	var done *backends.Error
	var local *backends.LocalError
	if fileshare.IsLost(err) {
		return &backends.Error{Op: op, Key: key, Kind: backends.Unavailable, Err: err}
	}
	if err == nil || errors.As(err, &done) || errors.As(err, &local) {
		return err
	}
	return &backends.Error{Op: op, Key: key, Kind: backends.KindOf(err), Err: err}
}

func (c calls) Missing(op, key string, err error) error {
	if errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.ENAMETOOLONG) {
		return backends.Errorf(backends.NotExist, op, key, "there is no such file")
	}
	return c.Classify(op, key, err)
}

func (c calls) Locate(ctx context.Context, dir string) (fileshare.Place, error) {
	info, err := c.Stat(ctx, path.Clean(dir))
	return fileshare.Place{Path: dir, At: at(info)}, err
}

// at identifies a directory by its inode.
func at(i fileshare.Info) string { return fmt.Sprint(i.ID) }

func (c calls) ReadDir(ctx context.Context, dir fileshare.Place, wanted func(string) bool) (entries []fileshare.Entry, err error) {
	f, err := c.root.Open(path.Clean(dir.Path))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	all, err := f.Readdir(-1)
	for _, info := range all {
		if wanted(info.Name()) {
			i := attributes(info)
			entries = append(entries, fileshare.Entry{Name: info.Name(), Info: i, At: at(i)})
		}
	}
	return entries, err
}

func (c calls) Follow(ctx context.Context, key string, e fileshare.Entry) (_ fileshare.Entry, err error) {
	e.Info, err = c.Stat(ctx, key)
	e.At = at(e.Info)
	return e, err
}

func (c calls) RemoveOrphan(ctx context.Context, key string, _ fileshare.Entry) error {
	return c.Remove(ctx, key)
}

func (c calls) Prune(_ context.Context, dir fileshare.Place) {
	fileshare.Prune(dir.Path, "", c.root.Remove)
}

func attributes(info fs.FileInfo) fileshare.Info {
	return fileshare.Info{Type: info.Mode().Type(), Size: info.Size(), ModTime: info.ModTime(), ID: info.Sys().(*syscall.Stat_t).Ino}
}

func (c calls) Stat(_ context.Context, name string) (fileshare.Info, error) {
	info, err := c.root.Stat(name)
	if err != nil {
		return fileshare.Info{}, err
	}
	return attributes(info), nil
}

func (c calls) open(name string, flag int) (*file, error) {
	f, err := c.root.OpenFile(name, flag, 0o644)
	if err != nil {
		return nil, err
	}
	return &file{File: f, session: c.session.Load(), calls: c, name: name}, nil
}

func (c calls) Open(_ context.Context, obj backends.Object, _ bool) (fileshare.File, error) {
	return c.open(obj.Key, os.O_RDONLY)
}

func (c calls) Create(_ context.Context, name string) (fileshare.TempFile, error) {
	return c.open(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL)
}

func (c calls) Delete(_ context.Context, key string) error {
	if info, err := c.root.Stat(key); err == nil && info.IsDir() {
		return nil
	}
	return c.root.Remove(key)
}

func (c calls) Remove(_ context.Context, name string) error {
	if err := c.root.Remove(name); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func (c calls) Publish(ctx context.Context, u *fileshare.Upload) error {
	rename := func(context.Context) error { return c.root.Rename(u.Temp, u.Key) }
	switch {
	case u.Opts.IfVersion != "":
		return u.SwapUnclaimed(ctx, rename)
	case u.Opts.IfAbsent:
		if err := c.root.Link(u.Temp, u.Key); err != nil && !c.placed(ctx, u) {
			return err
		}
		return c.Remove(ctx, u.Temp)
	}
	if err := rename(ctx); err != nil && !c.placed(ctx, u) {
		return err
	}
	return nil
}

// placed reports whether an earlier request, whose response was lost, gave the file its key.
func (c calls) placed(ctx context.Context, u *fileshare.Upload) bool {
	there, err := c.Stat(ctx, u.Key)
	return err == nil && u.Wrote(there)
}

// file implements fileshare.File and fileshare.TempFile.
type file struct {
	*os.File
	*session
	calls calls
	name  string
}

func (f *file) Stat(context.Context) (fileshare.Info, error) {
	info, err := f.File.Stat()
	if err != nil {
		return fileshare.Info{}, err
	}
	return attributes(info), nil
}

func (f *file) WriteAt(_ context.Context, p []byte, off int64) (int, error) {
	return f.File.WriteAt(p, off)
}

func (f *file) Reopen(context.Context) (fileshare.TempFile, error) {
	return f.calls.open(f.name, os.O_WRONLY)
}

func (f *file) Final(ctx context.Context) (fileshare.Info, error) { return f.Stat(ctx) }

func (f *file) Finish(ctx context.Context) (fileshare.Info, error) {
	if err := f.Sync(); err != nil {
		return fileshare.Info{}, err
	}
	defer f.Close()
	return f.Stat(ctx)
}

func (f *file) Discard(ctx context.Context) error {
	f.Close()
	return f.calls.Remove(ctx, f.name)
}

func (f *file) Close() { _ = f.File.Close() }

func open(t *testing.T, dir string, budget fileshare.Budget) (*example, *backends.Store) {
	t.Helper()
	b, err := newExample(dir, budget)
	if err != nil {
		t.Fatal(err)
	}
	store := backends.NewStore(b, "example://test", backends.Options{})
	t.Cleanup(func() { store.Close() })
	return b, store
}

func TestContract(t *testing.T) {
	dir := t.TempDir()
	conformance.Run(t, func(t *testing.T) *backends.Store {
		_, store := open(t, dir, nil)
		return store
	}, conformance.Options{MaxSize: 8 << 20, Many: 50})
	left, err := os.ReadDir(dir)
	if err != nil || len(left) > 0 {
		t.Errorf("the contract leaves %v, %v", left, err)
	}
}

// A link to a directory above it is not followed, and is named: whoever put it there may miss what
// it leads to.
func TestListNamesLinksToDirectoriesAbove(t *testing.T) {
	dir := t.TempDir()
	_, store := open(t, dir, nil)
	if _, err := store.PutBytes(t.Context(), "a/b/k", nil, backends.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for link, to := range map[string]string{"a/b/top": "../..", "a/b/up": "..", "again": "a"} {
		if err := os.Symlink(to, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	const above = ": a link to a directory above it"
	for prefix, want := range map[string][]string{
		"":     {"a/b/k", "a/b/top/" + above, "a/b/up/" + above, "again/b/k", "again/b/top/" + above, "again/b/up/" + above},
		"a/b/": {"a/b/k", "a/b/top/a/b/" + above, "a/b/top/again/b/" + above, "a/b/up/b/" + above},
	} {
		var got []string
		ctx := backends.WithSkipped(t.Context(), func(s backends.Skipped) { got = append(got, s.Key+": "+s.What) })
		for obj, err := range store.List(ctx, prefix) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, obj.Key)
		}
		if !slices.Equal(got, want) {
			t.Errorf("List(%q): %q, want %q", prefix, got, want)
		}
	}
}

// stingy is a budget that allows nothing.
type stingy struct{}

func (stingy) Acquire() bool { return false }
func (stingy) Release()      { panic("nothing was acquired") }

// The first chunk of a stream needs no budget: without it, streams are slow, but do not block.
func TestBudgetOfNothingBlocksNoStream(t *testing.T) {
	_, store := open(t, t.TempDir(), stingy{})
	const size = 3 << 20
	want := conformance.ContentsOf("k", size)
	if _, err := store.Put(t.Context(), "k", want, size, backends.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	got, _, err := store.ReadAll(t.Context(), "k", size)
	if err != nil || string(got) != string(want.Bytes()) {
		t.Errorf("ReadAll: %d bytes, %v; want the %d bytes that were written", len(got), err, size)
	}
}

func TestSweepsAfterKills(t *testing.T) {
	dir := t.TempDir()
	_, one := open(t, dir, nil)
	_, two := open(t, dir, nil)
	conformance.Sweeps(t, one, two)
}

func TestReplacements(t *testing.T) {
	dir := t.TempDir()
	_, one := open(t, dir, nil)
	_, two := open(t, dir, nil)
	conformance.Replacements(t, one, two)
}

// crash ends the session and loses what was written in it.
func (b *example) crash(t *testing.T, dir string) {
	t.Helper()
	b.calls.session.Swap(new(session)).lost.Store(true)
	names, err := fs.Glob(os.DirFS(dir), fileshare.Temporary+"*")
	if err != nil || len(names) != 1 {
		t.Fatalf("temporary files: %q, %v; want one", names, err)
	}
	if err := os.Truncate(filepath.Join(dir, names[0]), 0); err != nil {
		t.Fatal(err)
	}
}

func TestPartsOfALostSessionAreWrittenAgain(t *testing.T) {
	dir := t.TempDir()
	b, store := open(t, dir, nil)
	const part, size = 1 << 20, 2<<20 + 5
	want := conformance.ContentsOf("k", size)
	w, err := b.CreateParts(t.Context(), "k", backends.CreateOptions{Size: size})
	if err != nil {
		t.Fatal(err)
	}
	for off := int64(0); off < size; off += part {
		if err := w.WritePart(t.Context(), off, backends.NewPart(want, off, min(part, size-off))); err != nil {
			t.Fatal(err)
		}
		if off == part {
			b.crash(t, dir)
		}
	}
	if _, err := w.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	got, _, err := store.ReadAll(t.Context(), "k", size)
	if err != nil || string(got) != string(want.Bytes()) {
		t.Errorf("ReadAll: %d bytes, %v; want the %d bytes that were written", len(got), err, size)
	}
}

func TestStreamOfALostSessionFails(t *testing.T) {
	dir := t.TempDir()
	b, _ := open(t, dir, nil)
	w, err := b.Create(t.Context(), "k", backends.CreateOptions{Size: -1})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(make([]byte, 1<<20)); err != nil {
		t.Fatal(err)
	}
	b.crash(t, dir)
	if _, err := w.Commit(t.Context()); backends.KindOf(err) != backends.Unavailable {
		t.Errorf("Commit: %v, want kind unavailable", err)
	}
	if err := w.Abort(); err != nil {
		t.Errorf("Abort: %v", err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("the writer leaves %v, %v", left, err)
	}
}

// A Put that is canceled while it gives way to more urgent transfers says so, with the cause. It was
// reported as a failure of the source.
func TestPutCanceledWhileItGivesWay(t *testing.T) {
	b, _ := open(t, t.TempDir(), nil)
	cause := errors.New("the pod is going away")
	ctx, cancel := context.WithCancelCause(t.Context())
	store := backends.NewStore(b, "example://test", backends.Options{Yield: func(ctx context.Context, _ int) error {
		cancel(cause)
		<-ctx.Done()
		return ctx.Err()
	}})
	const size = 3 << 20
	_, err := store.Put(ctx, "k", conformance.ContentsOf("k", size), size, backends.CreateOptions{})
	var local *backends.LocalError
	if errors.As(err, &local) || backends.KindOf(err) != backends.Canceled || !errors.Is(err, cause) {
		t.Errorf("Put = %v (%T), want kind canceled with its cause", err, err)
	}
}
