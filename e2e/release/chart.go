package release

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"

	"github.com/stager-dev/stager/e2e/image"
)

// chart writes the package of the Helm chart, with the version and the image of the release.
func (r *release) chart() error {
	source := filepath.Join(r.Source, "deploy", "helm", "stager")
	var files []image.File
	err := filepath.WalkDir(source, func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		body, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(source, file)
		if err != nil {
			return err
		}
		switch name {
		case "Chart.yaml":
			body, err = replaceOnce(body, "\nversion: 0.1.0\nappVersion: 0.1.0\n", fmt.Sprintf("\nversion: %[1]s\nappVersion: %[1]s\n", r.Version))
		case "values.yaml":
			if r.Repository != "" {
				body, err = replaceOnce(body, `repository: "" #`, fmt.Sprintf("repository: %q #", r.Repository))
			}
		}
		files = append(files, image.File{Path: path.Join("stager", filepath.ToSlash(name)), Mode: 0o644, Body: body})
		return err
	})
	if err != nil {
		return err
	}
	body, err := r.tarball(files)
	if err != nil {
		return err
	}
	return r.file(fmt.Sprintf("stager-%s.tgz", r.Version), body, 0o644)
}

// replaceOnce replaces a text that must occur once.
func replaceOnce(body []byte, old, replacement string) ([]byte, error) {
	if n := bytes.Count(body, []byte(old)); n != 1 {
		return nil, fmt.Errorf("the chart has %d times %q, want once", n, old)
	}
	return bytes.Replace(body, []byte(old), []byte(replacement), 1), nil
}
