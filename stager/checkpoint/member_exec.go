package checkpoint

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/stager/checkpoint/group"
	"github.com/stager-dev/stager/stager/records"
)

// gatherWidth is how many records are read at once.
const gatherWidth = 32

// warnOfStore says which promises are weaker in a store without conditional writes.
func (m *member) warnOfStore() {
	if create, replace := records.Decides(m.u.cfg.Store); !create || !replace {
		m.u.log.Warn("this store cannot compare and write a record in one step: of two nodes at the same instant both may succeed, "+
			"and COMMIT.json is read again before a checkpoint is reported safe", "destination", m.u.cfg.Store.Name())
	}
}

// exec carries out a request.
func (m *member) exec(ctx context.Context, a group.Action) group.Event {
	switch a.Do {
	case group.Read:
		return m.read(ctx, a.Key)
	case group.Create, group.Replace:
		return m.put(ctx, a.Key, a.Body, a.Do == group.Create, a.Version)
	case group.Gather:
		return m.gather(ctx, a.Key)
	case group.Look:
		return m.look(ctx, a)
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
		m.noteCommit(key, r.Body)
	}
	return group.Event{Outcome: r.Outcome, Body: r.Body, Version: r.Version}
}

func (m *member) readRecord(ctx context.Context, key string) group.Record {
	body, version, err := records.Read(ctx, m.u.cfg.Store, key, group.RecordLimit)
	return m.recordOf(key, body, version, err)
}

// recordOf is what the machine learns of a record that was read.
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

// note keeps the error of a store that cannot do its part for the Status.
func (m *member) note(err error, failed bool) {
	if failed && m.ctx.Err() == nil {
		m.u.log.Debug("a record cannot be read or written now", "error", err)
		_ = m.u.note(err)
	}
}

// put creates a record, or replaces it in a version.
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

// gather reads all records below a prefix. Records that were read in the version that is
// listed are not read again.
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
	_ = g.Wait() // outcomes say it
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

// keepRecords keeps the records of one prefix: others are not asked for soon.
func (m *member) keepRecords(prefix string, read []group.Record) {
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.DeleteFunc(m.records, func(key string, _ group.Record) bool {
		return strings.HasPrefix(key, prefix) || !strings.HasPrefix(key, group.MembersPrefix)
	})
	for _, r := range read {
		if r.Outcome == group.OK {
			m.records[r.Key] = r
		}
	}
}

// parts decodes what nodes saved. A node without files has no part here.
func payloads(parts []group.Part) ([]part, error) {
	all := make([]part, len(parts))
	for i, p := range parts {
		if p.Payload == nil {
			continue
		}
		if err := json.Unmarshal(p.Payload, &all[i]); err != nil {
			return nil, err
		}
		all[i].Node = p.Index
	}
	return all, nil
}

// look looks up the data that parts name.
func (m *member) look(ctx context.Context, a group.Action) group.Event {
	parts, err := payloads(a.Parts)
	if err != nil {
		return group.Event{Outcome: group.NotExist}
	}
	c := joinParts(group.StepDir(a.Save.Step, 0), "", parts)
	sizes, err := m.sizes(ctx, group.StepDir(a.Save.Step, 0), &c, len(a.Parts))
	switch {
	case err != nil:
		m.note(err, true)
		return group.Event{Outcome: group.Unavailable}
	case c.missing(group.StepDir(a.Save.Step, 0), sizes) != nil:
		return group.Event{Outcome: group.NotExist}
	}
	return group.Event{Outcome: group.OK}
}

// sizes lists what the store has of the files of c: of many nodes all data of the step
// at once.
func (m *member) sizes(ctx context.Context, dir string, c *Commit, nodes int) (map[string]int64, error) {
	if nodes <= 1 {
		return sizesOf(ctx, m.u.cfg.Store, dir, c)
	}
	folders, sizes := make(map[string]bool), make(map[string]int64)
	for _, f := range c.Files {
		folder := dir + "/" + dataDir + "/"
		if key := c.key(dir, f); !strings.HasPrefix(key, folder) {
			folder = uploadFolder(key)
		}
		folders[folder] = true
	}
	for folder := range folders {
		for obj, err := range m.u.cfg.Store.List(ctx, folder) {
			if err != nil {
				return nil, err
			}
			sizes[obj.Key] = obj.Size
		}
	}
	return sizes, nil
}

// joinParts lists the files of all parts as a COMMIT in the directory to does; data lies
// below dir.
func joinParts(dir, to string, parts []part) Commit {
	c := Commit{APIVersion: apiVersion, Kind: commitKind, Nodes: len(parts), Cursors: joinCursors(parts)}
	for _, p := range parts {
		if p.Data == "" {
			continue
		}
		first := c.Data == ""
		if first {
			c.Data, c.SamplesSeen, c.Metrics = p.Data, p.SamplesSeen, p.Metrics
		}
		if first || p.Provisional && !c.Provisional { // the weakest counts
			c.Evidence, c.Provisional = p.Evidence, p.Provisional
		}
		for _, f := range p.Files {
			if f.Node = p.Node; f.At == "" && !(first && (to == "" || to == dir)) {
				f.At = dir + "/" + p.Data + "/" + f.Path
			}
			c.Bytes += f.Size
			c.Files = append(c.Files, f)
		}
	}
	return c
}

// commit writes COMMIT.json.
func (m *member) commit(ctx context.Context, a group.Action) group.Event {
	to := strings.TrimSuffix(a.Key, "/"+commitKey)
	parts, err := payloads(a.Parts)
	var c Commit
	if err == nil {
		c = joinParts(group.StepDir(a.Save.Step, 0), to, parts)
		c.Step, c.Created, c.Stager, c.Group = a.Save.Step, now(), m.u.cfg.Stager, &a.Joined
		c.Provisional = a.Joined.Provisional
		err = c.check() // what must not be restored must not be written
	}
	var text []byte
	if err == nil {
		text, err = encode(&c)
	}
	if err != nil {
		m.u.log.Error("a checkpoint cannot be committed", "step", a.Save.Step, "error", err)
		return group.Event{Outcome: group.Unavailable}
	}
	e := m.put(ctx, a.Key, text, a.Version == "", a.Version)
	if e.Outcome == group.OK {
		m.noteCommit(a.Key, text)
	}
	return e
}

// noteCommit keeps the newest COMMIT.json that this process has seen.
func (m *member) noteCommit(key string, text []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	clear(m.commits)
	m.commits[key] = text
}

// newest finds the newest good step that is final, by the time of its COMMIT.
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
