package pai

import "regexp"

// Patterns that distinguish an OpenPAI job from a Kubernetes object, which has an apiVersion.
var (
	kubernetesKey = regexp.MustCompile(`(?m)^(?:- )?apiVersion[ \t]*:|^[ \t]*[{]?[ \t]*["']apiVersion["'][ \t]*:|^[{][ \t]*apiVersion[ \t]*:`)
	firstFormat   = regexp.MustCompile(`["']?taskRoles["']?[ \t\r\n]*:`)
)

// Version returns the version of OpenPAI's job format in which a file is written, 1 or 2, and 0 for
// any other file.
func Version(file []byte) int {
	switch {
	case kubernetesKey.Match(file):
	case secondFormat.Match(file):
		return 2
	case firstFormat.Match(file):
		return 1
	}
	return 0
}
