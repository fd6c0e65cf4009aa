package checkpoint

import (
	"strings"
	"time"

	"github.com/stager-dev/stager/backends"
)

// Foreign is what Prune does with uploads in parts that may be another program's.
type Foreign string

// The choices.
const (
	ForeignKeep   Foreign = "keep"
	ForeignList   Foreign = "list"   // return them in Pruned, by key
	ForeignRemove Foreign = "remove" // those to which nothing came for PruneConfig.Abandoned
)

// provenOwn reports whether stager wrote what is left of a write: its name has stager's
// mark, or it belongs to the data of an upload, whose keys have an id of stager's form.
// Stores return nothing else of an upload in parts that would tell whose it is; those of
// mirrored files are recorded, see uploadLog.
func provenOwn(left backends.Orphan) bool {
	if left.Marked || left.Directory {
		return true
	}
	names := strings.Split(left.Key, "/")
	if len(names) < 4 || names[1] != dataDir || !uploadID.MatchString(names[2]) {
		return false
	}
	_, _, ok := parseStepDir(names[0])
	return ok
}

// foreignIsOver reports whether an upload that may be another program's is to be
// removed, and notes it for who wants a list.
func (r *retention) foreignIsOver(left backends.Orphan) bool {
	old := time.Since(left.Touched) >= r.abandoned
	remove := r.foreign == ForeignRemove && old
	if remove || r.foreign == ForeignList {
		step, _, ok := parseStepDir(strings.SplitN(left.Key, "/", 2)[0])
		if !ok {
			step = -1
		}
		r.removed = append(r.removed, Pruned{Step: step, Foreign: true, Kept: !remove, Key: left.Key, Objects: 1, Bytes: left.Size})
	}
	return remove && !r.dry
}
