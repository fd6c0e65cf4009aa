package checkpoint

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/stager/checkpoint/group"
	"github.com/stager-dev/stager/stager/internal/records"
)

// gatherWidth is how many records are read concurrently.
const gatherWidth = 32

// warnOfStore warns about the weaker guarantees of a store without conditional writes.
func (m *member) warnOfStore() {
	if create, replace := records.Decides(m.u.cfg.Store); !create || !replace {
		m.u.log.Warn("this store cannot compare and write a record in one step: of two nodes at the same instant both may succeed, "+
			"and COMMIT.json is read again before a checkpoint is reported safe", "destination", m.u.cfg.Store.Name())
	}
}

// exec executes a request and returns its result.
func (m *member) exec(ctx context.Context, a group.Action) group.Event {
	switch a.Do {
	case group.Read:
		return m.read(ctx, a.Key)
	case group.Create, group.Replace:
		return m.put(ctx, a.Key, a.Body, a.Do == group.Create, a.Version)
	case group.Gather:
		return m.gather(ctx, a.Key)
	case group.Look:
		return m.verifyParts(ctx, a)
	case group.Commit:
		return m.commit(ctx, a)
	case group.Scan:
		return m.scan(ctx, a.Save)
	case group.Upload:
		return m.upload(ctx, a.Save)
	case group.Newest:
		return m.newest(ctx)
	}
	return group.Event{Outcome: group.Unavailable}
}

func (m *member) read(ctx context.Context, key string) group.Event {
	r := m.readRecord(ctx, key)
	if strings.HasSuffix(key, "/"+commitKey) && r.Outcome == group.OK {
		m.noteCommit(key, r.Body, r.Version)
	}
	return group.Event{Outcome: r.Outcome, Body: r.Body, Version: r.Version}
}

func (m *member) readRecord(ctx context.Context, key string) group.Record {
	if key == group.ViewKey {
		return m.readView(ctx)
	}
	body, version, err := records.Read(ctx, m.u.cfg.Store, key, group.RecordLimit)
	return m.recordOf(key, body, version, err)
}

// readView returns the record of the view. It is polled and rarely changes, so an unchanged one is
// not read again.
func (m *member) readView(ctx context.Context) group.Record {
	obj, err := m.u.cfg.Store.Stat(ctx, group.ViewKey)
	if err != nil {
		return m.recordOf(group.ViewKey, nil, "", err)
	}
	m.mu.Lock()
	last := m.viewRecord
	m.mu.Unlock()
	if obj.Version != "" && last.Version == string(obj.Version) {
		return last
	}
	body, version, err := records.ReadListed(ctx, m.u.cfg.Store, obj, group.RecordLimit)
	r := m.recordOf(group.ViewKey, body, version, err)
	if r.Outcome == group.OK {
		m.mu.Lock()
		m.viewRecord = r
		m.mu.Unlock()
	}
	return r
}

// recordOf returns the record for the state machine, with the outcome of reading it.
func (m *member) recordOf(key string, body []byte, version backends.Version, err error) group.Record {
	r := group.Record{Key: key, Body: body, Version: string(version), Outcome: group.OK}
	switch backends.KindOf(err) {
	case backends.NotExist:
		r.Outcome = group.NotExist
	case backends.Corrupt, backends.Invalid, backends.Unsupported:
		r.Outcome = group.Corrupt
	default:
		if err != nil {
			r.Outcome = group.Unavailable
		}
	}
	m.note(err, r.Outcome == group.Unavailable)
	return r
}

// note stores the error of a failed request for the Status, until a record is written
// successfully.
func (m *member) note(err error, failed bool) {
	if !failed || m.ctx.Err() != nil {
		return
	}
	m.u.log.Debug("cannot read or write a record", "error", err)
	m.setTrouble(err.Error())
}

func (m *member) setTrouble(text string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.trouble = text
}

// put creates a record, or replaces a version of it.
func (m *member) put(ctx context.Context, key string, body []byte, create bool, over string) group.Event {
	var version backends.Version
	var err error
	if create {
		version, err = records.Create(ctx, m.u.cfg.Store, key, body)
	} else {
		version, err = records.Replace(ctx, m.u.cfg.Store, key, body, backends.Version(over))
	}
	e := group.Event{Outcome: group.OK, Version: string(version)}
	switch kind := backends.KindOf(err); {
	case err == nil:
		m.setTrouble("")
	case kind == backends.Exist:
		e.Outcome = group.Exists
	case kind == backends.Changed:
		e.Outcome = group.Changed
	case records.Unwritten(err):
		e.Outcome = group.Unavailable
	default:
		e.Outcome = group.Unknown
	}
	m.note(err, e.Outcome == group.Unknown || e.Outcome == group.Unavailable)
	return e
}

// gather reads all records below a prefix. It does not read records again whose listed version is
// known.
func (m *member) gather(ctx context.Context, prefix string) group.Event {
	store := m.u.cfg.Store
	var listed []backends.Object
	for obj, err := range store.List(ctx, prefix) {
		if backends.KindOf(err) == backends.NotExist {
			break
		}
		if err != nil {
			m.note(err, true)
			return group.Event{Outcome: group.Unavailable}
		}
		listed = append(listed, obj)
	}
	read := make([]group.Record, len(listed))
	var failed sync.Once
	e := group.Event{Outcome: group.OK}
	g := new(errgroup.Group)
	g.SetLimit(gatherWidth)
	for i, obj := range listed {
		if known, ok := m.known(obj); ok {
			read[i] = known
			continue
		}
		g.Go(func() error {
			body, version, err := records.ReadListed(ctx, store, obj, group.RecordLimit)
			read[i] = m.recordOf(obj.Key, body, version, err)
			if read[i].Outcome == group.Unavailable {
				failed.Do(func() { e.Outcome = group.Unavailable })
			}
			return nil
		})
	}
	_ = g.Wait() // the outcomes report errors
	if e.Outcome != group.OK {
		return e
	}
	e.Records = slices.DeleteFunc(read, func(r group.Record) bool { return r.Outcome == group.NotExist })
	m.keepRecords(prefix, e.Records)
	return e
}

func (m *member) known(obj backends.Object) (group.Record, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r, ok := m.records[obj.Key]
	return r, ok && obj.Version != "" && r.Version == string(obj.Version)
}

// keepRecords caches the records below a prefix. They replace what was cached of members or of
// saves, because only one save is gathered at a time.
func (m *member) keepRecords(prefix string, read []group.Record) {
	members := strings.HasPrefix(prefix, group.MembersPrefix)
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.DeleteFunc(m.records, func(key string, _ group.Record) bool {
		return strings.HasPrefix(key, group.MembersPrefix) == members
	})
	for _, r := range read {
		if r.Outcome == group.OK {
			m.records[r.Key] = r
		}
	}
}

// newest finds the newest valid, final step, by the time of its COMMIT.
func (m *member) newest(ctx context.Context) group.Event {
	found, err := newestStep(ctx, m.u.cfg.Store, m.u.log)
	switch {
	case err != nil:
		m.note(err, true)
		return group.Event{Outcome: group.Unavailable}
	case found.Dir == "":
		return group.Event{Outcome: group.NotExist}
	}
	return group.Event{Outcome: group.OK, Found: found}
}
