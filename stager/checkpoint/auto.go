package checkpoint

import (
	"cmp"
	"io/fs"
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

// addAuto adds the checkpoint without a number to the candidates. Where there are others, or
// the destination has steps of others, it is one of them under another name, and only
// mirrored.
func (u *Uploader) addAuto(names map[string]int64, entries []fs.DirEntry) {
	if u.cfg.Mode != ModeCheckpoint || len(names) > 0 || u.member != nil {
		return
	}
	name := autoCandidate(entries)
	u.mu.Lock()
	defer u.mu.Unlock()
	if name == "" || u.said[name] || u.committed.Step >= 0 && u.committed.Step < autoFrom {
		return
	}
	names[name] = autoStep
}

// writtenStep is the number of a checkpoint without one.
func writtenStep(files []local) int64 {
	newest := int64(0)
	for _, f := range files {
		newest = max(newest, f.MTime)
	}
	return max(autoFrom, newest/int64(time.Millisecond))
}
