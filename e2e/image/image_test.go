package image_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"testing"

	v1 "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/stager-dev/stager/backends/conformance/live"
	"github.com/stager-dev/stager/e2e/image"
)

// limit is the most that a node has to pull.
const limit = 45_000_000

// TestReleaseIsReproducible makes binary and image twice.
func TestReleaseIsReproducible(t *testing.T) {
	var digests, archives []string
	for range 2 {
		bin := filepath.Join(t.TempDir(), "stager")
		build := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w -X main.version=v1", "-o", bin, "./cmd/stager")
		build.Dir, build.Env = "../..", append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("building stager: %v\n%s", err, out)
		}
		binary, err := os.ReadFile(bin)
		if err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		digest, err := image.Release("localhost/stager:dev", runtime.GOARCH, binary).Write(&b)
		if err != nil {
			t.Fatal(err)
		}
		if b.Len() > limit {
			t.Errorf("the archive has %d bytes, want at most %d", b.Len(), limit)
		}
		digests = append(digests, digest.String())
		archives = append(archives, fmt.Sprintf("%x", sha256.Sum256(b.Bytes())))
	}
	if digests[0] != digests[1] {
		t.Errorf("digests = %v, want them to be the same", digests)
	}
	if archives[0] != archives[1] {
		t.Errorf("sums of the archives = %v, want them to be the same", archives)
	}
}

