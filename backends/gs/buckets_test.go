package gs

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stager-dev/stager/backends"
)

func TestBucketsOfTheProjectAreListed(t *testing.T) {
	s := need(t, false)
	t.Parallel()
	none := "GOOGLE_APPLICATION_CREDENTIALS="
	for _, tt := range []struct {
		url     string
		changed []string
		kind    backends.Kind // Unknown: success
		words   string
	}{
		{"gs://", nil, backends.Unknown, ""},
		{"gs://", []string{none}, backends.Unknown, ""}, // the metadata server knows the project
		{"gs://", []string{none + s.Env["STAGER_TEST_GS_IDENTITY"]}, backends.Invalid, "set GOOGLE_CLOUD_PROJECT"},
		{"gs://", []string{none + s.Env["STAGER_TEST_GS_IDENTITY"], "GOOGLE_CLOUD_PROJECT=stager-test"}, backends.Unknown, ""},
		{"gs://", []string{"GOOGLE_CLOUD_PROJECT=another"}, backends.Permission, "storage.buckets.list"},
		{"gs://?anonymous=true", nil, backends.Permission, "access without credentials is denied"},
	} {
		got, ok, err := backends.NewRegistry(Scheme()).Buckets(t.Context(), tt.url, backends.Options{Getenv: s.Getenv(tt.changed...), RetryFor: time.Second})
		want := []string{"gs://other/", "gs://public/", "gs://test/"}
		switch {
		case !ok:
			t.Errorf("%s has no buckets", tt.url)
		case tt.kind == backends.Unknown && (err != nil || !slices.Equal(got, want)):
			t.Errorf("%s with %q: got %q, %v; want %q", tt.url, tt.changed, got, err, want)
		case tt.kind != backends.Unknown && (backends.KindOf(err) != tt.kind || !strings.Contains(fmt.Sprint(err), tt.words)):
			t.Errorf("%s with %q: got %v (%v), want %q of kind %v", tt.url, tt.changed, err, backends.KindOf(err), tt.words, tt.kind)
		}
	}
	if _, ok, err := backends.NewRegistry(Scheme()).Buckets(t.Context(), "gs://test/", backends.Options{}); ok || err != nil {
		t.Errorf("a URL with a bucket: %t, %v; want false", ok, err)
	}
}

func TestCompressedObjectIsReadAsStored(t *testing.T) {
	s := need(t, false)
	t.Parallel()
	store := s.open(t, directory(t, "test"))
	raw, prefix := store.Backend()
	b := raw.(*bucket)
	var zipped bytes.Buffer
	w := gzip.NewWriter(&zipped)
	fmt.Fprint(w, strings.Repeat("text ", 1000))
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	q := b.inXML(http.MethodPut, prefix+"k").with(zipped.Bytes(), "text/plain")
	q.header.Set("Content-Encoding", "gzip")
	if _, _, err := b.client.document(t.Context(), q); err != nil {
		t.Fatal(err)
	}
	got, obj, err := store.ReadAll(t.Context(), "k", 1<<20)
	if err != nil || !bytes.Equal(got, zipped.Bytes()) || obj.Size != int64(zipped.Len()) {
		t.Errorf("got %d bytes of %d, %v; want the stored bytes", len(got), obj.Size, err)
	}
	part := make(memory, 10)
	if _, err := store.ReadRange(t.Context(), obj, 5, 10, offset{part, 5}, nil); err != nil || !bytes.Equal(part, zipped.Bytes()[5:15]) {
		t.Errorf("a range: %v, %x; want %x", err, part, zipped.Bytes()[5:15])
	}
}

// offset writes ranges that begin at n.
type offset struct {
	memory
	n int64
}

func (o offset) WriteAt(p []byte, off int64) (int, error) { return o.memory.WriteAt(p, off-o.n) }

func TestCredentialsComeFromASecret(t *testing.T) {
	s := need(t, false)
	t.Parallel()
	key, err := os.ReadFile(s.Env["GOOGLE_APPLICATION_CREDENTIALS"])
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"json": string(key), "path": s.Env["GOOGLE_APPLICATION_CREDENTIALS"] + "\n"} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "GOOGLE_APPLICATION_CREDENTIALS"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		store := openWith(t, directory(t, "test"), backends.Options{Getenv: s.Getenv("GOOGLE_APPLICATION_CREDENTIALS=", "NO_GCE_CHECK=true"), Secrets: dir})
		if _, err := store.PutBytes(t.Context(), "k", nil, backends.CreateOptions{}); err != nil {
			t.Errorf("a Secret with a %s: %v", name, err)
		}
	}
}
