package detect

import (
	"fmt"
	"path"
	"regexp"
	"strings"
	"time"

	"github.com/stager-dev/stager/stager/checkpoint/format"
)

// ShortQuiet is the quiet period after which a known shape, or a file that records its own end,
// completes a checkpoint.
const ShortQuiet = time.Second

// Judge returns the judgement on a checkpoint. shapes holds the shapes of earlier checkpoints of
// the output. quiet is the quiet period that completes a checkpoint without other evidence.
func Judge(v View, shapes *Shapes, quiet time.Duration) Judgement {
	if len(v.Files) == 0 {
		return Judgement{Kind: Waiting, Word: "empty", Reason: "it is empty"}
	}
	if writing := v.writing(); writing != "" {
		return denied("open", "%s is open for writing", writing)
	}
	if v.Committed {
		return Judgement{Kind: Said, Word: "commit", Reason: "the trainer committed it"}
	}
	if v.Mark != "" {
		return denied("unfinished", "%s still exists next to it", v.Mark)
	}
	if j := v.temporary(); j.Kind != "" {
		return j
	}
	if v.Shrunk != "" {
		return denied("removed", "%s was removed from it", v.Shrunk)
	}
	switch {
	case v.Marked:
		return Judgement{Kind: Said, Word: "marker", Reason: "it holds its marker"}
	case v.Renamed:
		return Judgement{Kind: Said, Word: "rename", Reason: "it was renamed into place"}
	}
	if j := v.broken(); j.Kind != "" {
		return j
	}
	sign := ""
	if !v.Other {
		var j Judgement
		if sign, j = v.signs(); j.Kind != "" {
			return j
		}
	}
	missing, same := "", false
	if !v.Part { // the files of a part vary with those of other nodes
		missing, same = shapes.compare(v)
	}
	if sign != "" && shapes.repeats(v) { // the signed checkpoint before it has the same files
		missing = ""
	}
	bySign := Judgement{Kind: Sign, Word: "sign " + path.Base(sign), Reason: sign + " says that it is complete"}
	switch {
	case sign != "" && missing == "" && v.Part && v.SignedForAll():
		return after(v.Quiet, min(quiet, ShortQuiet), bySign)
	case sign != "" && missing == "" && v.Part:
		return after(v.Quiet, quiet, bySign) // other ranks may still write here
	case sign != "" && missing == "" && !v.changedAfter(sign):
		return bySign
	case sign != "" && !v.Ended && !v.changedAfter(sign): // provisional, because a file may follow the sign
		bySign.Kind, bySign.Reason = Quiet, bySign.Reason+", though earlier checkpoints had "+missing
		return after(v.Quiet, min(quiet, ShortQuiet), bySign)
	case v.Ended && missing == "":
		return Judgement{Kind: End, Word: "end", Reason: "the trainer ended, and ended well"}
	case v.Ended:
		return Judgement{Kind: Quiet, Word: "end", Reason: "the trainer ended, though earlier checkpoints had " + missing}
	case missing != "" && sign == "" && !v.Draining:
		return Judgement{Kind: Waiting, Word: "missing", Reason: "earlier checkpoints had " + missing + ", which is not there"}
	case sign == "" && v.kerasBackupAlone():
		return v.weightsAlone(quiet)
	case same && sign == "":
		return after(v.Quiet, ShortQuiet, Judgement{Kind: Shape, Word: "shape", Reason: "it has the files of the checkpoints before it, all of them whole"})
	case v.One && !v.Part && ends(v.Files[0]):
		return after(v.Quiet, ShortQuiet, Judgement{Kind: Structure, Word: "structure " + v.Files[0].Format.Kind, Reason: "its only file was written to its end"})
	}
	if v.Next {
		return after(v.Quiet, min(quiet, ShortQuiet), Judgement{Kind: Quiet, Word: "next", Reason: "a later one has begun"})
	}
	return after(v.Quiet, quiet, Judgement{Kind: Quiet, Word: fmt.Sprintf("quiet %v", quiet), Reason: fmt.Sprintf("nothing in it changed for %v", quiet)})
}

