package checkpoint

import (
	"cmp"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"
)

// A trainer may overwrite one checkpoint of a name without a number, such as last.pt. Each
// of its complete states is a step, whose number is the time at which it was written.

// autoStep is the step of a candidate that has its number from the time at which it was
// written.
const autoStep = -2

// autoFrom is the least such number, in milliseconds since 1970: in 2001. Steps of trainers
// are less.
const autoFrom = 1_000_000_000_000

// unnumbered are the names that checkpoints without a number have, the preferred first.
var unnumbered = []*regexp.Regexp{
	regexp.MustCompile(`(?i)(^|[-_.])last([-_.]|$)`),
	regexp.MustCompile(`(?i)(^|[-_.])(latest|current)([-_.]|$)`),
	regexp.MustCompile(`(?i)^(checkpoint|ckpt|backup)$`),
	regexp.MustCompile(`(?i)(^|[-_.])best([-_.]|$)`),
}

// autoCandidate returns the entry that is a checkpoint without a number, or "". Of several
// it is one alone, since restore could not choose between them: a directory before files.
func autoCandidate(entries []fs.DirEntry) string {
	type candidate struct {
		name string
		rank int
		file bool
	}
	var found []candidate
	for _, e := range entries {
		name := e.Name()
		of, grouped := groupOf(name)
		stem, whole := name, e.IsDir()
		switch {
		case strings.HasPrefix(name, "."), checkPath(name) != nil:
			continue
		case e.IsDir():
		case !e.Type().IsRegular():
			continue
		case grouped && of == kerasGroup:
			name, stem, whole = of, of, true
		default:
			for _, ending := range checkpointFiles {
				if s, ok := strings.CutSuffix(name, ending); ok && !whole {
					stem, whole = s, true
				}
			}
		}
		if _, temporary := finalName(name); !whole || temporary {
			continue
		}
		if rank := slices.IndexFunc(unnumbered, func(r *regexp.Regexp) bool { return r.MatchString(stem) }); rank >= 0 {
			found = append(found, candidate{name, rank, !e.IsDir()})
		}
	}
	if len(found) == 0 {
		return ""
	}
	return slices.MinFunc(found, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.rank, b.rank), compareBool(a.file, b.file), strings.Compare(a.name, b.name))
	}).name
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// number gives the candidates the steps that the configuration asks for. Where there
// are numbered ones, or the destination has their steps, a checkpoint without a number is
// one of them under another name, and only mirrored.
func (u *Uploader) number(names map[string]int64, claimed map[string]string, entries []fs.DirEntry) {
	if u.cfg.Mode != ModeCheckpoint || u.member != nil || u.cfg.Numbers == NumberByName {
		return
	}
	if u.cfg.Numbers == NumberByTime {
		for name := range claimed {
			names[name] = autoStep
		}
		clear(claimed)
		for name := range names {
			names[name] = autoStep
		}
	}
	name := autoCandidate(entries)
	if len(names) > 0 || name == "" || !u.numbersByTime(name) {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if !u.explicit[name] {
		names[name] = autoStep
	}
}

// numbersByTime reports whether the time of writing may number a checkpoint of this name,
// which has no number.
func (u *Uploader) numbersByTime(name string) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	switch {
	case u.member != nil || u.cfg.Numbers == NumberByName:
		return false
	case u.cfg.Numbers == NumberByTime:
		return true
	}
	return isUnnumbered(path.Base(name)) && (u.committed.Step < 0 || u.committed.Step >= autoFrom)
}

// isUnnumbered reports whether checkpoints without a number have such names.
func isUnnumbered(name string) bool {
	for _, ending := range checkpointFiles {
		name = strings.TrimSuffix(name, ending)
	}
	return slices.ContainsFunc(unnumbered, func(r *regexp.Regexp) bool { return r.MatchString(name) })
}

// writtenStep is the number of a checkpoint without one.
func writtenStep(files []local) int64 {
	newest := int64(0)
	for _, f := range files {
		newest = max(newest, f.MTime)
	}
	return max(autoFrom, newest/int64(time.Millisecond))
}
