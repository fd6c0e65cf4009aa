package nfs

import (
	"context"
	"errors"
	"path"
	"sync"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/internal/fileshare"
	"github.com/stager-dev/stager/backends/nfs/internal/remote"
)

// Create creates the temporary file in the directory that the path leads to.
func (p protocol) Create(ctx context.Context, name string) (fileshare.TempFile, error) {
	f := &tempFile{s: p.s}
	err := p.s.links.at(ctx, path.Dir(name), func(dir string) (err error) {
		f.at = path.Join(dir, path.Base(name))
		f.File, err = p.s.tree.Create(ctx, f.at)
		return err
	})
	switch remote.StatusOf(err) {
	case remote.OK, remote.NoEnt:
	default: // the file may exist: a request of several operations ends at the first that fails
		after, cancel := cleanup(ctx)
		defer cancel()
		_ = p.s.tree.Remove(after, f.at, remote.Regular)
	}
	if errors.Is(err, errCycle) { // not a directory that could be created
		err = backends.Errorf(backends.Invalid, "create", name, "a parent of the key is a link that leads back to itself")
	}
	return f, err
}

// Mkdir creates the target of a link that leads nowhere.
func (p protocol) Mkdir(ctx context.Context, name string) error {
	return p.s.links.at(ctx, name, func(at string) error {
		err := p.s.tree.Mkdir(ctx, at)
		if remote.StatusOf(err) == remote.Exist {
			if a, serr := p.s.tree.Stat(ctx, at); serr == nil && a.Type == remote.Symlink {
				return &remote.Error{Status: remote.SymlinkThere, Op: "MKDIR"}
			}
		}
		return err
	})
}

func (p protocol) Remove(ctx context.Context, name string) error {
	err := p.s.links.at(ctx, path.Dir(name), func(dir string) error {
		return p.s.tree.Remove(ctx, path.Join(dir, path.Base(name)), remote.Regular)
	})
	if remote.StatusOf(err) == remote.NoEnt {
		return nil
	}
	return err
}

// errRestarted reports that the server was restarted between a write and the COMMIT.
var errRestarted = errors.New("the server was restarted and lost written data: write it again")

// tempFile is the temporary file of an upload. Writes are not durable. The server tells by verifiers
// which of its instances has received them, and COMMIT confirms those of one instance alone.
type tempFile struct {
	remote.File
	s  *share
	at string // path without links

	mu       sync.Mutex // guards the fields below
	by       remote.Verifier
	written  bool
	lost     bool // instances differ
	reopened bool // another tempFile has the remote.File, and closes it
	closed   bool
}

// saw records the instance that has received data or confirms it.
func (f *tempFile) saw(v remote.Verifier) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lost = f.lost || f.written && f.by != v
	f.by, f.written = v, true
}

func (f *tempFile) Err() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.lost {
		return errRestarted
	}
	return nil
}

func (f *tempFile) WriteAt(ctx context.Context, p []byte, off int64) (int, error) {
	return f.write(ctx, off, len(p), func(to []byte, at int) error {
		copy(to, p[at:])
		return nil
	})
}

func (f *tempFile) WriteFrom(ctx context.Context, off int64, src *backends.Part, from int64, n int) (int, error) {
	return f.write(ctx, off, n, func(to []byte, at int) error {
		if got, err := src.ReadAt(to, from+int64(at)); got < len(to) {
			return err
		}
		return nil
	})
}

// write writes n bytes. The server may take fewer of them in one request. fill copies those from at on.
func (f *tempFile) write(ctx context.Context, off int64, n int, fill func(to []byte, at int) error) (done int, err error) {
	for done < n {
		took, v, err := f.File.WriteAt(ctx, off+int64(done), n-done, func(to []byte) error { return fill(to, done) })
		if err != nil {
			return done, err
		}
		done += took
		f.saw(v)
	}
	return done, nil
}

