package checkpoint

import (
	"path"
	"regexp"
)

// tensorFlowFile is one file of a checkpoint of TensorFlow, of which those with the
// same beginning are one.
var tensorFlowFile = regexp.MustCompile(`^(.+)\.(?:index|meta|data-([0-9]{5})-of-([0-9]{5}))$`)

// What Keras's BackupAndRestore overwrites in its directory.
const (
	kerasGroup    = "latest"
	kerasWeights  = "latest.weights.h5"
	kerasMetadata = "training_metadata.json"
)

// groupOf is the name of the checkpoint that a file is a part of by its own name.
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
