package file

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/internal/fileshare"
	"github.com/stager-dev/stager/backends/sys"
)

// Create implements backends.Sink.
func (b *Backend) Create(ctx context.Context, key string, opts backends.CreateOptions) (backends.Writer, error) {
	u, err := b.begin(ctx, key, opts)
	if err != nil {
		return nil, err
	}
	return &writer{upload: u}, nil
}

// CreateParts implements backends.PartCreator.
func (b *Backend) CreateParts(ctx context.Context, key string, opts backends.CreateOptions) (backends.PartWriter, error) {
	if opts.Size < 0 {
		return nil, backends.Errorf(backends.Invalid, "create", key, "the size of an object in parts must be known")
	}
	u, err := b.begin(ctx, key, opts)
	if err != nil {
		return nil, err
	}
	return &partWriter{upload: u, part: b.Capabilities().PartLength(opts.Size), have: make(map[int64]int64)}, nil
}

// begin creates the temporary file and its directories.
func (b *Backend) begin(ctx context.Context, key string, opts backends.CreateOptions) (*upload, error) {
	if err := fileshare.Ended(ctx, "create", key); err != nil {
		return nil, err
	}
	if err := checkKey("create", key); err != nil {
		return nil, err
	}
	root, err := b.open(true)
	if err != nil {
		return nil, classify("create", key, err)
	}
	dir := path.Dir(key)
	u := &upload{b: b, ctx: ctx, root: root, key: key, temp: fileshare.NewTemporary(dir), opts: opts}
	// A concurrent Delete may remove the empty directory before the file exists.
	for range 100 {
		if _, err := root.Stat(dir); errors.Is(err, fs.ErrNotExist) {
			u.madeDirs = true
		}
		if err = root.MkdirAll(dir, 0o755); errors.Is(err, fs.ErrExist) {
			err = unmade(root, dir)
		} else if err == nil {
			u.file, err = root.OpenFile(u.temp, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o644)
		}
		if !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	if err != nil {
		return nil, classify("create", key, err)
	}
	return u, nil
}

// unmade returns why a directory was not made whose name existed: syscall.ENOTDIR if it is not a directory's, and
// fs.ErrNotExist if a concurrent Delete has removed it, or another writer has made it since: then another attempt may succeed.
func unmade(root *os.Root, dir string) error {
	info, err := root.Lstat(dir)
	switch {
	case err != nil:
		return err
	case info.IsDir():
		return fs.ErrNotExist
	}
	return syscall.ENOTDIR
}

// upload is the common state of both writers: a temporary file and how it ends.
type upload struct {
	b        *Backend
	ctx      context.Context // the context of Create applies to writes
	root     *os.Root
	key      string
	temp     string
	file     *os.File
	opts     backends.CreateOptions
	madeDirs bool // some directories may be new

	mu        sync.Mutex // guards the fields below
	over      error      // why the upload cannot continue
	synced    bool
	published bool
	object    backends.Object
	claim     *backends.Claim
}

// commit publishes the file after size bytes were written. After an error, another call resumes at
// the failed step.
func (u *upload) commit(ctx context.Context, size int64) (backends.Object, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.over != nil {
		return backends.Object{}, u.over
	}
	if err := fileshare.Ended(ctx, "commit", u.key); err != nil {
		return backends.Object{}, err
	}
	if u.opts.Size >= 0 && size != u.opts.Size {
		return backends.Object{}, backends.Errorf(backends.Invalid, "commit", u.key,
			"%d bytes were announced but %d were written", u.opts.Size, size)
	}
	for _, step := range []func(context.Context) error{u.sync, u.publish, u.syncDirs} {
		if err := step(ctx); err != nil {
			return backends.Object{}, classify("commit", u.key, err)
		}
	}
	return u.object, nil
}

// sync makes the bytes durable. A failed sync must not be repeated: the kernel drops the dirty
// pages that it could not write and would report success.
func (u *upload) sync(context.Context) error {
	if u.synced {
		return nil
	}
	if err := u.file.Sync(); err != nil {
		err = classify("commit", u.key, err)
		if backends.KindOf(err).Retryable() {
			err = backends.Errorf(backends.Corrupt, "commit", u.key, "cannot write to disk: %w", err)
		}
		u.over = err
		_ = u.dropLocked() // the error that led here is more useful
		return err
	}
	u.synced = true
	return nil
}

// publish gives the file its final name.
func (u *upload) publish(ctx context.Context) error {
	if u.published {
		return nil
	}
	var err error
	switch {
	case u.opts.IfVersion != "":
		err = u.swap(ctx)
	case u.opts.IfAbsent:
		err = u.link()
	default:
		err = u.rename()
	}
	if err != nil {
		return err
	}
	u.published = true
	defer u.file.Close()       // its bytes are durable
	info, err := u.file.Stat() // not earlier: renaming changes the version
	if err != nil {
		return err
	}
	u.object = describe(u.key, info)
	return nil
}

// rename gives the file its final name and replaces an existing file.
func (u *upload) rename() error {
	err := u.root.Rename(u.temp, u.key)
	if errors.Is(err, fs.ErrExist) {
		return syscall.EISDIR // only a directory can be in the way
	}
	return err
}

// link gives the file its final name unless the name exists.
func (u *upload) link() error {
	err := u.root.Link(u.temp, u.key)
	switch {
	case errors.Is(err, fs.ErrExist):
		// Over NFS a repeated call may find its own success.
		mine, merr := u.file.Stat()
		there, terr := u.root.Lstat(u.key)
		if merr != nil || terr != nil {
			return err
		}
		if there.IsDir() {
			return syscall.EISDIR
		}
		if !os.SameFile(mine, there) {
			return err
		}
	case errors.Is(err, syscall.EPERM), errors.Is(err, errors.ErrUnsupported):
		return u.renameNoReplace() // a file system without hard links
	case err != nil:
		return err
	}
	_ = u.root.Remove(u.temp) // a second name that no listing shows
	return nil
}

func (u *upload) renameNoReplace() error {
	dir, err := u.root.Open(path.Dir(u.key))
	if err != nil {
		return err
	}
	defer dir.Close() // opened only to read
	fd := int(dir.Fd())
	err = sys.RenameNew(fd, path.Base(u.temp), fd, path.Base(u.key))
	if errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ENOSYS) {
		return backends.Errorf(backends.Unsupported, "commit", u.key,
			"this file system can neither link a file nor rename it without replacing another: %w", err)
	}
	return err
}

