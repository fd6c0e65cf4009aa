package sftp

import (
	"context"
	"errors"
	"os"
	"path"
	"sync"
	"time"

	"github.com/pkg/sftp"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/internal/fileshare"
)

// chunkSize is the payload of one request to an OpenSSH server, and of four to others.
const chunkSize = 128 << 10

// window limits the chunks in flight of one stream. All of them together must fit into the window
// of an SSH channel, 2 MiB.
const window = 8

// file is an open file of a session, which it holds until it is closed.
type file struct {
	p       protocol
	s       *session
	name    string
	handle  *sftp.File
	release func()

	finished *fileshare.Info // what Finish returns, once it is known
	closing  sync.Once
	closed   chan struct{} // closed with the file
	lost     error         // why closing failed; set before closed is
}

// open opens a file in the session with the fewest streams. If it creates the file and the caller
// has left by then, it removes the file again.
func (p protocol) open(ctx context.Context, name string, flag int) (*file, error) {
	s, release, err := p.b.pool.Hold(ctx)
	if err != nil {
		return nil, err
	}
	f, err := call(ctx, s, func(c *sftp.Client) (*file, error) {
		handle, err := c.OpenFile(p.b.at(name), flag)
		return &file{p: p, s: s, name: name, handle: handle, release: release, closed: make(chan struct{})}, err
	}, func(f *file) {
		_ = s.Do(f.handle.Close) // nothing was written
		if flag&os.O_CREATE != 0 {
			_ = s.Do(func() error { return s.client.Remove(p.b.at(name)) }) // it is empty and omitted from listings
		}
	})
	if err != nil {
		release()
		if flag != os.O_RDONLY {
			err = p.b.because(ctx, s, name, err)
		}
		return nil, err
	}
	return f, nil
}

func (p protocol) Open(ctx context.Context, obj backends.Object, whole bool) (fileshare.File, error) {
	// A small file that is read at once comes from one state of it.
	if !whole && obj.Version != "" {
		if err := p.b.clock.settle(ctx, obj.Key, obj.ModTime); err != nil {
			return nil, err
		}
	}
	return p.open(ctx, obj.Key, os.O_RDONLY)
}

func (p protocol) Create(ctx context.Context, name string) (fileshare.TempFile, error) {
	return p.open(ctx, name, os.O_WRONLY|os.O_CREATE|os.O_EXCL)
}

func (f *file) Reopen(ctx context.Context) (fileshare.TempFile, error) {
	return f.p.open(ctx, f.name, os.O_WRONLY)
}

func (f *file) ReadAt(buf []byte, off int64) (n int, err error) {
	err = f.s.Do(func() (err error) {
		n, err = f.handle.ReadAt(buf, off)
		return err
	})
	return n, err
}

func (f *file) WriteAt(_ context.Context, buf []byte, off int64) (n int, err error) {
	err = f.s.Do(func() (err error) {
		n, err = f.handle.WriteAt(buf, off)
		return err
	})
	return n, f.p.b.because(f.s.Context(), f.s, f.name, err)
}

func (f *file) Err() error { return f.s.Err() }

func (f *file) Stat(ctx context.Context) (fileshare.Info, error) {
	info, err := call(ctx, f.s, func(*sftp.Client) (os.FileInfo, error) { return f.handle.Stat() }, nil)
	if err != nil {
		return fileshare.Info{}, err
	}
	return attributes(info), nil
}

// Final keeps the file open: a file that is replaced stays as it was.
func (f *file) Final(ctx context.Context) (fileshare.Info, error) { return f.Stat(ctx) }

// Finish waits until the file is closed: servers may report only then that data was not stored, and
// may refuse to rename an open file.
func (f *file) Finish(ctx context.Context) (fileshare.Info, error) {
	if f.finished == nil {
		info, err := f.flush(ctx)
		if err != nil {
			return fileshare.Info{}, err
		}
		f.finished = &info
	}
	f.Close()
	select {
	case <-f.closed:
	case <-ctx.Done():
		return fileshare.Info{}, context.Cause(ctx)
	}
	if f.lost != nil {
		return fileshare.Info{}, f.p.b.because(ctx, f.s, f.name, f.lost)
	}
	return *f.finished, nil
}

// flush makes what was written durable, as far as the server can, and returns the attributes.
func (f *file) flush(ctx context.Context) (fileshare.Info, error) {
	if f.p.b.extensions.fsync {
		err := fileshare.Flush(ctx, f.s.Silence(), func() error { return f.s.Do(f.handle.Sync) })
		if err != nil {
			return fileshare.Info{}, f.p.b.because(ctx, f.s, f.name, err)
		}
	}
	info, err := f.Stat(ctx)
	if err == nil {
		f.p.b.clock.saw(info.ModTime, time.Now())
	}
	return info, err
}

func (f *file) Discard(ctx context.Context) error {
	f.Close()
	return f.p.Remove(ctx, f.name)
}

func (f *file) Close() {
	f.closing.Do(func() {
		go func() {
			f.lost = f.s.Do(f.handle.Close)
			close(f.closed)
		}()
		f.release()
	})
}

// fullError reports that a request failed because the disk of the server is full.
type fullError struct{ err error }

func (e *fullError) Error() string { return "the server's disk is full" }
func (e *fullError) Unwrap() error { return e.err }

// because replaces a failure without a reason by a fullError if the disk is full, as the protocol
// has no status for it. name is the file of the request.
func (b *Backend) because(ctx context.Context, s *session, name string, err error) error {
	if status(err) != statusFailure || !b.extensions.space {
		return err
	}
	ctx, cancel := fileshare.Cleanup(ctx)
	defer cancel()
	// The directory of the file may not exist yet.
	for dir := path.Dir(name); ; dir = path.Dir(dir) {
		free, serr := call(ctx, s, func(c *sftp.Client) (*sftp.StatVFS, error) { return c.StatVFS(b.at(dir)) }, nil)
		if serr == nil && free.Bavail*free.Frsize < chunkSize {
			return &fullError{err}
		}
		if serr == nil || dir == "." || fileshare.IsLost(serr) {
			return err
		}
	}
}

// isFull reports whether err says that the disk is full.
func isFull(err error) bool {
	var full *fullError
	return errors.As(err, &full)
}
