package checkpoint

import (
	"encoding/json"
	"maps"
)

// A checkpoint is of a moment, and so is where its trainer stood in its data. That is
// asked for when Commit is called, and otherwise when stager first sees the name of a
// checkpoint, also a temporary one: what is acknowledged while it is written comes
// again after a restore, and is not left out. Who knows better says so in the marker.

// Cursors are where the inputs of a node stand, by their names.
type Cursors map[string]json.RawMessage

// ask is where the inputs stand now.
func (u *Uploader) ask() Cursors {
	if u.cfg.Cursors == nil {
		return nil
	}
	return u.cfg.Cursors()
}

// noteCursors remembers where the inputs stood when names came.
func (u *Uploader) noteCursors(names map[string]int64, unfinished map[string]string) {
	if u.cfg.Cursors == nil {
		return
	}
	there := make(map[string]bool, len(names)+len(unfinished))
	for name := range names {
		there[name] = true
	}
	for name := range unfinished {
		there[name] = true
	}
	u.mu.Lock()
	maps.DeleteFunc(u.stood, func(name string, _ Cursors) bool { return !there[name] })
	var fresh []string
	for name := range there {
		if _, known := u.stood[name]; !known {
			fresh = append(fresh, name)
		}
	}
	u.mu.Unlock()
	if len(fresh) == 0 {
		return
	}
	now := u.ask()
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, name := range fresh {
		u.stood[name] = now
	}
}

// joinCursors is what a COMMIT says: of each input the cursors of all nodes.
func joinCursors(parts []part) map[string][]json.RawMessage {
	var all map[string][]json.RawMessage
	for _, p := range parts {
		for input, cursor := range p.Cursors {
			if all == nil {
				all = make(map[string][]json.RawMessage)
			}
			all[input] = append(all[input], cursor)
		}
	}
	return all
}
