package fetch

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

// An archive that is unpacked is never on the disk: it is read in order while its ranges
// come, and its files are written below .stager. When its last byte has come, its
// checksum holds and nothing in it was refused, the folder gets its name. A kill loses
// what has come of it, but nobody sees a part.

const (
	// unpackMemory bounds what archives that are on their way take at once. One that is
	// large takes its stream, and zstd as much as its usual levels look back.
	unpackMemory = 16 << 20
	zstdMemory   = 8 << 20
)

// archive tells which folder an object becomes, and from which format; "" when it stays
// a file.
func (p *pass) archive(obj backends.Object) (folder string, f unpack.Format) {
	if !p.cfg.Unpack {
		return "", ""
	}
	return unpack.Folder(obj.Key)
}

// unpackNeeds is the memory that unpacking an object takes; 0 when it stays a file.
func (p *pass) unpackNeeds(obj backends.Object) int64 {
	if folder, _ := p.archive(obj); folder == "" {
		return 0
	}
	return unpackNeeds(obj)
}

// unpackNeeds is the memory that unpacking an archive takes.
func unpackNeeds(obj backends.Object) int64 {
	_, f := unpack.Folder(obj.Key)
	need := min(max(obj.Size, 128<<10), streamAhead*streamPiece)
	if f == unpack.TarZstd {
		need += zstdMemory
	}
	return need
}

// unpack brings an archive as a folder.
func (p *pass) unpack(ctx context.Context, obj backends.Object) (err error) {
	for try := 1; ; try++ {
		if err = p.unpackOnce(ctx, obj); !errors.Is(err, errSums) || try == corruptTries {
			return err
		}
		p.log.Warn("the bytes are not right, fetching them again", "error", err)
	}
}

func (p *pass) unpackOnce(ctx context.Context, obj backends.Object) (err error) {
	folder, _ := p.archive(obj)
	mtime := p.mtime(obj)
	tree, err := p.folder.IncomingTree(folder, "")
	if err != nil {
		return local(folder, err)
	}
	into := &landing{folder: folder}
	var files, taken int64
	// What counts is the room on the disk: an archive of a few kilobytes can hold
	// thousands of folders and empty files.
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
			p.log.Warn("what came of an archive cannot be removed", "path", folder, "error", err)
		}
	}()
	if into.to, err = tree.Fill(0o755, mtime); err != nil {
		return local(folder, err)
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
		if p.cfg.Overwrite && p.record.made(folder) {
			return true, nil
		}
		return p.allOurs(obj, folder, at)
	}
	err = tree.PublishOver(folder, mtime, mine, func(now disk.State) error {
		return p.record.addFolder(obj, folder, now, contents)
	})
	if errors.Is(err, fs.ErrExist) {
		return p.takenFolder(folder)
	}
	if err != nil {
		return local(folder, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fetchedLocked(obj, verifiedBy(sum))
	p.unpackedLocked(contents)
	return nil
}

// unpackedLocked counts an archive whose folder is here.
func (p *pass) unpackedLocked(c unpack.Contents) {
	s := &p.summary
	s.Archives++
	s.Unpacked.Files += c.Files
	s.Unpacked.Bytes += c.Bytes
}

// unpackObject brings what is in an archive, and returns the checksum that the store and
// its bytes agree on. Errors about the archive are of kind Invalid for what is refused,
// and Corrupt for what is damaged.
func unpackObject(ctx context.Context, store *backends.Store, obj backends.Object, into unpack.Into, opts Options) (c unpack.Contents, sum backends.Checksum, err error) {
	t := &transfer{store: store, obj: obj, opts: opts, told: obj.Sum}
	if obj.Size <= streamPiece {
		t.pieces = []disk.Range{{Len: obj.Size}}
	}
	// Its bytes pass once, so what they are to be compared with is asked for before.
	if opts.Verify != VerifySize {
		if t.told, err = t.toldSum(ctx); err != nil {
			return c, sum, err
		}
	}
	s := newStream(ctx, store, obj, t.told, opts.Arrived)
	defer s.close()
	_, format := unpack.Folder(obj.Key)
	c, err = unpack.Archive(format, s, &anywhere{ctx, store, obj}, obj.Size, into)
	var damaged *unpack.Damaged
	var refused *unpack.Refused
	switch {
	case errors.As(err, &refused):
		return c, sum, t.fail(backends.Invalid, err)
	case err != nil && !errors.As(err, &damaged):
		return c, sum, err
	}
	// What is damaged may have been so before it was stored: the rest of it tells.
	if _, rerr := io.Copy(io.Discard, s); rerr != nil {
		return c, sum, rerr
	}
	t.told = s.told
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

// admit refuses a file of an archive for which there is no room, or with which more than
// is allowed, total, would be here.
func (p *pass) admit(obj backends.Object, name string, size, total int64) error {
	fail := func(kind backends.Kind, format string, args ...any) error {
		return &backends.Error{Op: "unpack", Store: p.cfg.Store.Name(), Key: obj.Key, Kind: kind, Err: fmt.Errorf(format, args...)}
	}
	if most := p.cfg.Listing.MaxBytes; most > 0 && total > most {
		return fail(backends.Invalid, "with %q in it %d bytes would be here, but at most %d are allowed; choose fewer or allow more", name, total, most)
	}
	free, err := p.cfg.free(p.folder)
	if err != nil {
		return local("the destination", err)
	}
	if need := disk.Room(size); need > free {
		return fail(backends.NoSpace, "%q in it needs %s (%d bytes), but only %s (%d bytes) are free",
			name, humanize.IBytes(uint64(need)), need, humanize.IBytes(uint64(free)), free)
	}
	return nil
}

// compareFolder tells whether what was in the archive is here already, or notes what is
// in its place. What is looked at is the folder's own time, which changes when a name in
// it comes or goes; what lies deeper, and the bytes of files, are not.
func (p *pass) compareFolder(obj backends.Object, folder string, f *findings) (present bool, err error) {
	now, err := p.folder.State(folder)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case errors.Is(err, unix.ENOTDIR), err == nil && !now.Mode.IsDir():
		f.taken.add(folder)
		return false, nil
	case err != nil:
		return false, err
	}
	made, known := p.record.judgeFolder(obj, folder, now)
	if made != nil {
		p.out.Add(made.Bytes)
		p.mu.Lock()
		p.unpackedLocked(*made)
		p.mu.Unlock()
		return true, nil
	}
	// It goes when the new one comes, so nothing may be in it that was not in an archive.
	ours, err := p.allOurs(obj, folder, folder)
	switch {
	case err != nil || ours:
		return false, err
	case known:
		f.foreign.add(folder)
	default:
		f.taken.add(folder)
	}
	return false, nil
}

// takenFolder is the error of an archive whose folder came while it was unpacked, or got
// files that stager did not make.
func (p *pass) takenFolder(folder string) error {
	return &backends.Error{Op: "write", Store: p.cfg.Dir, Key: folder, Kind: backends.Exist, Err: fmt.Errorf(
		"the folder %q is in the way: it came or changed while the archive was unpacked, and stager did not make what is in it; move it away", folder)}
}

// allOurs reports whether a folder, which lies at a path, holds nothing but files that were
// unpacked: these have one time, which is in the record, or that of the archive.
func (p *pass) allOurs(obj backends.Object, folder, at string) (ours bool, err error) {
	ours = true
	err = fs.WalkDir(disk.FS(p.folder.Root()), at, func(_ string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		info, err := e.Info()
		if err == nil && !p.record.unpacked(obj, folder, info) {
			ours, err = false, fs.SkipAll
		}
		return err
	})
	return ours, err
}
