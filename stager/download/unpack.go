package download

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"sync/atomic"

	"github.com/dustin/go-humanize"
	"golang.org/x/sys/unix"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/stager/unpack"
	"github.com/stager-dev/stager/window/disk"
)

// An archive that is unpacked is never stored on disk. It is read in order while its ranges arrive,
// and its files are written below .stager. When all of it has been read, its checksum matches and
// nothing in it was refused, the directory is renamed into place. A kill loses what was unpacked so
// far, but never exposes a part.

const (
	// unpackMemory limits the memory of all archives that are being unpacked. A large archive needs
	// its stream, and zstd as much as its usual levels look back.
	unpackMemory = 16 << 20
	zstdMemory   = 8 << 20
)

// archive returns the directory that an object becomes, and its format; "" if it stays a file.
func (p *run) archive(obj backends.Object) (directory string, f unpack.Format) {
	if !p.cfg.Unpack {
		return "", ""
	}
	return unpack.Dir(obj.Key)
}

// unpackNeeds returns the memory for unpacking an object; 0 if it stays a file.
func (p *run) unpackNeeds(obj backends.Object) int64 {
	if directory, _ := p.archive(obj); directory == "" {
		return 0
	}
	return unpackNeeds(obj)
}

// unpackNeeds returns the memory for unpacking an archive.
func unpackNeeds(obj backends.Object) int64 {
	_, f := unpack.Dir(obj.Key)
	need := min(max(obj.Size, 128<<10), streamAhead*streamPiece)
	if f == unpack.TarZstd {
		need += zstdMemory
	}
	return need
}

// unpack fetches an archive and unpacks it to a directory.
func (p *run) unpack(ctx context.Context, obj backends.Object) (err error) {
	for try := 1; ; try++ {
		if err = p.unpackOnce(ctx, obj); !errors.Is(err, errSums) || try == corruptTries {
			return err
		}
		p.log.Warn("wrong bytes, fetching them again", "error", err)
	}
}

