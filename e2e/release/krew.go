package release

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// krewFile is the manifest of the kubectl plugin, which Krew installs.
const krewFile = "stager.yaml"

// krewHead is the manifest up to its platforms. Krew finds the plugin by the name of the file.
const krewHead = `apiVersion: krew.googlecontainertools.github.com/v1alpha2
kind: Plugin
metadata:
  name: stager
spec:
  version: v%s
  homepage: https://github.com/stager-dev/stager
  shortDescription: Show what stager does in the pods of a job
  description: |
    stager copies datasets to GPU jobs and saves their checkpoints. This plugin shows the
    state and the logs of the stager in a pod, tests the stores of a pod from inside it,
    and injects stager into manifests.
  platforms:
`

// krew writes the manifest of the kubectl plugin for the archives that are in dir. Without a URL of
// the release, an archive has its name alone, and is given to Krew as a file.
func (r *release) krew() error {
	archives, err := filepath.Glob(filepath.Join(r.dir, "stager_"+r.Version+"_*_*.tar.gz"))
	if err != nil || len(archives) == 0 {
		return errors.Join(errors.New("no archives for the manifest of the kubectl plugin"), err)
	}
	var b strings.Builder
	fmt.Fprintf(&b, krewHead, r.Version)
	for _, path := range archives {
		body, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name := filepath.Base(path)
		system, arch, _ := strings.Cut(strings.TrimSuffix(strings.TrimPrefix(name, "stager_"+r.Version+"_"), ".tar.gz"), "_")
		from := name
		if r.URL != "" {
			from = strings.TrimSuffix(r.URL, "/") + "/" + name
		}
		fmt.Fprintf(&b, "  - selector: {matchLabels: {os: %s, arch: %s}}\n    uri: %s\n    sha256: %x\n    bin: stager\n    files:\n",
			system, arch, from, sha256.Sum256(body))
		for _, file := range []string{"stager", "LICENSE", "THIRD_PARTY_LICENSES"} {
			fmt.Fprintf(&b, "    - {from: %s, to: .}\n", file)
		}
	}
	return r.file(krewFile, []byte(b.String()), 0o644)
}
