package group

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// apiVersion is part of every record.
const apiVersion = "stager.dev/v1alpha1"

// Limits for the content of a record.
const (
	maxName   = 512
	maxCount  = 1 << 17
	maxBootID = 128
	maxFormer = 16
	maxReason = 4096
	// RecordLimit is the maximum size of a record in bytes.
	RecordLimit = 64 << 20
)

// ErrUnsupported is wrapped in errors about records that need a later version of stager.
var ErrUnsupported = errors.New("it requires a later version of stager")

// features are the features that a record may require of its reader.
var features = []string{}

// Header is the start of every record.
type Header struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"`
	Requires   []string `json:"requires,omitempty"` // features that a reader must know
}

// Member is nodes/members/<index>.json: who runs at an index.
type Member struct {
	Header
	Job    string   `json:"job"`
	Index  int      `json:"index"`
	Count  int      `json:"count"`
	Boot   string   `json:"boot"`
	Beat   int64    `json:"beat"`             // increases while the member is alive
	State  string   `json:"state,omitempty"`  // [Left], or empty
	Former []string `json:"former,omitempty"` // boot ids of this job that were replaced, oldest first
}

// Left is the State of a member that exited in order.
const Left = "left"

// View is nodes/view.json: the members that save together.
type View struct {
	Header
	Seq    int64    `json:"seq"` // increases by one with each view of a destination
	Job    string   `json:"job"`
	Count  int      `json:"count"`
	Digest string   `json:"view"`
	Boots  []string `json:"boots"` // by index
	// Former are the earlier views of this job, newest first.
	Former []string `json:"former,omitempty"`
}

// Scope is the set of nodes whose files an announcement declares complete.
type Scope string

// The scopes of an announcement.
const (
	ScopeJob  Scope = "job"  // every node's files are complete
	ScopeNode Scope = "node" // the announcing node's files are complete
)

// Announcement is nodes/views/<view>/<save>.json.
type Announcement struct {
	Header
	View    string `json:"view"`
	Save    int    `json:"save"` // its number, from 1
	Step    int64  `json:"step"`
	Round   int    `json:"round"`   // see [Local]
	Writing int    `json:"writing"` // how often the step was written in the round, as counted by node By, from 1
	Edition int    `json:"edition"` // which files of the writing, from 1
	Scope   Scope  `json:"scope"`
	By      int    `json:"by"`
	// Provisional reports that the announcing node has no sign. The save is then provisional
	// whatever the other nodes have.
	Provisional bool `json:"provisional,omitempty"`
	// Before is what node By saw complete before, oldest first. From it, a node that has not seen
	// Step complete yet knows which checkpoints are older.
	Before []WritingOf `json:"before,omitempty"`
}

// WritingOf is one writing of a step by the trainer.
type WritingOf struct {
	Round   int   `json:"round"`
	Step    int64 `json:"step"`
	Writing int   `json:"writing"`
}

// Part is step-S/parts/<view>/<save>/<index>.json.
type Part struct {
	Header
	View        string          `json:"view"`
	Save        int             `json:"save"`
	Step        int64           `json:"step"`
	Index       int             `json:"index"`
	Count       int             `json:"count"`
	Boot        string          `json:"boot"`
	Pod         string          `json:"pod,omitempty"`         // this run of the pod
	Failed      string          `json:"failed,omitempty"`      // why this node cannot take part; ends the save
	Provisional bool            `json:"provisional,omitempty"` // no sign proves that it is complete
	Payload     json.RawMessage `json:"payload,omitempty"`     // what the node saved; absent when it has no files
}

// Joined is the "group" object of a COMMIT.json. It identifies the save.
type Joined struct {
	Job         string   `json:"job"`
	View        string   `json:"view"`
	Seq         int64    `json:"seq"` // of the view
	Save        int      `json:"save"`
	Count       int      `json:"count"`
	Provisional bool     `json:"provisional,omitempty"`
	Parts       []string `json:"parts"` // digests of the parts, by index
}

// The kinds of records.
const (
	kindMember       = "Member"
	kindView         = "View"
	kindAnnouncement = "Announcement"
	kindPart         = "Part"
	kindCommit       = "Checkpoint"
)

