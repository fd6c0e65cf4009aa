package image

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"
)

// File is one entry of an image. Directories on its way need not be listed: they are root's.
type File struct {
	Path string // without a leading slash; a directory ends in one
	Mode int64  // permissions
	User int    // owner and group
	Body []byte
	Link string // what a symbolic link points to; "": it is none
}

// Image is a file system of one layer and the process that starts in it.
type Image struct {
	Name       string // such as localhost/stager:dev
	Arch       string // as Go calls it
	Files      []File
	Entrypoint []string
	User       string // UID:GID; "": root
}

// epoch is the time of everything in an image: a clock would change its digest.
var epoch = time.Unix(0, 0).UTC()

// Write writes the image as an OCI archive and returns the digest of its manifest.
func (i Image) Write(w io.Writer) (digest.Digest, error) {
	var b blobs
	top, err := i.manifest(&b)
	if err != nil {
		return "", err
	}
	return top.Digest, b.archive(w, i.Name, top)
}

// WriteIndex writes the images of several platforms as one OCI archive, under the name of the
// first, and returns the digest of their index. No images are an error.
func WriteIndex(w io.Writer, images ...Image) (digest.Digest, error) {
	if len(images) == 0 {
		return "", errors.New("no images for an archive")
	}
	var b blobs
	index := v1.Index{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: v1.MediaTypeImageIndex}
	for _, i := range images {
		d, err := i.manifest(&b)
		if err != nil {
			return "", err
		}
		index.Manifests = append(index.Manifests, d)
	}
	body, err := json.Marshal(index)
	if err != nil {
		return "", err
	}
	top := b.add(v1.MediaTypeImageIndex, body)
	return top.Digest, b.archive(w, images[0].Name, top)
}

// blobs are the contents of an archive, by their digests.
type blobs []File

// add returns the descriptor of a blob. A blob that is there already is not added again.
func (b *blobs) add(mediaType string, body []byte) v1.Descriptor {
	d := v1.Descriptor{MediaType: mediaType, Digest: digest.FromBytes(body), Size: int64(len(body))}
	name := "blobs/sha256/" + d.Digest.Encoded()
	if !slices.ContainsFunc(*b, func(f File) bool { return f.Path == name }) {
		*b = append(*b, File{Path: name, Mode: 0o644, Body: body})
	}
	return d
}

// archive writes the blobs under what the name of top is.
func (b *blobs) archive(w io.Writer, name string, top v1.Descriptor) error {
	_, tag, _ := strings.Cut(path.Base(name), ":")
	top.Annotations = map[string]string{
		v1.AnnotationRefName:       tag,
		"io.containerd.image.name": name, // what containerd and podman call it
	}
	index, err := json.Marshal(v1.Index{
		Versioned: specs.Versioned{SchemaVersion: 2},
		MediaType: v1.MediaTypeImageIndex,
		Manifests: []v1.Descriptor{top},
	})
	if err != nil {
		return err
	}
	layout, err := json.Marshal(v1.ImageLayout{Version: v1.ImageLayoutVersion})
	if err != nil {
		return err
	}
	files := append(slices.Clone(*b),
		File{Path: v1.ImageLayoutFile, Mode: 0o644, Body: layout},
		File{Path: v1.ImageIndexFile, Mode: 0o644, Body: index})
	return WriteTar(w, files, epoch)
}

// manifest adds the image to the blobs and returns the descriptor of its manifest.
func (i Image) manifest(b *blobs) (v1.Descriptor, error) {
	layer, err := i.layer()
	if err != nil {
		return v1.Descriptor{}, err
	}
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	if err := errors.Join(writeAll(z, layer), z.Close()); err != nil {
		return v1.Descriptor{}, err
	}
	platform := v1.Platform{OS: "linux", Architecture: i.Arch}
	layerBlob := b.add(v1.MediaTypeImageLayerGzip, packed.Bytes())
	config, err := json.Marshal(v1.Image{
		Created:  &epoch,
		Platform: platform,
		Config:   v1.ImageConfig{User: i.User, Entrypoint: i.Entrypoint},
		RootFS:   v1.RootFS{Type: "layers", DiffIDs: []digest.Digest{digest.FromBytes(layer)}},
	})
	if err != nil {
		return v1.Descriptor{}, err
	}
	manifest, err := json.Marshal(v1.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2},
		MediaType: v1.MediaTypeImageManifest,
		Config:    b.add(v1.MediaTypeImageConfig, config),
		Layers:    []v1.Descriptor{layerBlob},
	})
	if err != nil {
		return v1.Descriptor{}, err
	}
	top := b.add(v1.MediaTypeImageManifest, manifest)
	top.Platform = &platform
	return top, nil
}

func (i Image) layer() ([]byte, error) {
	var b bytes.Buffer
	err := WriteTar(&b, i.Files, epoch)
	return b.Bytes(), err
}

// WriteTar writes files as a tar, in the order of their paths, all of one time.
func WriteTar(w io.Writer, files []File, modTime time.Time) error {
	t := tar.NewWriter(w)
	for _, f := range withDirs(files) {
		h := &tar.Header{
			Typeflag: tar.TypeReg, Name: f.Path, Mode: f.Mode, Uid: f.User, Gid: f.User,
			Size: int64(len(f.Body)), ModTime: modTime, Format: tar.FormatUSTAR,
		}
		switch {
		case strings.HasSuffix(f.Path, "/"):
			h.Typeflag = tar.TypeDir
		case f.Link != "":
			h.Typeflag, h.Linkname = tar.TypeSymlink, f.Link
		}
		if err := errors.Join(t.WriteHeader(h), writeAll(t, f.Body)); err != nil {
			return fmt.Errorf("%s: %w", f.Path, err)
		}
	}
	return t.Close()
}

func writeAll(w io.Writer, b []byte) error {
	_, err := w.Write(b)
	return err
}

// withDirs adds the directories that nobody listed and sorts all by path.
func withDirs(files []File) []File {
	all := slices.Clone(files)
	have := func(name string) bool {
		return slices.ContainsFunc(all, func(f File) bool { return f.Path == name })
	}
	for _, f := range files {
		for dir := path.Dir(strings.TrimSuffix(f.Path, "/")); dir != "."; dir = path.Dir(dir) {
			if !have(dir + "/") {
				all = append(all, File{Path: dir + "/", Mode: 0o755})
			}
		}
	}
	slices.SortFunc(all, func(a, b File) int { return strings.Compare(a.Path, b.Path) })
	return all
}
