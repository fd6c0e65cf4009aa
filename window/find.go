package window

import "path/filepath"

// LeaseOf returns the id of the lease on the shard at a path, for readers that store only the path.
// If the window is broadcast, group is the reader's group. ok is false if no reader holds a lease
// on it.
func (w *Window) LeaseOf(path string, group *int) (id string, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	e := w.entries.named(filepath.Base(path))
	if e == nil || e.lease == nil || e.lease.claim() || w.path(e.name) != filepath.Clean(path) {
		return "", false
	}
	l := e.lease
	if e.shares() != nil {
		if group == nil || *group < 0 || *group >= len(e.shares()) || e.shares()[*group].lease == nil {
			return "", false
		}
		l = e.shares()[*group].lease
	}
	return l.id, true
}

// Finished reports whether the shard at a path is already acknowledged or skipped, by the group if
// the window is broadcast. Callers use it to accept a repeated acknowledgement.
func (w *Window) Finished(path string, group *int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	name := filepath.Base(path)
	a, _, ok := parseName(name)
	return ok && w.path(name) == filepath.Clean(path) && (w.progress.finished(a) || group != nil && w.shares.parts[shareKey{a, *group}])
}