// syncDirs makes the file name durable, and those of directories that may be new.
func (u *upload) syncDirs(context.Context) error {
	for dir := path.Dir(u.key); ; dir = path.Dir(dir) {
		if err := syncDir(u.root, dir); err != nil {
			return err
		}
		if !u.madeDirs || dir == "." {
			return nil
		}
	}
}

// syncDir makes the names in a directory durable, if the file system supports it.
func syncDir(root *os.Root, dir string) error {
	f, err := root.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close() // opened only to read
	if err := f.Sync(); !errors.Is(err, syscall.EINVAL) && !errors.Is(err, syscall.ENOTSUP) {
		return err
	}
	return nil
}

// Abort implements backends.Writer.
func (u *upload) Abort() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.published || u.over != nil {
		return nil
	}
	u.over = backends.Errorf(backends.Invalid, "commit", u.key, "the writer was aborted")
	return classify("abort", u.key, u.dropLocked())
}

// dropLocked removes the temporary file and the directories that become empty.
func (u *upload) dropLocked() error {
	_ = u.file.Close() // its bytes are discarded
	if err := u.root.Remove(u.temp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	u.claim.Release(u.ctx) // a removed file can no longer be renamed
	prune(u.root, path.Dir(u.key))
	return nil
}

// usable returns why no more bytes can be written.
func (u *upload) usable(ctx context.Context) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.over != nil {
		return u.over
	}
	if u.published {
		return backends.Errorf(backends.Invalid, "write", u.key, "the writer was committed")
	}
	return fileshare.Ended(ctx, "write", u.key)
}

type writer struct {
	*upload
	written int64
}

func (w *writer) Write(p []byte) (int, error) {
	if err := w.usable(w.ctx); err != nil {
		return 0, err
	}
	n, err := w.file.Write(p)
	w.written += int64(n)
	return n, classify("write", w.key, err)
}

func (w *writer) Commit(ctx context.Context) (backends.Object, error) {
	return w.commit(ctx, w.written)
}

type partWriter struct {
	*upload
	part int64
	have map[int64]int64 // part lengths by offset; guarded by upload.mu
}

var buffers = sync.Pool{New: func() any { return new([256 << 10]byte) }}

func (w *partWriter) WritePart(ctx context.Context, off int64, src *backends.Part) error {
	if err := w.usable(ctx); err != nil {
		return err
	}
	if err := fileshare.CheckPart(w.key, off, src.Size(), w.opts.Size, w.part); err != nil {
		return err
	}
	buf := buffers.Get().(*[256 << 10]byte)
	defer buffers.Put(buf)
	n, err := io.CopyBuffer(io.NewOffsetWriter(w.file, off), &obeying{ctx, src.Reader(), w.key}, buf[:])
	if err != nil {
		return classify("write", w.key, err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.have[off] = n
	return nil
}

// obeying is a reader that fails once its context is done.
type obeying struct {
	ctx context.Context // the context of one call
	src io.Reader
	key string
}

func (o *obeying) Read(p []byte) (int, error) {
	if err := fileshare.Ended(o.ctx, "write", o.key); err != nil {
		return 0, err
	}
	return o.src.Read(p)
}

func (w *partWriter) Commit(ctx context.Context) (backends.Object, error) {
	var size int64
	w.mu.Lock()
	for _, n := range w.have {
		size += n
	}
	w.mu.Unlock()
	return w.commit(ctx, size)
}

// Delete implements backends.Sink. When it returns, the removal is durable. Directories that became
// empty are removed too.
func (b *Backend) Delete(ctx context.Context, key string) error {
	root, err := b.reach(ctx, "delete", key)
	if err == nil {
		err = remove(root, key)
	}
	if err = missing("delete", key, err); backends.KindOf(err) == backends.NotExist {
		return nil
	}
	return err
}

func remove(root *os.Root, key string) error {
	info, err := root.Lstat(key)
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() && info.Mode()&fs.ModeSymlink == 0 {
		return nil // it is not an object
	}
	if err := unlink(root, key, 0); err != nil {
		return err
	}
	if err := syncDir(root, path.Dir(key)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	prune(root, path.Dir(key))
	return nil
}

// prune removes dir and its parents as long as they are empty.
func prune(root *os.Root, dir string) {
	fileshare.Prune(dir, "", func(dir string) error { return unlink(root, dir, unix.AT_REMOVEDIR) })
}

// unlink removes a file, or an empty directory with AT_REMOVEDIR. It never confuses the two.
func unlink(root *os.Root, name string, flags int) error {
	dir, err := root.Open(path.Dir(name))
	if err != nil {
		return err
	}
	defer dir.Close() // opened only to read
	return unix.Unlinkat(int(dir.Fd()), path.Base(name), flags)
}
