package release

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/stager-dev/stager/e2e/image"
)

// wheelArch is what wheels call an architecture.
var wheelArch = map[string]string{"amd64": "x86_64", "arm64": "aarch64"}

// requiresPython finds the versions of Python in pyproject.toml.
var requiresPython = regexp.MustCompile(`(?m)^requires-python = "(.+)"$`)

// pythonVersion is the version as Python writes it: 0.2.0-rc.1 is 0.2.0rc1.
func (r *release) pythonVersion() (string, error) {
	base, pre, ok := strings.Cut(r.Version, "-")
	if !ok {
		return base, nil
	}
	found := regexp.MustCompile(`^(alpha|beta|rc)\.?(\d+)$`).FindStringSubmatch(pre)
	if found == nil {
		return "", fmt.Errorf("version %s has no form in Python: use a suffix such as -rc.1, -beta.1 or -alpha.1", r.Version)
	}
	return base + map[string]string{"alpha": "a", "beta": "b", "rc": "rc"}[found[1]] + found[2], nil
}

// wheelPlugin runs the binary beside it under the name that kubectl calls: a wheel cannot hold links.
// An installer replaces the first line by the interpreter of the environment.
const wheelPlugin = `#!python
import os
import sys

os.execv(os.path.join(os.path.dirname(os.path.realpath(__file__)), "stager"), sys.argv)
`

// wheel writes the Python package of an architecture, with the binary as a program of its
// environment.
func (r *release) wheel(arch string, binary []byte) error {
	version, err := r.pythonVersion()
	if err != nil {
		return err
	}
	files, err := r.pythonFiles(version)
	if err != nil {
		return err
	}
	project, err := os.ReadFile(filepath.Join(r.Source, "python/pyproject.toml"))
	if err != nil {
		return err
	}
	requires := requiresPython.FindSubmatch(project)
	if requires == nil {
		return errors.New("python/pyproject.toml has no line requires-python")
	}
	// A static binary runs with every C library: the oldest of each kind is named.
	tag := fmt.Sprintf("py3-none-manylinux_2_17_%s.manylinux2014_%[1]s.musllinux_1_1_%[1]s", wheelArch[arch])
	info := "stager-" + version + ".dist-info/"
	tags := ""
	for _, platform := range strings.Split(strings.TrimPrefix(tag, "py3-none-"), ".") {
		tags += "Tag: py3-none-" + platform + "\n"
	}
	files = append(files,
		image.File{Path: "stager-" + version + ".data/scripts/stager", Mode: 0o755, Body: binary},
		image.File{Path: "stager-" + version + ".data/scripts/kubectl-stager", Mode: 0o755, Body: []byte(wheelPlugin)},
		image.File{Path: "stager-" + version + ".data/scripts/kubectl_complete-stager", Mode: 0o755, Body: []byte(wheelPlugin)},
		image.File{Path: info + "METADATA", Mode: 0o644, Body: fmt.Appendf(nil, "Metadata-Version: 2.4\nName: stager\nVersion: %s\nSummary: %s\nLicense-Expression: Apache-2.0\nLicense-File: LICENSE\nLicense-File: THIRD_PARTY_LICENSES\nRequires-Python: %s\n", version, summary, requires[1])},
		image.File{Path: info + "WHEEL", Mode: 0o644, Body: []byte("Wheel-Version: 1.0\nGenerator: stager\nRoot-Is-Purelib: false\n" + tags)},
		image.File{Path: info + "licenses/LICENSE", Mode: 0o644, Body: r.license},
		image.File{Path: info + "licenses/THIRD_PARTY_LICENSES", Mode: 0o644, Body: r.notices})
	body, err := r.zip(files, info+"RECORD")
	if err != nil {
		return err
	}
	return r.file("stager-"+version+"-"+tag+".whl", body, 0o644)
}

// pythonFiles returns the modules of the package, which get the version of the release.
func (r *release) pythonFiles(version string) (files []image.File, err error) {
	found, err := os.ReadDir(filepath.Join(r.Source, "python/stager"))
	if err != nil {
		return nil, err
	}
	for _, f := range found {
		if ext := filepath.Ext(f.Name()); f.IsDir() || ext != ".py" && ext != ".typed" {
			continue
		}
		body, err := os.ReadFile(filepath.Join(r.Source, "python/stager", f.Name()))
		if err != nil {
			return nil, err
		}
		if f.Name() == "_version.py" {
			body = fmt.Appendf(nil, "\"\"\"The package's version.\"\"\"\n\n__version__ = %q\n", version)
		}
		files = append(files, image.File{Path: "stager/" + f.Name(), Mode: 0o644, Body: body})
	}
	return files, nil
}

// zip returns files as a zip, with the sums of all under the name record.
func (r *release) zip(files []image.File, record string) ([]byte, error) {
	var sums strings.Builder
	for _, f := range files {
		sum := sha256.Sum256(f.Body)
		fmt.Fprintf(&sums, "%s,sha256=%s,%d\n", f.Path, base64.RawURLEncoding.EncodeToString(sum[:]), len(f.Body))
	}
	sums.WriteString(record + ",,\n")
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for _, f := range append(slices.Clone(files), image.File{Path: record, Mode: 0o644, Body: []byte(sums.String())}) {
		h := &zip.FileHeader{Name: f.Path, Method: zip.Deflate, Modified: r.Date}
		h.SetMode(os.FileMode(f.Mode))
		w, err := z.CreateHeader(h)
		if err != nil {
			return nil, err
		}
		if _, err := w.Write(f.Body); err != nil {
			return nil, err
		}
	}
	err := z.Close()
	return b.Bytes(), err
}
