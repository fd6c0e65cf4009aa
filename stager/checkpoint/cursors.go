package checkpoint

import (
	"encoding/json"
	"maps"
	"time"
)

// A checkpoint is of a moment, and so is where its trainer stood in its data. That is
// asked for when Commit is called, and otherwise as soon as the name of a checkpoint
// comes, also a temporary one: what is acknowledged while it is written comes
// again after a restore, and is not left out. Where the kernel does not tell that a name
// came, it is as at the look before, when there was none. Who knows better says so in the marker,
// or counts its samples.

// Cursors are where the inputs of a node stand, by their names.
type Cursors map[string]json.RawMessage

// request is where the inputs stand now.
func (u *Uploader) request() Cursors {
	if u.cfg.Cursors == nil {
		return nil
	}
	return u.cfg.Cursors()
}

// reached is where they stood when the trainer had used so many samples.
func (u *Uploader) reached(at Cursors, samples int64) Cursors {
	if u.cfg.Reached == nil || samples <= 0 {
		return at
	}
	return u.cfg.Reached(at, samples)
}

// stood is where the inputs stood at a time.
type stood struct {
	cursors Cursors
	at      time.Time
}

// came remembers where the inputs stand when an entry comes to the output's directory: the
// look that follows may be late, when the trainer has gone on already.
func (u *Uploader) came(entry string) {
	name, _ := finalName(entry)
	if of, grouped := groupOf(name); grouped {
		name = of
	}
	step, file := stepOf(name, false)
	if !file {
		step, _ = stepOf(name, true)
	}
	_, directory := stepOf(name, true)
	if u.member != nil && (file || directory) {
		u.member.expect(step)
	}
	if !file && !directory || u.cfg.Cursors == nil {
		return
	}
	u.mu.Lock()
	_, known := u.stood[name]
	u.mu.Unlock()
	if known {
		return
	}
	now := stood{u.request(), time.Now()}
	u.mu.Lock()
	defer u.mu.Unlock()
	if _, known := u.stood[name]; !known {
		u.stood[name] = now
	}
}

// noteCursors remembers where the inputs stood when names came that were there when a
// look began, and forgets those that were not.
func (u *Uploader) noteCursors(names map[string]int64, unfinished map[string]string, began time.Time) {
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
	maps.DeleteFunc(u.stood, func(name string, s stood) bool { return !there[name] && s.at.Before(began) })
	var fresh []string
	for name := range there {
		if _, known := u.stood[name]; !known {
			fresh = append(fresh, name)
		}
	}
	before, polls := u.before, u.polls
	u.mu.Unlock()
	if len(fresh) == 0 && !polls {
		return
	}
	now := stood{u.request(), began}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.before = now.cursors
	if polls && before != nil {
		now.cursors = before
	}
	for _, name := range fresh {
		if _, known := u.stood[name]; !known {
			u.stood[name] = now
		}
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
