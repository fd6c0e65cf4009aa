package download

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/dustin/go-humanize/english"
	"golang.org/x/sys/unix"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/stager/plan"
	"github.com/stager-dev/stager/window/disk"
)

// findings are the results of a listing besides the spool of objects to fetch.
type findings struct {
	files   int   // number of files to fetch
	need    int64 // bytes of disk that they need, besides what they occupy already
	unknown int   // files that look like their objects and must be read
	// Files that differ and that no run wrote, and entries that are not files.
	foreign, blocked examples
	taken            examples // archives whose directory name is already in use
}

// examples counts names and retains the first few.
type examples struct {
	n     int
	first []string
}

func (e *examples) add(name string) {
	if e.n++; len(e.first) < 5 {
		e.first = append(e.first, fmt.Sprintf("%q", name))
	}
}

func (e *examples) String() string {
	s := strings.Join(e.first, ", ")
	if e.n > len(e.first) {
		s += fmt.Sprintf(" and %d more", e.n-len(e.first))
	}
	return s
}

// list lists the source, finds what must be fetched, and refuses what cannot succeed. It changes
// nothing outside stager's own files.
func (p *run) list(ctx context.Context, left *disk.Orphans) (f findings, err error) {
	defer p.todo.end()
	within, known := p.within(), newNamesakes(p.cfg.oneName(p.dir))
	for obj, err := range p.chosen(ctx) {
		if err == nil {
			err = p.refuseOwn(obj.Key, within)
		}
		if err == nil {
			err = known.add(p.cfg.Dir, obj.Key)
		}
		if err != nil {
			return f, err
		}
		p.meter.filesTotal.Add(1)
		p.meter.bytesTotal.Add(obj.Size)
		what, err := p.present(obj, &f)
		if err != nil {
			return f, local(obj.Key, err)
		}
		switch what {
		case here:
			p.warm(obj)
			continue
		case unknown:
			f.unknown++
		case absent:
			f.files++
			f.need += max(0, spaceOf(obj.Size)-left.Claim(obj.Key))
		}
		if p.failed(&f) {
			p.head.cancel()
		}
		if err := p.todo.add(entry{obj, what == unknown}); err != nil {
			return f, local("the list of objects", err)
		}
	}
	if err := p.refuse(&f); err != nil {
		return f, err
	}
	if err := left.Sweep(); err != nil {
		p.log.Warn("cannot remove orphans of earlier runs", "error", err)
	}
	return f, p.room(&f)
}

// chosen streams the objects that the destination must have in the end.
func (p *run) chosen(ctx context.Context) iter.Seq2[backends.Object, error] {
	if obj := p.cfg.Object; obj != nil {
		one := func(yield func(backends.Object, error) bool) { yield(*obj, nil) }
		return plan.Listing{MaxBytes: p.cfg.Listing.MaxBytes, Unpack: p.cfg.Unpack}.Choose(p.summary.Source, one)
	}
	l := p.cfg.Listing
	l.Unpack = p.cfg.Unpack
	if l.Marker == nil {
		l.Marker = func(key string) { p.log.Debug("skipping directory marker", "key", key) }
	}
	if l.Skipped == nil {
		l.Skipped = plan.LogSkipped(p.log)
	}
	return l.Objects(ctx, p.cfg.Store)
}

// warm counts an object that was present before this run.
func (p *run) warm(obj backends.Object) {
	p.mu.Lock()
	p.summary.Files, p.summary.WarmFiles = p.summary.Files+1, p.summary.WarmFiles+1
	p.summary.Bytes, p.summary.WarmBytes = p.summary.Bytes+obj.Size, p.summary.WarmBytes+obj.Size
	p.mu.Unlock()
	p.meter.files.Add(1)
	p.meter.warm.Add(1)
	p.meter.bytes.Add(obj.Size)
}

// presence states whether an object is in the directory.
type presence int

const (
	absent  presence = iota // or must be fetched again
	here                    // and need not be checked
	unknown                 // a file has its size and time, and must be read
)

// present determines whether an object, or an archive's contents, is already in the directory.
func (p *run) present(obj backends.Object, f *findings) (presence, error) {
	if directory, _ := p.archive(obj); directory != "" {
		made, err := p.compareDir(obj, directory, f)
		if made {
			return here, err
		}
		return absent, err
	}
	p.out.Add(obj.Size)
	return p.compare(obj, f)
}

// compare determines whether the object is already in the directory, or records what is in its
// place.
func (p *run) compare(obj backends.Object, f *findings) (presence, error) {
	if p.empty {
		return absent, nil
	}
	now, err := p.dir.State(obj.Key)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return absent, nil
	case errors.Is(err, unix.ENOTDIR), err == nil && now.Mode.IsDir():
		f.blocked.add(obj.Key)
		return absent, nil
	case err != nil:
		return absent, err
	case !now.Mode.IsRegular():
		f.foreign.add(obj.Key)
		return absent, nil
	}
	switch p.record.judge(obj, now) {
	case warm:
		return here, nil
	case alike:
		if p.cfg.Verify == VerifySize && !obj.ModTime.IsZero() {
			return here, nil
		}
		return unknown, nil
	case touched:
		return unknown, nil
	case foreign:
		f.foreign.add(obj.Key)
	case ours:
	}
	return absent, nil
}

// refuse returns an error that names what is in the way.
func (p *run) refuse(f *findings) error {
	var text string
	switch {
	case f.blocked.n > 0:
		text = fmt.Sprintf("%s cannot be written, because a directory has the name of a file, or a file has the name of a directory: %s; "+
			"move what is in the way", english.Plural(f.blocked.n, "object", ""), &f.blocked)
	case f.taken.n > 0:
		text = fmt.Sprintf("%s cannot be unpacked, because something that stager did not create has the name of its directory: %s; "+
			"move what is in the way", english.Plural(f.taken.n, "archive", ""), &f.taken)
	case f.foreign.n > 0 && !p.cfg.Overwrite:
		text = fmt.Sprintf("%s in the way: stager did not write the existing file, and it differs from the source: %s; "+
			"move it away, or replace it with --overwrite", english.Plural(f.foreign.n, "file", ""), &f.foreign)
	default:
		return nil
	}
	return &backends.Error{Op: "write", Store: p.cfg.Dir, Kind: backends.Exist, Err: errors.New(text)}
}

// failed reports whether the findings so far already lead to a refusal.
func (p *run) failed(f *findings) bool {
	most := p.cfg.Listing.MaxBytes
	return f.blocked.n > 0 || f.foreign.n > 0 && !p.cfg.Overwrite || most > 0 && p.meter.bytesTotal.Load() > most
}

// room compares the space that is needed with the free space of the disk, including what the
// overlapping transfers have already used.
func (p *run) room(f *findings) error {
	p.head.taking.Lock()
	free, err := p.cfg.free(p.dir)
	free += p.head.taken
	p.head.taking.Unlock()
	if err != nil {
		return local("the destination", err)
	}
	if f.need <= free {
		return nil
	}
	return &backends.Error{Op: "write", Store: p.cfg.Dir, Kind: backends.NoSpace, Err: fmt.Errorf(
		"files to be fetched: %d; they need %s (%d bytes) more, but only %s (%d bytes) are free",
		f.files, humanize.IBytes(uint64(f.need)), f.need, humanize.IBytes(uint64(free)), free)}
}
