package checkpoint

import (
	"path"
	"regexp"
)

// tensorFlowFile matches one file of a TensorFlow checkpoint. Files with the same prefix form one
// checkpoint.
var tensorFlowFile = regexp.MustCompile(`^(.+)\.(?:index|meta|data-([0-9]{5})-of-([0-9]{5}))$`)

// Names of the files that Keras's BackupAndRestore overwrites in its directory.
const (
	kerasGroup    = "latest"
	kerasWeights  = "latest.weights.h5"
	kerasMetadata = "training_metadata.json"
)

// groupOf returns the name of the checkpoint that a file belongs to by its own name.
func groupOf(p string) (name string, ok bool) {
	if base := path.Base(p); base == kerasWeights || base == kerasMetadata {
		return path.Join(path.Dir(p), kerasGroup), true
	}
	m := tensorFlowFile.FindStringSubmatch(path.Base(p))
	if m == nil {
		return "", false
	}
	return path.Join(path.Dir(p), m[1]), true
}
