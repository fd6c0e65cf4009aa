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
func (m *plainFiles) namesakes(due []*plainFile) map[string]string {
	m.mu.Lock()
	defer m.mu.Unlock()
	there := func(p *plainFile) bool { return p.sent != (plain{}) || m.there[p.now.Path].Key != "" }
	if !slices.ContainsFunc(due, func(p *plainFile) bool { return !there(p) }) {
		return nil
	}
	var first, then []string
	for path, p := range m.files {
		if there(p) {
			first = append(first, path)
		} else {
			then = append(then, path)
		}
	}
	slices.Sort(first)
	slices.Sort(then)
	later := backends.Namesakes(slices.Values(append(first, then...)))
	maps.DeleteFunc(later, func(path, _ string) bool { return there(m.files[path]) })
	return later
}

// mirrorNamesakes sends the files of due that are namesakes of others, if the store keeps them
// apart.
func (m *plainFiles) mirrorNamesakes(ctx context.Context, store *backends.Store, due []*plainFile, later map[string]string, final bool) error {
	for _, p := range due {
		m.mu.Lock()
		f := p.now
		m.mu.Unlock()
		other, ok := later[f.Path]
		if !ok {
			continue
		}
		taken, err := store.Taken(ctx, f.Path)
		switch {
		case err != nil:
			return err
		case taken:
			m.refuse(p, f, oneName(other))
		default:
			if err := m.mirrorFile(ctx, store, p, final); err != nil {
				return err
			}
		}
	}
	return nil
}

// refuse records that a file cannot be saved under its name.
func (m *plainFiles) refuse(p *plainFile, f plain, reason string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if p.refused == "" {
		m.cfg.Metrics.omitted.WithLabelValues(m.cfg.Output).Inc()
	}
	if p.refused != reason {
		logOmitted(m.log, []Omission{{f.Path, reason}}, nil)
	}
	p.refused, p.refusedAs = reason, f
}

// notSaved lists the files that cannot be saved, sorted by name.
func (m *plainFiles) notSaved() (omitted []Omission) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for name, reason := range m.omitted {
		omitted = append(omitted, Omission{name, reason})
	}
	for name, p := range m.files {
		if p.refused != "" {
			omitted = append(omitted, Omission{name, p.refused})
		}
	}
	slices.SortFunc(omitted, func(a, b Omission) int { return strings.Compare(a.Name, b.Name) })
	return omitted
}

// withoutContent lists the entries of the directory that have no content to mirror.
func (m *plainFiles) withoutContent() []Omission {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.empty
}

// mirrored returns what this process has sent.
func (m *plainFiles) mirrored() Mirrored {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.sent
}
