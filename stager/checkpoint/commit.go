package checkpoint

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"path"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/dustin/go-humanize/english"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/stager/checkpoint/group"
)

// Header and size limit of COMMIT.json.
const (
	apiVersion  = "stager.dev/v1alpha1"
	commitKind  = "Checkpoint"
	partKind    = "CheckpointPart"
	commitLimit = 64 << 20
)

// Commit is the content of a COMMIT.json. A step exists when it has one.
type Commit struct {
	APIVersion  string    `json:"apiVersion"`
	Kind        string    `json:"kind"`
	Step        int64     `json:"step"`
	Created     time.Time `json:"created"`
	Completed   time.Time `json:"completed,omitzero"` // when the checkpoint was complete, by the clock of Created; zero: unknown
	Nodes       int       `json:"nodes"`
	Attempt     int       `json:"attempt"`               // fencing token: an older one never overwrites a newer
	Stager      string    `json:"stager,omitempty"`      // version of the writer
	SamplesSeen int64     `json:"samplesSeen,omitempty"` // as the trainer reported, like Metrics
	Data        string    `json:"data"`                  // directory of the files, relative to the step's
	Bytes       int64     `json:"bytes"`
	Files       []File    `json:"files"`

	Metrics map[string]float64 `json:"metrics,omitempty"`

	// Evidence names what proved that the checkpoint is complete, such as "sign .metadata".
	Evidence string `json:"evidence,omitempty"`
	// Provisional means that only a quiet period or the next checkpoint did. The uploader that wrote this COMMIT
	// replaces it when the checkpoint grows; with several nodes, a later save does.
	Provisional bool `json:"provisional,omitempty"`

	// Requires names features that a reader must support to use the checkpoint. Unknown fields
	// may be ignored.
	Requires []string `json:"requires,omitempty"`
	// Group identifies the save and its members, with several nodes.
	Group *group.Joined `json:"group,omitempty"`
	// Restored is the number of the last restore agreement of the job's nodes when the files
	// appeared; 0: there was none.
	Restored int `json:"restored,omitempty"`

	// Cursors are the positions of the inputs: for each input, those of all nodes.
	Cursors map[string][]json.RawMessage `json:"cursors,omitempty"`
}

// File is one file of a checkpoint.
type File struct {
	Path     string    `json:"path"`
	Size     int64     `json:"size"`
	Mode     uint32    `json:"mode"` // permission bits
	Modified time.Time `json:"modified"`
	Digest   string    `json:"digest"`         // algorithm:hex
	Node     int       `json:"node,omitempty"` // the node that sent it
	// At is the key of its bytes in the destination if they are not below the COMMIT's Data.
	// Another node or an earlier step sent them.
	At string `json:"at,omitempty"`
}

// key returns the key of the bytes of a file, which the COMMIT in directory dir lists.
func (c *Commit) key(dir string, f File) string {
	if f.At != "" {
		return f.At
	}
	return dir + "/" + c.Data + "/" + f.Path
}

// checkAt rejects keys that cannot belong to a file sent by stager.
func checkAt(at string) error {
	dir, rest, _ := strings.Cut(at, "/")
	data, rest, _ := strings.Cut(rest, "/")
	id, p, _ := strings.Cut(rest, "/")
	if _, _, ok := parseStepDir(dir); !ok || data != dataDir || !uploadID.MatchString(id) {
		return fmt.Errorf("%q is not the location of a file", at)
	}
	return checkPath(p)
}

