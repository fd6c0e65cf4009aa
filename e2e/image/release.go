package image

import (
	"bytes"
	"encoding/pem"
	"errors"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// user is who stager's processes run as where a pod does not say otherwise.
const user = 65532

// Release is the image of a stager binary: the binary, the authorities that TLS
// trusts, and directories that its user may write to where nothing is mounted. Nothing is
// written anywhere else, so that a read-only root will do.
func Release(name, arch string, binary []byte) Image {
	return Image{
		Name:       name,
		Arch:       arch,
		Entrypoint: []string{"/stager"},
		User:       "65532:65532",
		Files: []File{
			{Path: "stager", Mode: 0o755, Body: binary},
			{Path: "etc/ssl/certs/ca-certificates.crt", Mode: 0o644, Body: authorities()},
			{Path: "run/stager/", Mode: 0o755, User: user},
			{Path: "tmp/", Mode: 0o755, User: user},
		},
	}
}

// authorities are those of Mozilla's list that are trusted without reserve, in the
// version that go.mod names: a file on the builder's disk would differ from the next
// builder's. A root that is trusted only for some certificates is left out, since a
// PEM file cannot say for which.
func authorities() []byte {
	var b bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint == nil {
			b.Write(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}))
		}
	}
	return b.Bytes()
}

// Tree writes the image's files into a directory, with their owners, for a Dockerfile to
// copy.
func (i Image) Tree(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	for _, f := range withDirs(i.Files) {
		name := filepath.FromSlash(strings.TrimSuffix(f.Path, "/"))
		switch {
		case name != f.Path:
			err = root.MkdirAll(name, os.FileMode(f.Mode))
		case f.Link != "":
			err = root.Symlink(f.Link, name)
		default:
			err = root.WriteFile(name, f.Body, os.FileMode(f.Mode))
		}
		if err := errors.Join(err, root.Lchown(name, f.User, f.User)); err != nil {
			return err
		}
	}
	return nil
}
