package checkpoint

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/stager-dev/stager/backends"
)

// A step of several nodes is whole when each has brought its part. Nobody leads: a
// node sends its files, then says so by its part, then looks whether all parts are
// there; who sees that writes COMMIT.json, of which one wins. The parts of one attempt
// make a step, never those of two: a node that comes late from an attempt before
// finds that a newer one has begun, and gives up.

// part is what one node brought to a step.
type part struct {
	APIVersion  string             `json:"apiVersion"`
	Kind        string             `json:"kind"`
	Step        int64              `json:"step"`
	Node        int                `json:"node"`
	Attempt     int                `json:"attempt,omitempty"`
	SamplesSeen int64              `json:"samplesSeen,omitempty"`
	Metrics     map[string]float64 `json:"metrics,omitempty"`
	Cursors     Cursors            `json:"cursors,omitempty"`
	Data        string             `json:"data"`
	Files       []File             `json:"files"`
}

// waitingError says which nodes a step waits for.
type waitingError struct{ nodes []int }

func (e *waitingError) Error() string {
	what := "the part of node"
	if len(e.nodes) > 1 {
		what = "the parts of nodes"
	}
	return fmt.Sprintf("it is sent, and waits for %s %s", what, strings.Trim(fmt.Sprint(e.nodes), "[]"))
}

// fenced says that this attempt is over.
func fenced(dir string, newer, own int) error {
	return conflict(dir, "attempt %d has begun to save it, and this is attempt %d", newer, own)
}

// bring says in the store what this node has sent.
func (s *shipper) bring(ctx context.Context, dir string, p part) error {
	text, err := encode(p)
	if err == nil {
		_, err = s.store.PutBytes(ctx, dir+"/"+partKey(p.Attempt, p.Node), text, backends.CreateOptions{})
	}
	return err
}

// record says in the store what an upload refers to, under a name of its own.
func (s *shipper) record(ctx context.Context, dir, id string, p part) error {
	text, err := encode(p)
	if err == nil {
		_, err = s.store.PutBytes(ctx, dir+"/"+recordKey(id), text, backends.CreateOptions{})
	}
	return err
}

// gather reads the parts of all nodes, in their order. A single node has its own.
func (s *shipper) gather(ctx context.Context, dir string, own part) ([]part, error) {
	if s.nodes <= 1 {
		return []part{own}, nil
	}
	parts, found := make([]part, s.nodes), make(map[int]bool)
	for obj, err := range s.store.List(ctx, dir+"/"+partsDir+"/") {
		if err != nil {
			return nil, err
		}
		attempt, node, ok := parsePartKey(strings.TrimPrefix(obj.Key, dir+"/"))
		switch {
		case !ok || node >= len(parts) || attempt < s.attempt:
		case attempt > s.attempt:
			return nil, fenced(dir, attempt, s.attempt)
		default:
			found[node] = true
		}
	}
	var missing []int
	for node := range parts {
		if !found[node] {
			missing = append(missing, node)
		}
	}
	if len(missing) > 0 {
		return nil, &waitingError{missing}
	}
	for node := range parts {
		p, err := readPart(ctx, s.store, dir+"/"+partKey(s.attempt, node))
		if err != nil {
			return nil, err
		}
		parts[node] = p
	}
	return parts, nil
}

func readPart(ctx context.Context, store *backends.Store, key string) (p part, err error) {
	text, _, err := store.ReadAll(ctx, key, commitLimit)
	if err != nil {
		return part{}, err
	}
	if err := json.Unmarshal(text, &p); err != nil || p.Kind != partKind {
		return part{}, backends.Errorf(backends.Corrupt, "read", key, "it is no part of a checkpoint: %w", err)
	}
	return p, nil
}

// join makes the COMMIT of all parts.
func (s *shipper) join(step int64, dir string, parts []part) Commit {
	first := parts[0]
	c := Commit{
		APIVersion: apiVersion, Kind: commitKind, Step: step, Created: time.Now().UTC(), Nodes: len(parts), Attempt: s.attempt,
		Stager: s.stager, SamplesSeen: first.SamplesSeen, Metrics: first.Metrics, Cursors: joinCursors(parts), Data: first.Data,
	}
	for node, p := range parts {
		for _, f := range p.Files {
			if f.Node = node; node > 0 && f.At == "" {
				f.At = dir + "/" + p.Data + "/" + f.Path
			}
			c.Bytes += f.Size
			c.Files = append(c.Files, f)
		}
	}
	return c
}