// TestReleaseHoldsWhatItMust reads an archive as a node does: from the index down, by
// digests.
func TestReleaseHoldsWhatItMust(t *testing.T) {
	var b bytes.Buffer
	digest, err := image.Release("localhost/stager:v1", "arm64", []byte("the binary")).Write(&b)
	if err != nil {
		t.Fatal(err)
	}
	archive := untar(t, &b)
	var index v1.Index
	decode(t, archive["index.json"].body, &index)
	top := index.Manifests[0]
	if top.Digest != digest {
		t.Errorf("the index names %s, want %s", top.Digest, digest)
	}
	if got, want := top.Annotations["io.containerd.image.name"], "localhost/stager:v1"; got != want {
		t.Errorf("name = %q, want %q", got, want)
	}
	var manifest v1.Manifest
	decode(t, blob(t, archive, top), &manifest)
	var config v1.Image
	decode(t, blob(t, archive, manifest.Config), &config)
	if got, want := config.Config.User, "65532:65532"; got != want {
		t.Errorf("user = %q, want %q", got, want)
	}
	if got, want := config.Config.Entrypoint, []string{"/stager"}; !slices.Equal(got, want) {
		t.Errorf("entrypoint = %q, want %q", got, want)
	}
	if got, want := config.OS+"/"+config.Architecture, "linux/arm64"; got != want {
		t.Errorf("platform = %q, want %q", got, want)
	}
	z, err := gzip.NewReader(bytes.NewReader(blob(t, archive, manifest.Layers[0])))
	if err != nil {
		t.Fatal(err)
	}
	layer, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := fmt.Sprintf("sha256:%x", sha256.Sum256(layer)), config.RootFS.DiffIDs[0].String(); got != want {
		t.Errorf("the layer's sum = %s, and the configuration says %s", got, want)
	}
	files := untar(t, bytes.NewReader(layer))
	want := []string{"etc/", "etc/ssl/", "etc/ssl/certs/", "etc/ssl/certs/ca-certificates.crt", "run/", "run/stager/", "stager", "tmp/"}
	if got := slices.Sorted(maps.Keys(files)); !slices.Equal(got, want) {
		t.Errorf("files = %q, want %q", got, want)
	}
	for name, f := range files {
		user := 0
		if name == "run/stager/" || name == "tmp/" {
			user = 65532
		}
		if f.Uid != user || f.Gid != user {
			t.Errorf("%s belongs to %d:%d, want %d:%d", name, f.Uid, f.Gid, user, user)
		}
	}
	if got, want := files["stager"].Mode, int64(0o755); got != want {
		t.Errorf("mode of stager = %o, want %o", got, want)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(files["etc/ssl/certs/ca-certificates.crt"].body) {
		t.Error("the authorities cannot be read")
	}
	if got := bytes.Count(files["etc/ssl/certs/ca-certificates.crt"].body, []byte("BEGIN CERTIFICATE")); got < 100 {
		t.Errorf("%d authorities, want those of Mozilla's list", got)
	}
}

// A node follows the index of a release to the manifest of its platform.
func TestIndexHasAnImageForEachPlatform(t *testing.T) {
	var b bytes.Buffer
	if digest, err := image.WriteIndex(&b); err == nil || b.Len() > 0 {
		t.Errorf("no images: got %s, %v and %d bytes, want an error", digest, err, b.Len())
	}
	digest, err := image.WriteIndex(&b, image.Release("localhost/stager:v1", "amd64", []byte("one binary")), image.Release("localhost/stager:v1", "arm64", []byte("another")))
	if err != nil {
		t.Fatal(err)
	}
	archive := untar(t, &b)
	var top, index v1.Index
	decode(t, archive["index.json"].body, &top)
	if len(top.Manifests) != 1 || top.Manifests[0].Digest != digest || top.Manifests[0].Annotations["io.containerd.image.name"] != "localhost/stager:v1" {
		t.Fatalf("got %+v, want the index %s as localhost/stager:v1", top.Manifests, digest)
	}
	decode(t, blob(t, archive, top.Manifests[0]), &index)
	var platforms []string
	for _, m := range index.Manifests {
		var manifest v1.Manifest
		decode(t, blob(t, archive, m), &manifest)
		var config v1.Image
		decode(t, blob(t, archive, manifest.Config), &config)
		if got, want := config.Architecture, m.Platform.Architecture; got != want {
			t.Errorf("the configuration says %s, want %s as the index", got, want)
		}
		blob(t, archive, manifest.Layers[0])
		platforms = append(platforms, m.Platform.OS+"/"+m.Platform.Architecture)
	}
	if want := []string{"linux/amd64", "linux/arm64"}; !slices.Equal(platforms, want) {
		t.Errorf("got %q, want %q", platforms, want)
	}
}

// The Dockerfile copies a tree, which must be the archive's.
func TestTreeIsTheSame(t *testing.T) {
	if os.Geteuid() != 0 {
		live.Require(t, "root", errors.New("owners are root's to give"))
	}
	dir := t.TempDir()
	if err := image.Release("localhost/stager:v1", "amd64", []byte("the binary")).Tree(dir); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(filepath.Join(dir, "stager")); err != nil || string(got) != "the binary" {
		t.Errorf("stager holds %q, %v, want the binary", got, err)
	}
	for _, name := range []string{"etc/ssl/certs/ca-certificates.crt", "run/stager", "tmp"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Error(err)
		}
	}
}

type entry struct {
	*tar.Header
	body []byte
}

func untar(t *testing.T, r io.Reader) map[string]entry {
	t.Helper()
	all := make(map[string]entry)
	for tr := tar.NewReader(r); ; {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(tr)
		if err != nil {
			t.Fatal(err)
		}
		all[h.Name] = entry{h, body}
	}
}

// blob is what a descriptor names, checked.
func blob(t *testing.T, archive map[string]entry, d v1.Descriptor) []byte {
	t.Helper()
	body := archive["blobs/sha256/"+d.Digest.Encoded()].body
	if got := fmt.Sprintf("sha256:%x", sha256.Sum256(body)); got != d.Digest.String() || int64(len(body)) != d.Size {
		t.Fatalf("%s has the sum %s and %d bytes, want %s and %d", d.MediaType, got, len(body), d.Digest, d.Size)
	}
	return body
}

func decode(t *testing.T, text []byte, into any) {
	t.Helper()
	if err := json.Unmarshal(text, into); err != nil {
		t.Fatalf("%v in %q", err, text)
	}
}
