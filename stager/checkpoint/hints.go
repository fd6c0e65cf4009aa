package checkpoint

import (
	"errors"
	"os"

	"github.com/stager-dev/stager/window/disk"
)

// hintNames are the files without which the next process forecasts nothing, resumes nothing and
// sweeps later. Anything but a directory in the place of one is replaced by the next write.
var hintNames = []string{paceName, uploadsName, resumesName}

// reportHints names the hints that cannot be kept.
func (u *Uploader) reportHints() {
	for _, name := range hintNames {
		file, err := disk.OpenFile(u.root, name, os.O_RDONLY, 0)
		if err == nil {
			_ = file.Close() // opened to look at it
		}
		if odd, is := errors.AsType[*disk.NotRegularError](err); is && odd.Mode.IsDir() {
			u.log.Warn("ignoring one of stager's own files that another program replaced", "file", name, "error", err)
		}
	}
}
