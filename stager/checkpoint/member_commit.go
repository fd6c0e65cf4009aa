package checkpoint

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/stager/checkpoint/group"
)

// This file makes the COMMIT.json of a step of several nodes: the files of all their parts.

// payloads decodes the payloads of parts. A node without files has an empty part.
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

// join makes the COMMIT of a save. It returns an error if the COMMIT would be invalid, because a
// COMMIT that restore rejects must not be written.
func (m *member) join(a group.Action, to string) (c Commit, text []byte, err error) {
	parts, err := payloads(a.Parts)
	if err != nil {
		return c, nil, err
	}
	if c = joinParts(group.StepDir(a.Save.Step, 0), to, parts); len(c.Files) == 0 {
		return c, nil, errors.New("no node has files of this step")
	}
	c.Step, c.Created, c.Stager, c.Group = a.Save.Step, now(), m.u.cfg.Stager, &a.Joined
	c.Provisional, c.Restored, c.Completed = a.Joined.Provisional, a.Save.Round, completedAt(parts, m.u.cfg.Node, c.Created)
	if err := c.check(); err != nil {
		return c, nil, err
	}
	if text, err = encode(&c); err == nil && len(text) > commitLimit {
		err = fmt.Errorf("it would have %d bytes (at most %d are allowed)", len(text), commitLimit)
	}
	return c, text, err
}

// completedAt returns when the checkpoint of all parts was complete. It uses the clock of the
// committing node if that node has files, else the latest time of the others.
func completedAt(parts []part, node int, created time.Time) (at time.Time) {
	for _, p := range parts {
		switch {
		case p.Data == "" || p.Completed.After(created): // no files here, or a clock that is ahead
		case p.Node == node:
			return p.Completed
		case p.Completed.After(at):
			at = p.Completed
		}
	}
	return at
}

// verifyParts checks that the data of the parts exists. It accepts this node's own part without
// data.
func (m *member) verifyParts(ctx context.Context, a group.Action) group.Event {
	dir := group.StepDir(a.Save.Step, 0)
	var c Commit
	var err error
	if len(a.Parts) == 1 {
		var parts []part
		parts, err = payloads(a.Parts)
		c = joinParts(dir, "", parts)
	} else {
		c, _, err = m.join(a, "")
	}
	if err != nil {
		return group.Event{Outcome: group.Corrupt, Why: err.Error()}
	}
	sizes, err := m.sizes(ctx, dir, &c, len(a.Parts))
	switch {
	case err != nil:
		m.note(err, true)
		return group.Event{Outcome: group.Unavailable}
	case c.missing(dir, sizes) != nil:
		return group.Event{Outcome: group.NotExist}
	}
	return group.Event{Outcome: group.OK}
}

// sizes lists the files of c, a step of several nodes, in the store.
func (m *member) sizes(ctx context.Context, dir string, c *Commit, nodes int) (map[string]int64, error) {
	if nodes <= 1 {
		return sizesOf(ctx, m.u.cfg.Store, dir, c)
	}
	sizes := make(map[string]int64)
	var mu sync.Mutex // guards sizes
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(gatherWidth)
	for _, prefix := range dataPrefixes(dir, c) {
		g.Go(func() error {
			for obj, err := range m.u.cfg.Store.List(gctx, prefix) {
				if err != nil {
					return err
				}
				mu.Lock()
				sizes[obj.Key] = obj.Size
				mu.Unlock()
			}
			return nil
		})
	}
	return sizes, g.Wait()
}

// fewUploads is up to how many uploads of an earlier step are listed one by one.
const fewUploads = 4

// dataPrefixes returns the prefixes to list to find all files of c. The data of the step's own
// directory is listed at once. So is the data of an earlier step, unless c references few of its
// uploads: a thousand nodes may reference a thousand uploads of one earlier step.
func dataPrefixes(dir string, c *Commit) (prefixes []string) {
	uploads := make(map[string]map[string]bool) // by the step's directory
	for _, f := range c.Files {
		directory := uploadDir(c.key(dir, f))
		of, _, _ := strings.Cut(directory, "/")
		if uploads[of] == nil {
			uploads[of] = make(map[string]bool)
		}
		uploads[of][directory] = true
	}
	for of, directories := range uploads {
		if of == dir || len(directories) > fewUploads {
			prefixes = append(prefixes, of+"/"+dataDir+"/")
			continue
		}
		prefixes = slices.AppendSeq(prefixes, maps.Keys(directories))
	}
	return prefixes
}

// joinParts returns a COMMIT, for the directory to, with the files of all parts. The data is
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
		if first || p.Provisional && !c.Provisional { // the weakest evidence counts
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
	_, text, err := m.join(a, strings.TrimSuffix(a.Key, "/"+commitKey))
	if err != nil {
		return group.Event{Outcome: group.Corrupt, Why: err.Error()}
	}
	unlock, err := m.u.locks.lock(ctx, a.Save.Step)
	if err != nil {
		return group.Event{Outcome: group.Unavailable}
	}
	defer unlock()
	e := m.put(ctx, a.Key, text, a.Version == "", a.Version)
	if e.Outcome == group.OK {
		m.noteCommit(a.Key, text, e.Version)
	}
	return e
}

// noteCommit records this node's files of the last COMMIT.json that it read or wrote.
func (m *member) noteCommit(key string, text []byte, version string) {
	dir := strings.TrimSuffix(key, "/"+commitKey)
	m.mu.Lock()
	known := m.last != nil && m.last.dir == dir && version != "" && string(m.last.version) == version
	m.mu.Unlock()
	if known {
		return
	}
	c, err := DecodeCommit(text)
	if err != nil {
		return // an invalid COMMIT cannot be reused
	}
	c.Files = filesOf(c, m.u.cfg.Node)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.last = &earlier{dir: dir, commit: c, version: backends.Version(version)}
}

// recall returns the last committed step that this node knows. If it knows none, it reads the one
// that LATEST names, once per process.
func (m *member) recall(ctx context.Context) *earlier {
	m.mu.Lock()
	last, asked := m.last, m.requested
	m.requested = true
	m.mu.Unlock()
	if last != nil || asked {
		return last
	}
	text, _, err := m.u.cfg.Store.ReadAll(ctx, latestKey, maxName)
	if err != nil {
		return nil
	}
	dir := strings.TrimSpace(string(text))
	if _, _, ok := parseStepDir(dir); !ok {
		return nil
	}
	m.read(ctx, dir+"/"+commitKey)
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.last
}
