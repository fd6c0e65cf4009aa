package window

import "path/filepath"

// LeaseOf finds the lease on the shard at a path, for readers that keep the path
// alone; group is theirs, where there are groups. It is false when nobody has a lease
// on it.
func (w *Window) LeaseOf(path string, group *int) (id string, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	e := w.files[filepath.Base(path)]
	if e == nil || e.lease == nil || e.lease.claim() || w.path(e.name) != filepath.Clean(path) {
		return "", false
	}
	l := e.lease
	if e.shares != nil {
		if group == nil || *group < 0 || *group >= len(e.shares) || e.shares[*group].lease == nil {
			return "", false
		}
		l = e.shares[*group].lease
	}
	return l.id, true
}

// Finished tells whether the shard at a path is acknowledged or given up already, by the
// group where there are groups: an acknowledgement that is sent again is no fault.
func (w *Window) Finished(path string, group *int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	name := filepath.Base(path)
	a, _, ok := parseName(name)
	return ok && w.path(name) == filepath.Clean(path) && (a.before(w.low) || w.settled[a] || group != nil && w.parts[shareKey{a, *group}])
}
