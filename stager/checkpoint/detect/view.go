package detect

import (
	"path"
	"slices"
	"strings"
	"time"

	"github.com/stager-dev/stager/stager/checkpoint/format"
)

// A File is a file of a checkpoint.
type File struct {
	Path     string // below the checkpoint
	Size     int64
	Modified int64 // nanoseconds
	Named    int64 // when it was last written, renamed or linked, in nanoseconds; 0: not known
	Writing  bool  // somebody has it open for writing
	Format   format.Result
}

// A Note is a small file whose content is evidence.
type Note struct {
	Text     string
	Modified int64 // nanoseconds
}

// A View is what is known of a checkpoint.
type View struct {
	Name  string // below the output
	Files []File // ascending by path
	One   bool   // the checkpoint is one file
	Group bool   // it is the files that begin with Name, as TensorFlow writes them

	Notes  map[string]Note // content of those Files that NeedsNotice names
	Beside map[string]Note // content of files in the directory of the checkpoint, likewise
	Mark   string          // an unfinished name of it that stands beside it, or ""

	Committed bool          // the trainer said that it is complete
	Marked    bool          // it holds a valid marker
	Renamed   bool          // it came under its name by a rename from a temporary one
	Shrunk    string        // a file that Removed returned since it was first seen, or ""
	Changed   int64         // when an entry of its directories last came or went, in nanoseconds; 0: not known
	Quiet     time.Duration // how long nothing changed
	Next      bool          // a later checkpoint has begun since it changed last
	Ended     bool          // the trainer ended, and ended well
	Draining  bool          // stager ends, and the trainer may go on
	Part      bool          // other nodes hold other files of it
	Other     bool          // signs of frameworks are not asked for: another node has them
}

// NeedsNotice reports whether Judge reads the content of a file of this path, in the
// checkpoint or beside it. Content of more than NoteLimit bytes is left out.
func NeedsNotice(p string) bool {
	switch path.Base(p) {
	case "latest", "latest_checkpointed_iteration.txt", "checkpoint", raySnapshot:
		return true
	}
	return format.IsIndex(p)
}

// NoteLimit is the longest Note.
const NoteLimit = 16 << 20

// find returns the file at p.
func (v View) find(p string) (File, bool) {
	i, ok := slices.BinarySearchFunc(v.Files, p, func(f File, p string) int { return strings.Compare(f.Path, p) })
	if !ok {
		return File{}, false
	}
	return v.Files[i], true
}

// Removed returns a path of before that is not in now and was no temporary name, or "":
// somebody removes the checkpoint. Both are ascending.
func Removed(before, now []string) string {
	for _, p := range before {
		if _, ok := slices.BinarySearch(now, p); !ok && !temporaryPath(p) && path.Base(p) != incompleteMark {
			return p
		}
	}
	return ""
}

// A Kind is a kind of evidence.
type Kind string

// The kinds. Said, Sign, Shape, Structure and End are final; Quiet is provisional; of the
// others the checkpoint is not complete.
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

// A Judgement is what the evidence says of a checkpoint.
type Judgement struct {
	Kind   Kind
	Word   string        // the evidence in one or two words, for records: "sign .metadata"
	Reason string        // a sentence without its full stop, beginning in lower case
	Wait   time.Duration // of Waiting: how much more quiet would complete it; 0: none
	Unsure bool          // of Denied: something else than is thought may have written it
}

// Complete reports whether the checkpoint is complete.
func (j Judgement) Complete() bool { return j.Final() || j.Kind == Quiet }

// Final reports whether the checkpoint is complete beyond doubt.
func (j Judgement) Final() bool {
	switch j.Kind {
	case Said, Sign, Shape, Structure, End:
		return true
	}
	return false
}
