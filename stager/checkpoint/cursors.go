package checkpoint

import (
	"context"
	"encoding/json"
	"maps"
	"sync"
	"time"
)

// A checkpoint must record the trainer's position in its data at the time of the save. Commit
// reads the cursors when it is called. Otherwise they are read as soon as the name of a
// checkpoint appears, even a temporary one. Samples that are acknowledged during the save are
// then repeated after a restore, and never skipped. Where the kernel reports no new names, the
// cursors of the previous scan are used, when the name did not exist yet. A trainer that knows
// its position puts it in the marker, or reports the number of its samples.

// Cursors are the positions of a node's inputs, by input name.
type Cursors map[string]json.RawMessage

// stood holds cursors with the time at which they were read.
type stood struct {
	cursors Cursors
	at      time.Time
}

// positions holds the cursors of the moments at which names of checkpoints appeared.
type positions struct {
	cfg *Config

	mu     sync.Mutex       // guards all below; a leaf
	stood  map[string]stood // by name
	before Cursors          // during the last scan
	polls  bool             // no events for new names
}

// request returns the current cursors.
func (p *positions) request() Cursors {
	if p.cfg.Cursors == nil {
		return nil
	}
	return p.cfg.Cursors()
}

// poll records that only scans detect new names.
func (p *positions) poll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.polls = true
}

// of returns the cursors of the moment at which a name appeared.
func (p *positions) of(name string) Cursors {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stood[name].cursors
}

func (p *positions) knows(name string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, known := p.stood[name]
	return known
}

// came records the cursors when a name appears.
func (p *positions) came(name string) {
	if p.cfg.Cursors == nil || p.knows(name) {
		return
	}
	now := stood{p.request(), time.Now()}
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, known := p.stood[name]; !known {
		p.stood[name] = now
	}
}

// note records the cursors for names that are new in the scan started at began. It forgets names
// that no longer exist.
func (p *positions) note(names map[string]int64, unfinished map[string]string, began time.Time) {
	if p.cfg.Cursors == nil {
		return
	}
	there := make(map[string]bool, len(names)+len(unfinished))
	for name := range names {
		there[name] = true
	}
	for name := range unfinished {
		there[name] = true
	}
	p.mu.Lock()
	maps.DeleteFunc(p.stood, func(name string, s stood) bool { return !there[name] && s.at.Before(began) })
	var fresh []string
	for name := range there {
		if _, known := p.stood[name]; !known {
			fresh = append(fresh, name)
		}
	}
	before, polls := p.before, p.polls
	p.mu.Unlock()
	if len(fresh) == 0 && !polls {
		return
	}
	now := stood{p.request(), began}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.before = now.cursors
	if polls && before != nil {
		now.cursors = before
	}
	for _, name := range fresh {
		if _, known := p.stood[name]; !known {
			p.stood[name] = now
		}
	}
}

// reached returns the cursors at which the trainer had used samples samples.
func (u *Uploader) reached(at Cursors, samples int64) Cursors {
	if u.cfg.Reached == nil || samples <= 0 {
		return at
	}
	return u.cfg.Reached(at, samples)
}

// came records the cursors when an entry appears in the output directory. The next scan may be
// too late: the trainer may have continued by then.
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
	if file || directory {
		u.positions.came(name)
	}
}

// warnOfUnknownPositions names the inputs that were not open yet when the trainer began to save:
// a trainer that resumed from its own files can save before. After a restore such an input begins
// where it is, not where the checkpoint was.
func (u *Uploader) warnOfUnknownPositions(snap *snapshot) {
	if u.cfg.Inputs == nil {
		return
	}
	for _, input := range u.cfg.Inputs() {
		if _, known := snap.Cursors[input]; !known {
			u.log.Warn("checkpoint has no position of an input, because the input was not open yet: restore --rewind cannot rewind it",
				"step", snap.Step, "checkpoint", snap.Name, "input", input)
		}
	}
}

// joinCursors returns the cursors for a COMMIT: for each input, those of all nodes.
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

// cursorsOf returns the cursors of an upload. The data does not wait for them: they are asked for when it
// is sent.
func (u *Uploader) cursorsOf(up *upload) func(context.Context) Cursors {
	return func(ctx context.Context) Cursors {
		if u.cfg.Lasting == nil {
			return up.snap.Cursors
		}
		began := time.Now()
		lasting := u.cfg.Lasting(ctx, up.snap.Cursors)
		up.waited.Add(int64(time.Since(began)))
		for input := range up.snap.Cursors {
			if _, known := lasting[input]; !known && ctx.Err() == nil {
				u.log.Warn("checkpoint has no position of an input, because its source was not listed in time, or has changed: restore --rewind cannot rewind it",
					"step", up.snap.Step, "checkpoint", up.snap.Name, "input", input)
			}
		}
		return lasting
	}
}

// at returns the cursors of an upload.
func (c uploadJob) at(ctx context.Context) (Cursors, error) {
	if c.cursors == nil {
		return nil, nil
	}
	cursors := c.cursors(ctx)
	return cursors, ctx.Err()
}