var (
	bootID     = regexp.MustCompile(`^[0-9a-zA-Z._-]+$`) // with up to maxBootID bytes
	viewDigest = regexp.MustCompile(`^[0-9a-f]{32}$`)
)

func (h *Header) check(kind string) error {
	if h.APIVersion != apiVersion || h.Kind != kind {
		return fmt.Errorf("a %q of %q is no %q of %q: %w", h.Kind, h.APIVersion, kind, apiVersion, ErrUnsupported)
	}
	for _, f := range h.Requires {
		if !slices.Contains(features, f) {
			return fmt.Errorf("it requires %q: %w", f, ErrUnsupported)
		}
	}
	return nil
}

func checkIdentity(job, boot string, index, count int) error {
	switch {
	case job == "" || len(job) > maxName || !utf8.ValidString(job):
		return fmt.Errorf("job: want 1 to %d bytes of UTF-8 (got %q)", maxName, job)
	case len(boot) > maxBootID || !bootID.MatchString(boot):
		return fmt.Errorf("boot id: want letters, digits, '.', '_' or '-' (got %q)", boot)
	case count < 1 || count > maxCount:
		return fmt.Errorf("count of nodes: want 1 to %d (got %d)", maxCount, count)
	case index < 0 || index >= count:
		return fmt.Errorf("index: want 0 to %d, since there are %d nodes (got %d)", count-1, count, index)
	}
	return nil
}

func (m *Member) check() error {
	if err := m.Header.check(kindMember); err != nil {
		return err
	}
	if m.Beat < 0 || len(m.Former) > maxFormer {
		return fmt.Errorf("beat %d with %d former boot ids is not valid", m.Beat, len(m.Former))
	}
	return checkIdentity(m.Job, m.Boot, m.Index, m.Count)
}

func (v *View) check() error {
	if err := v.Header.check(kindView); err != nil {
		return err
	}
	if v.Count != len(v.Boots) || v.Seq < 1 {
		return fmt.Errorf("view %d of %d nodes has %d boot ids", v.Seq, v.Count, len(v.Boots))
	}
	if len(v.Former) > maxFormer || slices.ContainsFunc(v.Former, func(d string) bool { return !viewDigest.MatchString(d) }) {
		return fmt.Errorf("former views %q are not valid", v.Former)
	}
	for i, boot := range v.Boots {
		if err := checkIdentity(v.Job, boot, i, v.Count); err != nil {
			return err
		}
	}
	if want := digestOf(v.Job, v.Boots); v.Digest != want {
		return fmt.Errorf("the digest of its members is %s (got %s)", want, v.Digest)
	}
	return nil
}

func (a *Announcement) check() error {
	if err := a.Header.check(kindAnnouncement); err != nil {
		return err
	}
	if !viewDigest.MatchString(a.View) || a.Save < 1 || a.Step < 0 || a.Round < 0 || a.Writing < 1 || a.Edition < 0 || a.By < 0 {
		return fmt.Errorf("save %d of step %d (round %d, writing %d) in view %q is not valid", a.Save, a.Step, a.Round, a.Writing, a.View)
	}
	if len(a.Before) > maxBefore {
		return fmt.Errorf("save %d names %d earlier checkpoints, more than %d", a.Save, len(a.Before), maxBefore)
	}
	if a.Scope != ScopeJob && a.Scope != ScopeNode {
		return fmt.Errorf("unknown scope %q; known are %s, %s", a.Scope, ScopeJob, ScopeNode)
	}
	return nil
}

func (p *Part) check() error {
	if err := p.Header.check(kindPart); err != nil {
		return err
	}
	if !viewDigest.MatchString(p.View) || p.Save < 1 || p.Step < 0 || len(p.Failed) > maxReason {
		return fmt.Errorf("a part of save %d of step %d in view %q is not valid", p.Save, p.Step, p.View)
	}
	return checkIdentity("any", p.Boot, p.Index, p.Count)
}

// checker is a record that can validate itself.
type checker[T any] interface {
	*T
	check() error
}

