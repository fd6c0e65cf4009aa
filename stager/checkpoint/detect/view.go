package detect

import (
	"path"
	"slices"
	"strings"
	"time"

	"github.com/stager-dev/stager/stager/checkpoint/format"
)

// File is a file of a checkpoint.
type File struct {
	Path     string // below the checkpoint
	Size     int64
	Modified int64 // nanoseconds
	Named    int64 // time of the last write, rename or link, in nanoseconds; 0: unknown
	Writing  bool  // open for writing
	Format   format.Result
}

// Note is a small file whose content is evidence.
type Note struct {
	Text     string
	Modified int64 // nanoseconds
}

// View describes what is known of a checkpoint.
type View struct {
	Name  string // below the output
	Files []File // sorted by path
	One   bool   // the checkpoint is a single file
	Group bool   // it consists of the files that begin with Name, as TensorFlow writes them

	Notes  map[string]Note // content of those Files that NeedsNotice selects
	Beside map[string]Note // likewise, for files in the directory of the checkpoint
	Mark   string          // its temporary name, if an entry with that name is beside it; or ""

	Committed bool          // the trainer committed it
	Marked    bool          // it contains a valid marker
	Renamed   bool          // it was renamed from a temporary name
	Shrunk    string        // a file that Removed returned since it was first seen, or ""
	Changed   int64         // last change of an entry of its directories, in nanoseconds; 0: unknown
	Quiet     time.Duration // time since the last change
	Next      bool          // a later checkpoint has begun since its last change
	Ended     bool          // the trainer exited successfully
	Draining  bool          // stager is draining, and the trainer may continue
	Part      bool          // other nodes hold other files of it
	Other     bool          // do not require framework signs: another node has them
}

// NeedsNotice reports whether Judge reads the content of a file with this path, in the checkpoint
// or beside it. Content of more than NoteLimit bytes is omitted.
func NeedsNotice(p string) bool {
	switch path.Base(p) {
	case "latest", "latest_checkpointed_iteration.txt", "checkpoint", raySnapshot:
		return true
	}
	return format.IsIndex(p)
}

// NoteLimit is the maximum size of a Note in bytes.
const NoteLimit = 16 << 20

// find returns the file at p.
func (v View) find(p string) (File, bool) {
	i, ok := slices.BinarySearchFunc(v.Files, p, func(f File, p string) int { return strings.Compare(f.Path, p) })
	if !ok {
		return File{}, false
	}
	return v.Files[i], true
}

// Removed returns a path of before that is missing from now and is not a temporary name, or "".
// Such a path means that the checkpoint is being removed. Both slices must be sorted.
func Removed(before, now []string) string {
	for _, p := range before {
		if _, ok := slices.BinarySearch(now, p); !ok && !temporaryPath(p) && path.Base(p) != incompleteMark {
			return p
		}
	}
	return ""
}

// Kind is a kind of evidence.
type Kind string

// The kinds of evidence. Said, Sign, Shape, Structure and End are final. Quiet is provisional.
// With Waiting and Denied the checkpoint is not complete.
const (
	Said      Kind = "said"
	Sign      Kind = "sign"
	Shape     Kind = "shape"
	Structure Kind = "structure"
	End       Kind = "end"
	Quiet     Kind = "quiet"
	Waiting   Kind = "waiting" // time or another file may complete it
	Denied    Kind = "denied"  // time does not complete it
)

// Judgement is the result of evaluating the evidence for a checkpoint.
type Judgement struct {
	Kind   Kind
	Word   string        // the evidence in one or two words, for records: "sign .metadata"
	Reason string        // a sentence without a full stop, in lower case
	Wait   time.Duration // of Waiting: further quiet time that would complete it; 0: unknown
	Unsure bool          // of Denied: another program than assumed may have written it
	Advice string        // of Quiet: what the user can do to make it final; empty: later ones may confirm it
}

// Complete reports whether the checkpoint is complete.
func (j Judgement) Complete() bool { return j.Final() || j.Kind == Quiet }

// Final reports whether the checkpoint is certainly complete.
func (j Judgement) Final() bool {
	switch j.Kind {
	case Said, Sign, Shape, Structure, End:
		return true
	}
	return false
}
