package file

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/internal/fileshare"
	"github.com/stager-dev/stager/backends/sys"
)

// Scheme returns the scheme of file:///absolute/path/ URLs.
func Scheme() backends.Scheme {
	return backends.Scheme{
		Name: "file", Summary: "a mounted or local directory: PersistentVolume, NFS or EFS mount, disk",
		Example:     "file:///mnt/source/",
		Credentials: "Access depends on the owner and mode of the files: run as a permitted user, or change them.",
		Open:        open,
	}
}

func open(_ context.Context, t backends.Target) (backends.Opened, error) {
	if t.Host != "" || t.User != "" {
		return backends.Opened{}, backends.Errorf(backends.Invalid, "open", "",
			"a file URL has three slashes, file:///path, and no host; mount a directory of another machine first")
	}
	dir := filepath.Clean("/" + t.Path)
	if info, err := os.Stat(dir); err == nil && info.Mode().IsRegular() {
		return backends.Opened{Backend: New(filepath.Dir(dir)), Prefix: filepath.Base(dir)}, nil
	}
	return backends.Opened{Backend: New(dir)}, nil
}

// Backend is a store in a directory. All methods are safe for concurrent use.
type Backend struct {
	dir string

	sharing     sync.Once
	shared      bool        // other machines may write to the directory
	sharedKnown func() bool // overrides the detection in tests

	mu   sync.Mutex
	root *os.Root // nil until the directory exists
}

var (
	_ backends.Backend     = (*Backend)(nil)
	_ backends.PartCreator = (*Backend)(nil)
	_ backends.Local       = (*Backend)(nil)
)

// New returns the store of a directory, which need not exist yet.
func New(dir string) *Backend { return &Backend{dir: dir} }

// Dir implements backends.Local.
func (b *Backend) Dir() string { return b.dir }

// Capabilities implements backends.Backend.
func (b *Backend) Capabilities() backends.Capabilities {
	guard := backends.GuardLock
	if b.isShared() {
		guard = backends.GuardClaim
	}
	return backends.Capabilities{AtomicReplace: true, ConditionalCreate: true, Guard: guard, Parallelism: 8, PartSize: 16 << 20}
}

// Close implements backends.Backend.
func (b *Backend) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.root == nil {
		return nil
	}
	defer func() { b.root = nil }()
	return b.root.Close()
}

// open returns the root of the directory. With mkdir it creates the directory if necessary.
func (b *Backend) open(mkdir bool) (*os.Root, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.root != nil {
		return b.root, nil
	}
	root, err := os.OpenRoot(b.dir)
	if mkdir && errors.Is(err, fs.ErrNotExist) {
		if err := makeDir(b.dir); err != nil {
			return nil, err
		}
		root, err = os.OpenRoot(b.dir)
	}
	if err != nil {
		return nil, err
	}
	b.root = root
	return root, nil
}

// makeDir creates a directory and its parents, and returns when their names are durable. Otherwise
// a crash could lose what is committed below them.
func makeDir(dir string) error {
	if err := os.Mkdir(dir, 0o755); errors.Is(err, fs.ErrNotExist) {
		if err := makeDir(filepath.Dir(dir)); err != nil {
			return err
		}
		return makeDir(dir)
	} else if errors.Is(err, fs.ErrExist) {
		return nil
	} else if err != nil {
		return err
	}
	up, err := os.OpenRoot(filepath.Dir(dir))
	if err != nil {
		return err
	}
	defer up.Close() // opened only to sync it
	return syncDir(up, ".")
}

// describe returns the Object of a regular file. Its version includes the change time, which cannot
// be set: the modification time of a changed file may be reset.
func describe(key string, info fs.FileInfo) backends.Object {
	var inode uint64
	var changed int64
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		inode, changed = st.Ino, sys.Changed(st).UnixNano()
	}
	return backends.Object{
		Key: key, Size: info.Size(), ModTime: info.ModTime(),
		Version: backends.Version(fmt.Sprintf("%x-%x-%x-%x", info.Size(), info.ModTime().UnixNano(), changed, inode)),
	}
}