// decode decodes and validates a record. It ignores unknown fields.
func decode[T any, P checker[T]](body []byte) (T, error) {
	var rec T
	if len(body) > RecordLimit {
		return rec, fmt.Errorf("it has %d bytes, more than %d", len(body), RecordLimit)
	}
	if err := json.Unmarshal(body, &rec); err != nil {
		return rec, err
	}
	return rec, P(&rec).check()
}

// DecodeMember decodes a member record.
func DecodeMember(body []byte) (Member, error) { return decode[Member](body) }

// DecodeView decodes nodes/view.json.
func DecodeView(body []byte) (View, error) { return decode[View](body) }

// DecodeAnnouncement decodes an announcement.
func DecodeAnnouncement(body []byte) (Announcement, error) { return decode[Announcement](body) }

// DecodePart decodes a part.
func DecodePart(body []byte) (Part, error) { return decode[Part](body) }

// DecodeJoined returns the save of a COMMIT.json, or nil when no group wrote it. It returns an
// error when the COMMIT requires an unknown feature; such a COMMIT is never replaced. The caller
// checks the rest of the file.
func DecodeJoined(body []byte) (*Joined, error) {
	var c struct {
		Header
		Group *Joined `json:"group"`
	}
	if err := json.Unmarshal(body, &c); err != nil {
		return nil, err
	}
	return c.Group, c.Header.check(kindCommit)
}

func encode(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err) // possible only with an invalid payload, which newPart refuses
	}
	return append(text, '\n')
}

// digestOf returns the name of a view.
func digestOf(job string, boots []string) string {
	h := sha256.New()
	fmt.Fprintf(h, "%q %d\n", job, len(boots))
	for _, boot := range boots {
		fmt.Fprintf(h, "%q\n", boot)
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

func digestBytes(body []byte) string {
	sum := sha256.Sum256(body)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// Keys at the destination.
const (
	// MembersPrefix is the prefix of member records.
	MembersPrefix = "nodes/members/"
	// ViewKey is the key of the current view.
	ViewKey = "nodes/view.json"
	// ViewsPrefix is the prefix of announcements.
	ViewsPrefix = "nodes/views/"
	commitName  = "COMMIT.json"
	partsName   = "parts"
	ending      = ".json"
)

func memberKey(index int) string { return fmt.Sprintf("%s%06d%s", MembersPrefix, index, ending) }

func logPrefix(view string) string { return ViewsPrefix + view + "/" }

func announceKey(view string, save int) string {
	return fmt.Sprintf("%s%08d%s", logPrefix(view), save, ending)
}

// StepDir returns the directory of a step. Suffix 0 is the plain name.
func StepDir(step int64, suffix int) string {
	if suffix > 0 {
		return fmt.Sprintf("step-%08d-attempt-%d", step, suffix)
	}
	return fmt.Sprintf("step-%08d", step)
}

// PartsPrefix returns the prefix of the parts of a save.
func PartsPrefix(step int64, id SaveID) string {
	return fmt.Sprintf("%s/%s/%s/%08d/", StepDir(step, 0), partsName, id.View, id.Number)
}

// PartKey returns the key of one part of a save.
func PartKey(step int64, id SaveID, index int) string {
	return fmt.Sprintf("%s%06d%s", PartsPrefix(step, id), index, ending)
}

// ParsePartKey returns the save and index of a part. rest is its key below a step's directory.
func ParsePartKey(rest string) (id SaveID, index int, ok bool) {
	f := strings.Split(strings.TrimSuffix(rest, ending), "/")
	if len(f) != 4 || f[0] != partsName || !viewDigest.MatchString(f[1]) || !strings.HasSuffix(rest, ending) {
		return SaveID{}, 0, false
	}
	number, err1 := strconv.Atoi(f[2])
	index, err2 := strconv.Atoi(f[3])
	id = SaveID{f[1], number}
	want := fmt.Sprintf("%s/%s/%08d/%06d%s", partsName, id.View, number, index, ending)
	return id, index, err1 == nil && err2 == nil && number > 0 && index >= 0 && rest == want
}
