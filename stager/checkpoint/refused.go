package checkpoint

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/stager-dev/stager/backends"
)

// namesakes returns the files of due that the store may keep as one object with another file of
// the directory, each with the name of that file. A file that the store has under exactly this
// name is not included.
func (u *Uploader) namesakes(due []*plainFile) map[string]string {
	u.mu.Lock()
	defer u.mu.Unlock()
	there := func(p *plainFile) bool { return p.sent != (plain{}) || u.there[p.now.Path].Key != "" }
	if !slices.ContainsFunc(due, func(p *plainFile) bool { return !there(p) }) {
		return nil
	}
	var first, then []string
	for path, p := range u.plain {
		if there(p) {
			first = append(first, path)
		} else {
			then = append(then, path)
		}
	}
	slices.Sort(first)
	slices.Sort(then)
	later := backends.Namesakes(slices.Values(append(first, then...)))
	maps.DeleteFunc(later, func(path, _ string) bool { return there(u.plain[path]) })
	return later
}

// mirrorNamesakes sends the files of due that are namesakes of others, if the store keeps them
// apart.
func (u *Uploader) mirrorNamesakes(ctx context.Context, store *backends.Store, due []*plainFile, later map[string]string, final bool) error {
	for _, p := range due {
		u.mu.Lock()
		f := p.now
		u.mu.Unlock()
		other, ok := later[f.Path]
		if !ok {
			continue
		}
		taken, err := store.Taken(ctx, f.Path)
		switch {
		case err != nil:
			return err
		case taken:
			u.refuse(p, f, oneName(other))
		default:
			if err := u.mirrorFile(ctx, store, p, final); err != nil {
				return err
			}
		}
	}
	return nil
}

// refuse records that a file cannot be saved under its name.
func (u *Uploader) refuse(p *plainFile, f plain, reason string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if p.refused == "" {
		u.cfg.Metrics.omitted.WithLabelValues(u.cfg.Output).Inc()
	}
	if p.refused != reason {
		logOmitted(u.log, []Omission{{f.Path, reason}}, nil)
	}
	p.refused, p.refusedAs = reason, f
}

// omittedLocked lists the files that cannot be saved, sorted by name.
func (u *Uploader) omittedLocked() (omitted []Omission) {
	for name, reason := range u.omitted {
		omitted = append(omitted, Omission{name, reason})
	}
	for name, p := range u.plain {
		if p.refused != "" {
			omitted = append(omitted, Omission{name, p.refused})
		}
	}
	slices.SortFunc(omitted, func(a, b Omission) int { return strings.Compare(a.Name, b.Name) })
	return omitted
}