// weightsAlone returns the judgement on a backup of Keras without metadata. The structure of HDF5
// shows that the weights are whole, so a short quiet period makes them a provisional checkpoint.
func (v View) weightsAlone(quiet time.Duration) Judgement {
	need := min(quiet, ShortQuiet)
	if f, _ := v.find(kerasWeights); f.Format.Verdict != format.Whole {
		need = quiet
	}
	return after(v.Quiet, need, Judgement{
		Kind: Quiet, Word: fmt.Sprintf("quiet %v", need),
		Reason: fmt.Sprintf("it has no %s, which Keras writes last since version 3.1, and %s did not change for %v", kerasMetadata, kerasWeights, need),
		Advice: "update Keras to 3.1 or later, or call stager commit after each backup",
	})
}

// slack is the maximum difference of the times within one step of a trainer.
const slack = 2 * time.Second

// changedAfter reports whether an entry of the checkpoint appeared or disappeared after its sign
// was written. A trainer that removes a checkpoint may remove the sign last.
func (v View) changedAfter(sign string) bool {
	f, ok := v.find(sign)
	return ok && v.Changed > max(f.Modified, f.Named)+int64(slack)
}

// ends reports whether the format of a file records its end, and is written sequentially.
func ends(f File) bool {
	return f.Format.Verdict == format.Whole && (f.Format.Kind == "zip" || f.Format.Kind == "safetensors")
}

// after returns j when the checkpoint was quiet for long enough, and a Waiting judgement
// otherwise.
func after(quiet, need time.Duration, j Judgement) Judgement {
	if quiet >= need {
		return j
	}
	return Judgement{Kind: Waiting, Word: "changing", Reason: fmt.Sprintf("something in it changed within the last %v", need), Wait: need - quiet}
}

func denied(word, format string, args ...any) Judgement {
	return Judgement{Kind: Denied, Word: word, Reason: fmt.Sprintf(format, args...)}
}

func (v View) writing() string {
	for _, f := range v.Files {
		if f.Writing {
			return f.Path
		}
	}
	return ""
}

const (
	incompleteMark  = "checkpoint-is-incomplete.txt" // of the Trainer's saves at SIGTERM
	orbaxTemporary  = ".orbax-checkpoint-tmp"
	tensorTemporary = `\.tempstate[0-9]+$`
)

var underWay = regexp.MustCompile(`^\.tmp[A-Za-z0-9_-]{6}$|^\.?tmp[-_.]|\.tmp$|\.tmp\.[0-9]+$|\.partial$|\.incomplete$|-unfinished$|` + tensorTemporary)

func temporaryPath(p string) bool {
	if !strings.Contains(p, "tmp") && !strings.Contains(p, "tempstate") && !strings.Contains(p, "-unfinished") &&
		!strings.Contains(p, ".partial") && !strings.Contains(p, ".incomplete") {
		return false
	}
	for name := range strings.SplitSeq(p, "/") {
		if strings.Contains(name, orbaxTemporary) || underWay.MatchString(name) {
			return true
		}
	}
	return false
}

// temporary denies a checkpoint that contains files under temporary names.
func (v View) temporary() Judgement {
	for _, f := range v.Files {
		if path.Base(f.Path) == incompleteMark {
			return denied("incomplete", "it holds %s, which is removed when the save is complete", f.Path)
		}
		if temporaryPath(f.Path) {
			return denied("temporary", "%s is still under its temporary name", f.Path)
		}
	}
	return Judgement{}
}

// broken denies a checkpoint that contains a truncated file or lacks files of a numbered set.
func (v View) broken() Judgement {
	names := make([]string, len(v.Files))
	for i, f := range v.Files {
		names[i] = f.Path
		if f.Format.Verdict == format.Incomplete {
			return denied("torn", "%s %s", f.Path, f.Format.Reason)
		}
	}
	if v.Part {
		return Judgement{} // other nodes may have the missing files
	}
	if missing := format.MissingParts(names); missing != "" {
		return denied("parts", "only %s", missing)
	}
	for p, note := range v.Notes {
		if !format.IsIndex(p) {
			continue
		}
		index, result, err := format.ReadIndex(strings.NewReader(note.Text), int64(len(note.Text)))
		if err == nil && result.Verdict == format.Whole {
			result = index.Judge(func(name string) (int64, bool) {
				f, ok := v.find(path.Join(path.Dir(p), name))
				return f.Size, ok
			})
		}
		if result.Verdict == format.Incomplete {
			return denied("index", "%s %s", p, result.Reason)
		}
	}
	return Judgement{}
}
