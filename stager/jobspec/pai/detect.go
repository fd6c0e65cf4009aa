package pai

import "regexp"

// What tells a job of OpenPAI from an object of Kubernetes, which has an apiVersion.
var (
	kubernetesKey = regexp.MustCompile(`(?m)^(?:- )?apiVersion[ \t]*:|^[ \t]*[{]?[ \t]*["']apiVersion["'][ \t]*:|^[{][ \t]*apiVersion[ \t]*:`)
	firstFormat   = regexp.MustCompile(`["']?taskRoles["']?[ \t\r\n]*:`)
)

// Version returns the version of OpenPAI's job format that a file is written in, 1 or 2, and 0
// for any other file.
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