// DecodeCommit decodes a COMMIT.json. It ignores unknown fields. It rejects a COMMIT that
// requires unknown features, or whose paths could lead out of the restored directory. Its errors
// are of kind Corrupt or Unsupported.
func DecodeCommit(p []byte) (Commit, error) {
	var c Commit
	dec := json.NewDecoder(bytes.NewReader(p))
	if err := dec.Decode(&c); err != nil {
		return Commit{}, backends.Errorf(backends.Corrupt, "read", commitKey, "%w", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return Commit{}, backends.Errorf(backends.Corrupt, "read", commitKey, "there is data after the JSON object")
	}
	if c.APIVersion != apiVersion || c.Kind != commitKind {
		return Commit{}, backends.Errorf(backends.Unsupported, "read", commitKey,
			"it is a %q of %q; this stager reads a %q of %q", c.Kind, c.APIVersion, commitKind, apiVersion)
	}
	if len(c.Requires) > 0 { // this version knows none
		return Commit{}, backends.Errorf(backends.Unsupported, "read", commitKey, "it requires %q, which a later version of stager knows", c.Requires)
	}
	if err := c.check(); err != nil {
		return Commit{}, backends.Errorf(backends.Corrupt, "read", commitKey, "%w", err)
	}
	return c, nil
}

func (c *Commit) check() error {
	id, ok := strings.CutPrefix(c.Data, dataDir+"/")
	if !ok || !uploadID.MatchString(id) {
		return fmt.Errorf("%q is not a data directory", c.Data)
	}
	if c.Step < 0 || len(c.Files) == 0 || c.Nodes < 1 {
		return fmt.Errorf("step %d with %s of %s is not valid", c.Step, english.Plural(len(c.Files), "file", ""), english.Plural(c.Nodes, "node", ""))
	}
	var total int64
	type place struct {
		node int
		path string
	}
	seen := make(map[place]bool, len(c.Files))
	for _, f := range c.Files {
		if err := checkPath(f.Path); err != nil {
			return err
		}
		if f.At != "" {
			if err := checkAt(f.At); err != nil {
				return err
			}
		}
		if f.Node < 0 || f.Node >= c.Nodes {
			return fmt.Errorf("%q belongs to node %d, but there %s only %s", f.Path, f.Node, english.PluralWord(c.Nodes, "is", "are"), english.Plural(c.Nodes, "node", ""))
		}
		if seen[place{f.Node, f.Path}] {
			return fmt.Errorf("%q is listed twice", f.Path)
		}
		seen[place{f.Node, f.Path}] = true
		if f.Size < 0 || f.Size > math.MaxInt64-total {
			return fmt.Errorf("%q cannot have %d bytes", f.Path, f.Size)
		}
		total += f.Size
		if sum, err := backends.ParseChecksum(f.Digest); err != nil || sum.IsZero() {
			return fmt.Errorf("%q has an unknown kind of digest: %q", f.Path, f.Digest)
		}
	}
	for _, f := range c.Files {
		for dir := path.Dir(f.Path); dir != "."; dir = path.Dir(dir) {
			if seen[place{f.Node, dir}] {
				return fmt.Errorf("%q is both a file and a directory", dir)
			}
		}
	}
	if total != c.Bytes {
		return fmt.Errorf("its files have %d bytes (want %d)", total, c.Bytes)
	}
	return nil
}

// maxPath bounds a path and maxName each of its elements, as Linux does.
const (
	maxPath = 4096
	maxName = 255
)

// checkPath rejects paths that cannot belong to a file of a checkpoint: those that lead out of
// it, and those reserved for stager.
func checkPath(p string) error {
	if !fs.ValidPath(p) || p == "." || len(p) > maxPath || strings.ContainsRune(p, 0) || !utf8.ValidString(p) {
		return fmt.Errorf("%q is not a valid path of a file in a checkpoint", p)
	}
	for name := range strings.SplitSeq(p, "/") {
		if len(name) > maxName {
			return fmt.Errorf("a name in %q is longer than %d bytes", p, maxName)
		}
	}
	if ours(p) {
		return fmt.Errorf("%q is a name that stager reserves", p)
	}
	return nil
}

// ours reports whether a path relative to a checkpoint or an output is reserved for stager.
func ours(p string) bool {
	top, _, _ := strings.Cut(p, "/")
	return strings.HasPrefix(top, private) || top == restored || top == markerName
}

func encode(v any) ([]byte, error) {
	p, err := json.MarshalIndent(v, "", " ")
	return append(p, '\n'), err
}
