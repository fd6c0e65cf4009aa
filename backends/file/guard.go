package file

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/internal/fileshare"
	"github.com/stager-dev/stager/backends/sys"
)

// lockPrefix is the name prefix of lock files.
const lockPrefix = Temporary + "lock-"

// isShared reports whether other machines may write to the directory, that is, whether its file
// system is not known to be local. Kernel locks do not exclude writers on other machines.
func (b *Backend) isShared() bool {
	b.sharing.Do(func() {
		if b.sharedKnown != nil {
			b.shared = b.sharedKnown()
			return
		}
		dir := b.dir
		on, err := sys.FileSystemAt(dir)
		for errors.Is(err, fs.ErrNotExist) && dir != "/" {
			dir = filepath.Dir(dir) // it will be created there
			on, err = sys.FileSystemAt(dir)
		}
		b.shared = err == nil && !on.Local
	})
	return b.shared
}

// swap renames the file over the version in IfVersion. A lock excludes writers on the same machine;
// claims exclude those on other machines.
func (u *upload) swap(ctx context.Context) error {
	unlock, err := lock(ctx, u.root, u.key)
	if err != nil {
		return err
	}
	defer unlock()
	if !u.b.isShared() {
		is, err := u.current(ctx)
		if err != nil && backends.KindOf(err) != backends.NotExist {
			return err
		}
		if err := backends.CompareVersion(u.key, u.opts.IfVersion, is); err != nil {
			return err
		}
		return u.rename()
	}
	if u.claim == nil {
		u.claim = backends.NewClaim(u.b, u.key, u.opts.IfVersion)
	}
	err = u.claim.Replace(ctx, u.current, func(context.Context) error { return classify("commit", u.key, u.rename()) })
	if backends.KindOf(err) != backends.Changed {
		return err
	}
	// Over NFS a repeated call may find its own success.
	mine, merr := u.file.Stat()
	there, terr := u.root.Lstat(u.key)
	if merr == nil && terr == nil && os.SameFile(mine, there) {
		return nil
	}
	return err
}

// current returns the current version of the key.
func (u *upload) current(ctx context.Context) (backends.Version, error) {
	obj, err := u.b.Stat(ctx, u.key)
	return obj.Version, err
}

// lockName returns the name of the lock file beside key.
func lockName(key string) string {
	sum := sha256.Sum256([]byte(path.Base(key)))
	return path.Join(path.Dir(key), lockPrefix+hex.EncodeToString(sum[:8]))
}

// lock waits for the lock of a key. The kernel releases it when the process ends. A lock file
// without a lock is reused.
func lock(ctx context.Context, root *os.Root, key string) (unlock func(), err error) {
	for pause := time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		file, err := tryLock(root, lockName(key), os.O_CREATE)
		if err == nil && file != nil {
			return func() {
				_ = root.Remove(lockName(key)) // a waiting process creates another
				_ = file.Close()               // nothing is written to it
			}, nil
		}
		if err != nil {
			return nil, err
		}
		backends.Moved(ctx) // waiting is not a stall
		select {
		case <-ctx.Done():
			return nil, fileshare.Ended(ctx, "commit", key)
		case <-time.After(pause):
		}
	}
}

// tryLock locks a lock file. It returns nil if another process holds the lock, or has removed the
// file since it was opened.
func tryLock(root *os.Root, name string, create int) (*os.File, error) {
	const flags = syscall.O_NOFOLLOW | syscall.O_NONBLOCK | syscall.O_CLOEXEC
	file, err := root.OpenFile(name, os.O_RDWR|create|flags, 0o666)
	if errors.Is(err, fs.ErrPermission) {
		file, err = root.OpenFile(name, os.O_RDONLY|flags, 0) // another user's lock file
	}
	if err != nil {
		return nil, err
	}
	if err := flock(file); err != nil {
		_ = file.Close() // it was not used
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, nil
		}
		return nil, err
	}
	mine, err := file.Stat()
	there, lerr := root.Lstat(name)
	if err == nil && (lerr != nil || !os.SameFile(mine, there) || !mine.Mode().IsRegular()) {
		_ = file.Close() // it was not used
		if lerr == nil && !there.Mode().IsRegular() {
			return nil, backends.Errorf(backends.Invalid, "commit", name, "the lock file is %s: remove it", typeName(there.Mode()))
		}
		return nil, nil
	}
	return file, err
}

// flock locks an open file. It fails with kind Unsupported on a file system without locks.
func flock(file *os.File) error {
	err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, errors.ErrUnsupported) || errors.Is(err, syscall.ENOLCK) {
		return backends.Errorf(backends.Unsupported, "commit", file.Name(), "this file system does not support locks, which conditional writes require: %w", err)
	}
	return err
}

var _ backends.Claims = (*Backend)(nil)

// CreateClaim implements backends.Claims. The file is linked into place, so that no reader sees it
// before it is complete; see upload.link.
func (b *Backend) CreateClaim(ctx context.Context, name string) (token string, err error) {
	root, err := b.open(false)
	if err != nil {
		return "", classify("commit", name, err)
	}
	u := &upload{b: b, ctx: ctx, root: root, key: name, temp: fileshare.NewTemporary(path.Dir(name))}
	if u.file, err = root.OpenFile(u.temp, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o644); err != nil {
		return "", classify("commit", name, err)
	}
	defer u.file.Close() // it was synced, or is discarded
	token = rand.Text()
	if _, err = u.file.WriteString(token); err == nil {
		err = u.file.Sync()
	}
	if err == nil {
		err = u.link()
	}
	if err != nil {
		_ = root.Remove(u.temp) // a sweep finds it
	}
	return token, classify("commit", name, err)
}

// ReadClaim implements backends.Claims.
func (b *Backend) ReadClaim(_ context.Context, name string) (string, error) {
	root, err := b.open(false)
	if err != nil {
		return "", classify("commit", name, err)
	}
	file, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0)
	if err != nil {
		return "", classify("commit", name, err)
	}
	defer file.Close() // opened only to read
	text, err := io.ReadAll(io.LimitReader(file, 100))
	return string(text), classify("commit", name, err)
}

// DeleteClaim implements backends.Claims.
func (b *Backend) DeleteClaim(_ context.Context, name string) error {
	root, err := b.open(false)
	if err == nil {
		err = unlink(root, name, 0)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return classify("commit", name, err)
}

// sweepLock removes a lock file unless a process holds the lock.
func sweepLock(root *os.Root, name string) error {
	file, err := tryLock(root, name, 0)
	if err != nil || file == nil {
		return err
	}
	defer file.Close() // which releases the lock
	return unlink(root, name, 0)
}

func isLock(name string) bool { return strings.HasPrefix(path.Base(name), lockPrefix) }