func (p *run) unpackOnce(ctx context.Context, obj backends.Object) (err error) {
	directory, _ := p.archive(obj)
	mtime := p.mtime(obj)
	tree, err := p.dir.IncomingTree(directory, "")
	if err != nil {
		return local(directory, err)
	}
	into := &destination{dir: directory}
	var files, taken int64
	// Count disk space, not bytes: an archive of a few kilobytes can contain thousands of
	// directories and empty files.
	take := func(name string, size int64) error {
		room := disk.Room(size)
		taken += room
		return p.admit(obj, name, size, p.out.Add(room))
	}
	into.admit = func(name string, size int64) error {
		files++
		p.meter.unpacked.Add(1)
		return take(name, size)
	}
	var came atomic.Int64
	defer func() {
		if err == nil {
			return
		}
		p.out.Add(-taken)
		p.meter.unpacked.Add(-files)
		p.meter.bytes.Add(-came.Load())
		if err := tree.Discard(); err != nil {
			p.log.Warn("cannot remove files unpacked from an archive", "path", directory, "error", err)
		}
	}()
	if into.to, err = tree.Fill(0o755, mtime); err != nil {
		return local(directory, err)
	}
	into.to.Made = func(name string) error { return take(name+"/", 0) }
	contents, sum, err := unpackObject(ctx, p.cfg.Store, obj, into, Options{Verify: p.cfg.Verify, Arrived: func(n int64) {
		came.Add(n)
		p.meter.arrived(n)
	}})
	err = errors.Join(err, into.to.Close())
	if err != nil {
		return err
	}
	mine := func(at string) (bool, error) {
		if p.cfg.Overwrite && p.record.made(directory) {
			return true, nil
		}
		return p.allOurs(obj, directory, at)
	}
	err = tree.PublishOver(directory, mtime, mine, func(now disk.State) error {
		return p.record.addDir(obj, directory, now, contents)
	})
	if errors.Is(err, fs.ErrExist) {
		return p.dirInTheWay(directory)
	}
	if err != nil {
		return local(directory, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fetchedLocked(obj, verifiedBy(sum))
	p.unpackedLocked(contents)
	return nil
}

// unpackedLocked counts an unpacked archive.
func (p *run) unpackedLocked(c unpack.Contents) {
	s := &p.summary
	s.Archives++
	s.Unpacked.Files += c.Files
	s.Unpacked.Bytes += c.Bytes
}

// unpackObject unpacks an archive, and returns the checksum that the store and its bytes agree on.
// Errors of the archive have kind Invalid if something is refused, and Corrupt if it is damaged.
func unpackObject(ctx context.Context, store *backends.Store, obj backends.Object, into unpack.Into, opts Options) (c unpack.Contents, sum backends.Checksum, err error) {
	t := &transfer{store: store, obj: obj, opts: opts, reported: obj.Sum}
	if obj.Size <= streamPiece {
		t.pieces = []disk.Range{{Len: obj.Size}}
	}
	// The bytes are read only once, so the checksum to compare with is requested before.
	if opts.Verify != VerifySize {
		if t.reported, err = t.reportedSum(ctx); err != nil {
			return c, sum, err
		}
	}
	s := newStream(ctx, store, obj, t.reported, opts.Arrived)
	defer s.close()
	_, format := unpack.Dir(obj.Key)
	c, err = unpack.Archive(format, s, &anywhere{ctx, store, obj}, obj.Size, into)
	var damaged *unpack.Damaged
	var refused *unpack.Refused
	switch {
	case errors.As(err, &refused):
		return c, sum, t.fail(backends.Invalid, err)
	case err != nil && !errors.As(err, &damaged):
		return c, sum, err
	}
	// The archive may have been damaged before it was stored. Read the rest to compare the
	// checksum.
	if _, rerr := io.Copy(io.Discard, s); rerr != nil {
		return c, sum, rerr
	}
	t.reported = s.stated
	if s.sum != nil {
		t.algorithm, t.sums, t.pieces = s.algorithm, [][]byte{s.sum.Sum(nil)}, []disk.Range{{Len: obj.Size}}
	}
	sum, verr := t.verify(ctx)
	switch {
	case verr != nil:
		return c, sum, verr
	case err != nil:
		return c, sum, t.fail(backends.Corrupt, err)
	}
	return c, sum, nil
}

// admit refuses a file of an archive if there is no room for it, or if total exceeds the limit with
// it.
func (p *run) admit(obj backends.Object, name string, size, total int64) error {
	fail := func(kind backends.Kind, format string, args ...any) error {
		return &backends.Error{Op: "unpack", Store: p.cfg.Store.Name(), Key: obj.Key, Kind: kind, Err: fmt.Errorf(format, args...)}
	}
	if most := p.cfg.Listing.MaxBytes; most > 0 && total > most {
		return fail(backends.Invalid, "unpacking %q would use %d bytes, but at most %d are allowed; choose fewer objects or raise the limit", name, total, most)
	}
	free, err := p.cfg.free(p.dir)
	if err != nil {
		return local("the destination", err)
	}
	if need := disk.Room(size); need > free {
		return fail(backends.NoSpace, "its entry %q needs %s (%d bytes), but only %s (%d bytes) are free",
			name, humanize.IBytes(uint64(need)), need, humanize.IBytes(uint64(free)), free)
	}
	return nil
}

// compareDir reports whether an archive's contents are already present, or records what is in the
// way. It only checks the directory's own time, which changes when a name in it is added or
// removed. It does not check subdirectories or the bytes of files.
func (p *run) compareDir(obj backends.Object, directory string, f *findings) (present bool, err error) {
	now, err := p.dir.State(directory)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case errors.Is(err, unix.ENOTDIR), err == nil && !now.Mode.IsDir():
		f.taken.add(directory)
		return false, nil
	case err != nil:
		return false, err
	}
	made, known := p.record.judgeDir(obj, directory, now)
	if made != nil {
		p.out.Add(made.Bytes)
		p.mu.Lock()
		p.unpackedLocked(*made)
		p.mu.Unlock()
		return true, nil
	}
	// The new directory replaces it, so every file in it must come from an archive.
	ours, err := p.allOurs(obj, directory, directory)
	switch {
	case err != nil || ours:
		return false, err
	case known:
		f.foreign.add(directory)
	default:
		f.taken.add(directory)
	}
	return false, nil
}

// dirInTheWay returns the error for an archive whose directory appeared while it was unpacked, or
// got files that stager did not write.
func (p *run) dirInTheWay(directory string) error {
	return &backends.Error{Op: "write", Store: p.cfg.Dir, Key: directory, Kind: backends.Exist, Err: fmt.Errorf(
		"the directory %q is in the way: it appeared or changed while the archive was unpacked, and stager did not create its content; move it away", directory)}
}

// allOurs reports whether the directory at a path contains only unpacked files. These have one
// time, which is in the record, or that of the archive.
func (p *run) allOurs(obj backends.Object, directory, at string) (ours bool, err error) {
	ours = true
	err = fs.WalkDir(disk.FS(p.dir.Root()), at, func(_ string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		info, err := e.Info()
		if err == nil && !p.record.unpacked(obj, directory, info) {
			ours, err = false, fs.SkipAll
		}
		return err
	})
	return ours, err
}