// Stat implements backends.Source.
func (b *Backend) Stat(ctx context.Context, key string) (backends.Object, error) {
	root, err := b.reach(ctx, "stat", key)
	if err != nil {
		return backends.Object{}, err
	}
	info, err := root.Stat(key)
	if err != nil {
		return backends.Object{}, missing("stat", key, err)
	}
	if !info.Mode().IsRegular() {
		return backends.Object{}, backends.Errorf(backends.NotExist, "stat", key, "this is %s, not a file", typeName(info.Mode()))
	}
	return describe(key, info), nil
}

// reach checks ctx and key and returns the root, for all calls on one key that do not write.
func (b *Backend) reach(ctx context.Context, op, key string) (*os.Root, error) {
	if err := fileshare.Ended(ctx, op, key); err != nil {
		return nil, err
	}
	if err := checkKey(op, key); err != nil {
		return nil, backends.Errorf(backends.NotExist, op, key, "%w", errors.Unwrap(err))
	}
	root, err := b.open(false)
	return root, classify(op, key, err)
}

func typeName(m fs.FileMode) string {
	switch {
	case m.IsDir():
		return "a directory"
	case m&fs.ModeSymlink != 0:
		return "a symbolic link"
	case m&fs.ModeNamedPipe != 0:
		return "a FIFO"
	}
	return "a device or a socket"
}

// OpenRange implements backends.Source.
func (b *Backend) OpenRange(ctx context.Context, obj backends.Object, off, n int64) (io.ReadCloser, error) {
	root, err := b.reach(ctx, "read", obj.Key)
	if err != nil {
		return nil, err
	}
	// Do not block on a pipe or a device. The flag has no effect on files.
	f, err := root.OpenFile(obj.Key, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, missing("read", obj.Key, err)
	}
	r := &reader{ctx: ctx, file: f, key: obj.Key, want: obj.Version}
	if err := r.begin(off, n); err != nil {
		_ = f.Close() // nothing was read
		return nil, err
	}
	return r, nil
}

// reader reads a range of a file and compares the version at both ends.
type reader struct {
	ctx  context.Context // the context of OpenRange applies to reads
	file *os.File
	key  string
	want backends.Version
	at   int64
	left int64
	more bool // the range exceeds the file
}

func (r *reader) begin(off, n int64) error {
	info, err := r.file.Stat()
	if err != nil {
		return classify("read", r.key, err)
	}
	if !info.Mode().IsRegular() {
		return backends.Errorf(backends.NotExist, "read", r.key, "this is %s, not a file", typeName(info.Mode()))
	}
	if r.want == "" {
		r.want = describe(r.key, info).Version
	}
	if err := r.compare(info); err != nil {
		return err
	}
	if off < 0 || off > info.Size() {
		return backends.Errorf(backends.Invalid, "read", r.key, "byte %d is outside the file of %d bytes", off, info.Size())
	}
	r.at, r.left = off, info.Size()-off
	if n > r.left {
		r.more = true
	} else if n >= 0 {
		r.left = n
	}
	return nil
}

func (r *reader) compare(info fs.FileInfo) error {
	if is := describe(r.key, info).Version; is != r.want {
		return backends.Errorf(backends.Changed, "read", r.key, "the file changed after it was listed, from version %s to %s", r.want, is)
	}
	return nil
}

// Read returns the last bytes only after it has verified that the file is unchanged, because
// callers that know the length never read up to EOF.
func (r *reader) Read(p []byte) (int, error) {
	if err := fileshare.Ended(r.ctx, "read", r.key); err != nil {
		return 0, err
	}
	if r.left == 0 {
		if r.more {
			return 0, io.ErrUnexpectedEOF
		}
		return 0, io.EOF
	}
	if len(p) == 0 {
		return 0, nil
	}
	n, err := r.file.ReadAt(p[:min(int64(len(p)), r.left)], r.at)
	r.at, r.left = r.at+int64(n), r.left-int64(n)
	if err != nil && !errors.Is(err, io.EOF) {
		return n, classify("read", r.key, err)
	}
	if err == nil && r.left > 0 {
		return n, nil
	}
	info, serr := r.file.Stat()
	if serr != nil {
		return 0, classify("read", r.key, serr)
	}
	if cerr := r.compare(info); cerr != nil {
		return 0, cerr
	}
	if r.left > 0 {
		return n, io.ErrUnexpectedEOF // the file system reported a wrong size
	}
	return n, nil
}

func (r *reader) Close() error {
	if err := r.file.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
		return classify("read", r.key, err)
	}
	return nil
}
