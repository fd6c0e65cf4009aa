package release

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"crypto/md5"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/google/rpmpack"

	"github.com/stager-dev/stager/e2e/image"
)

const (
	summary     = "Stages data for GPU jobs, and saves their checkpoints"
	description = "stager copies datasets to local disks, verified and resumable, serves datasets that are larger than the disk through a rolling window, and uploads complete checkpoints while training continues."
)

// packageVersion is the version as Debian and RPM sort it: 0.2.0~rc.1 is before 0.2.0.
func (r *release) packageVersion() string { return strings.Replace(r.Version, "-", "~", 1) }

// installed returns the files of a package. Debian and Red Hat differ in where zsh finds completions.
func (r *release) installed(binary []byte, zsh string) []image.File {
	files := []image.File{
		{Path: "usr/bin/stager", Mode: 0o755, Body: binary},
		{Path: "usr/bin/kubectl-stager", Mode: 0o777, Link: "stager"},
		{Path: "usr/bin/kubectl_complete-stager", Mode: 0o777, Link: "stager"},
	}
	for _, c := range []struct{ shell, path string }{
		{"bash", "usr/share/bash-completion/completions/stager"},
		{"fish", "usr/share/fish/vendor_completions.d/stager.fish"},
		{"zsh", "usr/share/zsh/" + zsh + "/_stager"},
	} {
		files = append(files, image.File{Path: c.path, Mode: 0o644, Body: r.completions[c.shell]})
	}
	for _, name := range slices.Sorted(maps.Keys(r.manual)) {
		files = append(files, image.File{Path: "usr/share/man/man1/" + name, Mode: 0o644, Body: r.manual[name]})
	}
	return files
}

// deb writes the Debian package of an architecture. dpkg-deb(5) describes the format.
func (r *release) deb(arch string, binary []byte) error {
	files := r.installed(binary, "vendor-completions")
	files = append(files, image.File{Path: "usr/share/doc/stager/copyright", Mode: 0o644, Body: append(append(r.license, '\n'), r.notices...)})
	var sums strings.Builder
	size := 0
	for _, f := range files {
		if f.Link != "" {
			continue
		}
		fmt.Fprintf(&sums, "%x  %s\n", md5.Sum(f.Body), f.Path) // what dpkg --verify compares
		size += len(f.Body)
	}
	control := fmt.Sprintf("Package: stager\nVersion: %s\nArchitecture: %s\nMaintainer: %s\nInstalled-Size: %d\nSection: utils\nPriority: optional\nDescription: %s\n %s\n",
		r.packageVersion(), arch, cmp.Or(r.Maintainer, "stager <root@localhost>"), (size+1023)/1024, summary, description)
	meta, err := r.tarball([]image.File{{Path: "control", Mode: 0o644, Body: []byte(control)}, {Path: "md5sums", Mode: 0o644, Body: []byte(sums.String())}})
	if err != nil {
		return err
	}
	data, err := r.tarball(files)
	if err != nil {
		return err
	}
	var b bytes.Buffer
	b.WriteString("!<arch>\n")
	for _, part := range []struct {
		name string
		body []byte
	}{{"debian-binary", []byte("2.0\n")}, {"control.tar.gz", meta}, {"data.tar.gz", data}} {
		fmt.Fprintf(&b, "%-16s%-12d%-6d%-6d%-8o%-10d`\n%s", part.name, r.Date.Unix(), 0, 0, 0o100644, len(part.body), part.body)
		if len(part.body)%2 == 1 {
			b.WriteByte('\n')
		}
	}
	return r.file(fmt.Sprintf("stager_%s_%s.deb", r.packageVersion(), arch), b.Bytes(), 0o644)
}

// rpmArch is what RPM calls an architecture.
var rpmArch = map[string]string{"amd64": "x86_64", "arm64": "aarch64"}

// rpm writes the RPM package of an architecture.
func (r *release) rpm(arch string, binary []byte) error {
	files := r.installed(binary, "site-functions")
	files = append(files,
		image.File{Path: "usr/share/licenses/stager/LICENSE", Mode: 0o644, Body: r.license},
		image.File{Path: "usr/share/licenses/stager/THIRD_PARTY_LICENSES", Mode: 0o644, Body: r.notices})
	p, err := rpmpack.NewRPM(rpmpack.RPMMetaData{
		Name: "stager", Version: r.packageVersion(), Release: "1", Arch: rpmArch[arch], OS: "linux", Epoch: rpmpack.NoEpoch,
		Summary: summary, Description: description, Licence: "Apache-2.0", Packager: r.Maintainer, BuildHost: "localhost", BuildTime: r.Date,
	})
	if err != nil {
		return err
	}
	for _, f := range files {
		body, kind := f.Body, int64(0o100000) // a regular file
		if f.Link != "" {
			body, kind = []byte(f.Link), 0o120000
		}
		p.AddFile(rpmpack.RPMFile{Name: "/" + f.Path, Body: body, Mode: uint(kind | f.Mode), Owner: "root", Group: "root", MTime: uint32(r.Date.Unix())})
	}
	var b bytes.Buffer
	if err := p.Write(&b); err != nil {
		return err
	}
	return r.file(fmt.Sprintf("stager-%s-1.%s.rpm", r.packageVersion(), rpmArch[arch]), b.Bytes(), 0o644)
}

// tarball returns files as a tar that is compressed by gzip.
func (r *release) tarball(files []image.File) ([]byte, error) {
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	err = errors.Join(image.WriteTar(z, files, r.Date), z.Close())
	return b.Bytes(), err
}