// Reopen uses the same open file, which outlives a restart of the server.
func (f *tempFile) Reopen(context.Context) (fileshare.TempFile, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reopened = true
	return &tempFile{File: f.File, s: f.s, at: f.at}, nil
}

// Finish leaves the file open: COMMIT has reported all errors of writes. A file without contents is
// durable by its creation.
func (f *tempFile) Finish(ctx context.Context) (fileshare.Info, error) {
	f.mu.Lock()
	written := f.written
	f.mu.Unlock()
	if !written {
		return fileshare.Info{}, nil
	}
	v, attr, err := f.Commit(ctx)
	if err != nil {
		return fileshare.Info{}, err
	}
	f.saw(v)
	return attributes(attr), f.Err()
}

func (f *tempFile) Discard(ctx context.Context) error {
	ctx, cancel := cleanup(ctx)
	defer cancel()
	_ = f.File.Close(ctx) // the data is discarded
	err := f.s.tree.Remove(ctx, f.at, remote.Regular)
	if remote.StatusOf(err) == remote.NoEnt {
		return nil
	}
	return err
}

// Close does not wait: the data is durable, and a server closes what is left when the lease expires.
func (f *tempFile) Close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed || f.lost || f.reopened {
		return
	}
	f.closed = true
	go func() {
		ctx, cancel := cleanup(context.Background())
		defer cancel()
		_ = f.File.Close(ctx)
	}()
}

// publishing is an attempt to publish an upload.
type publishing struct {
	*fileshare.Upload
	s    *share
	file *tempFile
	to   string // path of the key without links
}

// Publish links or renames the temporary file to the key. With IfVersion it replaces only that
// version.
func (p protocol) Publish(ctx context.Context, upload *fileshare.Upload) error {
	f := upload.File().(*tempFile)
	u := &publishing{upload, p.s, f, path.Join(path.Dir(f.at), path.Base(upload.Key))}
	if u.Opts.IfVersion == "" {
		return u.place(ctx)
	}
	err := u.Swap(ctx, p.s, u.place)
	if backends.KindOf(err) == backends.Changed { // the response to an earlier rename may have been lost
		if _, own, _ := u.placed(ctx); own {
			return nil
		}
	}
	return err
}

// place gives the file its key. If the response to an earlier request was lost, it finds its own file
// under the key and succeeds.
func (u *publishing) place(ctx context.Context) error {
	var attr remote.Attr
	var err error
	if u.Opts.IfAbsent {
		attr, err = u.s.tree.Link(ctx, u.file.File, u.file.at, u.to)
	} else {
		attr, err = u.s.tree.Rename(ctx, u.file.File, u.file.at, u.to)
	}
	if err == nil {
		u.Info = attributes(attr)
		return nil
	}
	if errors.Is(err, remote.ErrReplaced) {
		return nil // the version of the temporary file is no other's
	}
	if remote.StatusOf(err) == remote.OK {
		return err // no response
	}
	there, own, perr := u.placed(ctx)
	switch {
	case perr != nil:
		return err
	case !own && there.Type == remote.Directory:
		return backends.Errorf(backends.Invalid, "commit", u.Key, "a directory has this name: %w", err)
	case !own:
		return err
	case u.Opts.IfAbsent: // the temporary name may be left, which a sweep finds
		rerr := u.s.tree.Remove(ctx, u.file.at, remote.Regular)
		u.s.Orphans.Keep(u.Temp, classify("commit", u.Temp, rerr))
		if attr, err := u.file.Attr(ctx); err == nil {
			u.Info = attributes(attr) // removing a name changes them
		}
	}
	return nil
}

// placed returns the attributes of the key's file and reports whether it is that of this upload, which
// it then records.
func (u *publishing) placed(ctx context.Context) (there remote.Attr, own bool, err error) {
	if there, err = u.s.tree.Stat(ctx, u.to); err != nil {
		return there, false, err
	}
	mine, err := u.file.Attr(ctx)
	if err != nil || mine.FileID != there.FileID {
		return there, false, err
	}
	u.Info = attributes(mine)
	return there, true, nil
}
