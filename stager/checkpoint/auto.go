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

// A trainer may overwrite one checkpoint whose name has no number, such as last.pt. Each of its
// complete states is a step, numbered by the time of writing.

// autoStep marks a candidate whose step number is its time of writing.
const autoStep = -2

// autoFrom is the smallest such number, in milliseconds since 1970: a time in 2001. Step numbers
// of trainers are smaller.
const autoFrom = 1_000_000_000_000

// unnumbered lists the patterns of checkpoint names without a number, in order of preference.
var unnumbered = []*regexp.Regexp{
	regexp.MustCompile(`(?i)(^|[-_.])last([-_.]|$)`),
	regexp.MustCompile(`(?i)(^|[-_.])(latest|current)([-_.]|$)`),
	regexp.MustCompile(`(?i)^(checkpoint|ckpt|backup)$`),
	regexp.MustCompile(`(?i)(^|[-_.])best([-_.]|$)`),
}

// autoCandidate returns the entry that is a checkpoint without a number, or "". It picks one of
// several, because restore could not choose between them. Directories precede files.
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

// number assigns step numbers to the candidates, as Config.Numbers says. If the output or the
// destination has numbered checkpoints, an unnumbered one is another name for one of them. It is
// then only mirrored.
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

// numbersByTime reports whether a checkpoint with this unnumbered name may be numbered by its
// time of writing.
func (u *Uploader) numbersByTime(name string) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	switch {
	case u.member != nil || u.cfg.Numbers == NumberByName:
		return false
	case u.cfg.Numbers == NumberByTime:
		return true
	}
	return isUnnumbered(path.Base(name)) && (u.results.committed.Step < 0 || u.results.committed.Step >= autoFrom)
}

// isUnnumbered reports whether name is a known name of checkpoints without a number.
func isUnnumbered(name string) bool {
	for _, ending := range checkpointFiles {
		name = strings.TrimSuffix(name, ending)
	}
	return slices.ContainsFunc(unnumbered, func(r *regexp.Regexp) bool { return r.MatchString(name) })
}

// writtenStep returns the step number of an unnumbered checkpoint: the latest modification time
// in milliseconds.
func writtenStep(files []local) int64 {
	newest := int64(0)
	for _, f := range files {
		newest = max(newest, f.MTime)
	}
	return max(autoFrom, newest/int64(time.Millisecond))
}
