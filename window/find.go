package window

import "path/filepath"

// LeaseOf finds the lease on the shard at a path, for readers that keep the path
// alone. It is false when nobody has a lease on it.
func (w *Window) LeaseOf(path string) (id string, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	e := w.files[filepath.Base(path)]
	if e == nil || e.lease == nil || e.lease.claim() || w.path(e.name) != filepath.Clean(path) {
		return "", false
	}
	return e.lease.id, true
}

// Settled tells whether the shard at a path is acknowledged or given up already: an
// acknowledgement that is sent again is no fault.
func (w *Window) Settled(path string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	name := filepath.Base(path)
	a, _, ok := parseName(name)
	return ok && w.path(name) == filepath.Clean(path) && (a.before(w.low) || w.settled[a])
}
