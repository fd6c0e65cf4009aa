package checkpoint

import (
	"context"
	"encoding/json"
	"time"

	"github.com/stager-dev/stager/backends"
)

// part is what one node saved of a step.
type part struct {
	APIVersion  string             `json:"apiVersion"`
	Kind        string             `json:"kind"`
	Step        int64              `json:"step"`
	Node        int                `json:"node"`
	Attempt     int                `json:"attempt,omitempty"`
	SamplesSeen int64              `json:"samplesSeen,omitempty"`
	Metrics     map[string]float64 `json:"metrics,omitempty"`
	Cursors     Cursors            `json:"cursors,omitempty"`
	Evidence    string             `json:"evidence,omitempty"`
	Provisional bool               `json:"provisional,omitempty"`
	Restored    int                `json:"restored,omitempty"` // as in a Commit
	Completed   time.Time          `json:"completed,omitzero"` // as in a Commit, by the node's clock
	Data        string             `json:"data"`
	Files       []File             `json:"files"`
}

// upload writes the part of this node to the store.
func (s *shipper) upload(ctx context.Context, dir string, p part) error {
	text, err := encode(p)
	if err == nil {
		_, err = s.store.PutBytes(ctx, dir+"/"+partKey(p.Attempt, p.Node), text, backends.CreateOptions{})
	}
	return err
}

// record writes what an upload refers to, under a key that only this upload uses.
func (s *shipper) record(ctx context.Context, dir, id string, p part) error {
	text, err := encode(p)
	if err == nil {
		_, err = s.store.PutBytes(ctx, dir+"/"+recordKey(id), text, backends.CreateOptions{})
	}
	return err
}

func readPart(ctx context.Context, store *backends.Store, key string) (p part, err error) {
	text, _, err := store.ReadAll(ctx, key, commitLimit)
	if err != nil {
		return part{}, err
	}
	if err := json.Unmarshal(text, &p); err != nil || p.Kind != partKind {
		return part{}, backends.Errorf(backends.Corrupt, "read", key, "it is not a part of a checkpoint: %w", err)
	}
	return p, nil
}

// single returns the COMMIT of a job with one node.
func (s *shipper) single(dir string, own part) Commit {
	c := joinParts(dir, dir, []part{own})
	c.Step, c.Created, c.Completed, c.Attempt, c.Stager = own.Step, now(), own.Completed, s.attempt, s.stager
	return c
}
