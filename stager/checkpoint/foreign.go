package checkpoint

import (
	"strings"
	"time"

	"github.com/stager-dev/stager/backends"
)

// Foreign selects what Prune does with multipart uploads that may belong to another program.
type Foreign string

// The choices for PruneConfig.Foreign.
const (
	ForeignKeep   Foreign = "keep"
	ForeignList   Foreign = "list"   // return them in Pruned, by key
	ForeignRemove Foreign = "remove" // those without activity for PruneConfig.Abandoned
)

// provenOwn reports whether stager wrote an orphan. Either its name has stager's mark, or its key
// belongs to the data of an upload, with an ID of stager's form. Stores return nothing else about
// a multipart upload that identifies its owner. Uploads of mirrored files are recorded; see
// uploadLog.
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

// foreignIsOver reports whether a multipart upload that may belong to another program is to be
// removed. It records it if a list was requested.
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
