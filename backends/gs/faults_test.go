package gs

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/conformance"
	"github.com/stager-dev/stager/backends/internal/objectstore"
)

type memory []byte

func (m memory) WriteAt(p []byte, off int64) (int, error) { return copy(m[off:], p), nil }

func TestFaults(t *testing.T) {
	s := need(t, false)
	conformance.Faulty[*testing.T]{
		Open: func(t *testing.T, opts backends.Options) *backends.Store {
			opts.Getenv = s.Getenv()
			return openWith(t, directory(t, "test"), opts)
		},
		Inject: s.control().Inject, Restart: s.control().Restart, Sum: backends.CRC32C, Large: objectstore.SmallObject + 1<<20,
		Reads: []conformance.Injected{{Kind: "too-many", Times: 2}},
		Writes: []conformance.Injected{
			{Kind: "too-many", Method: "PUT", Times: 2},
			{Kind: "server-error", Method: "POST", Action: "compose", Times: 2},
			{Kind: "lose-answer", Method: "POST", Action: "compose", Times: 1},
			{Kind: "server-error", Method: "DELETE", Times: 1},
		},
	}.Run(t)
}

// orphans returns what a sweep finds.
func orphans(t *testing.T, store *backends.Store, remove bool) (found []backends.Orphan) {
	t.Helper()
	if err := store.Sweep(t.Context(), "", func(o backends.Orphan) bool {
		found = append(found, o)
		return remove
	}); err != nil {
		t.Fatal(err)
	}
	return found
}

// A writer is killed between the completion of its parts and their publication.
func TestUnpublishedUploadIsHiddenAndSwept(t *testing.T) {
	s := need(t, false)
	t.Parallel()
	store := s.open(t, directory(t, "other"))
	raw, prefix := store.Backend()
	b := raw.(*bucket)
	for _, key := range []string{"d/k", "d/" + strings.Repeat("k", 1000-len(prefix))} {
		u := b.newUpload(prefix+key, backends.CreateOptions{IfAbsent: true})
		if err := u.Begin(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := u.Send(t.Context(), 1, backends.NewPart(conformance.ContentsOf("k", 1000), 0, 1000)); err != nil {
			t.Fatal(err)
		}
		if err := u.completeAside(t.Context()); err != nil {
			t.Fatal(err)
		}
		for obj, err := range store.List(t.Context(), "") {
			t.Errorf("List yields %+v, %v; want nothing", obj, err)
		}
		left := orphans(t, store, true)
		if len(left) != 1 || !strings.HasPrefix(key, left[0].Key) || left[0].Size != 1000 || !left[0].Marked || left[0].Touched.IsZero() {
			t.Errorf("a sweep finds %+v, want the object of %q", left, key)
		}
		if left := orphans(t, store, false); len(left) > 0 {
			t.Errorf("%+v are left, want nothing", left)
		}
	}
}

func TestErrorsOfTheServer(t *testing.T) {
	s := need(t, false)
	t.Parallel()
	none := "GOOGLE_APPLICATION_CREDENTIALS="
	broken := filepath.Join(t.TempDir(), "key.json")
	key, err := os.ReadFile(s.Env["GOOGLE_APPLICATION_CREDENTIALS"])
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(broken, bytes.Replace(key, []byte("stager@"), []byte("another@"), 1), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		url     string
		changed []string
		kind    backends.Kind
		words   string
	}{
		{"gs://nobucket/", nil, backends.NotExist, `bucket "nobucket" does not exist`},
		{"gs://test/", nil, backends.NotExist, "no such object"},
		{"gs://test/?anonymous=true", nil, backends.Permission, "access without credentials is denied"},
		{"gs://test/", []string{none, "NO_GCE_CHECK=true"}, backends.Permission, "no credentials were found"},
		{"gs://test/", []string{none, "GCE_METADATA_HOST=127.0.0.1:1"}, backends.Permission, "no credentials were found (the metadata server: "},
		{"gs://test/", []string{none + "/no/such/file"}, backends.Permission, "cannot read the file in GOOGLE_APPLICATION_CREDENTIALS: no such file"},
		{"gs://test/", []string{none + "{}"}, backends.Permission, "is not the JSON of a service account"},
		{"gs://test/", []string{none + `{"type":"service_account"}`}, backends.Permission, "cannot fetch an access token"},
		{"gs://test/", []string{none + broken}, backends.Permission, "Google rejects the credentials: Invalid JWT Signature (invalid_grant)"},
		{"gs://test/?endpoint=http://127.0.0.1:1", nil, backends.Unavailable, "refused"},
		{"gs://test/", []string{"STORAGE_EMULATOR_HOST=127.0.0.1:1"}, backends.Unavailable, "refused"},
		{"gs://test/?endpoint=" + strings.Replace(s.Env["CLOUDSDK_API_ENDPOINT_OVERRIDES_STORAGE"], "http:", "https:", 1), nil, backends.Invalid, "uses plain HTTP"},
	} {
		store := openWith(t, tt.url, backends.Options{Getenv: s.Getenv(tt.changed...), RetryFor: time.Second})
		_, err := store.ReadRange(t.Context(), backends.Object{Key: "missing", Size: 1, Version: "1"}, 0, 1, make(memory, 1), nil)
		if backends.KindOf(err) != tt.kind || !strings.Contains(fmt.Sprint(err), tt.words) {
			t.Errorf("reading from %s with %.60s: %v (%v); want %q of kind %v", tt.url, tt.changed, err, backends.KindOf(err), tt.words, tt.kind)
		}
		if _, staterr := store.Stat(t.Context(), "missing"); backends.KindOf(staterr) != tt.kind || !strings.Contains(fmt.Sprint(staterr), tt.words) {
			t.Errorf("stat in %s with %.60s: %v; want what reading reports", tt.url, tt.changed, staterr)
		}
		if strings.Contains(fmt.Sprint(err), "PRIVATE") {
			t.Errorf("the error shows a secret: %v", err)
		}
	}
	store := s.open(t, "gs://test")
	for _, key := range []string{".", "..", ".well-known/acme-challenge/x", "a\nb", "\xff", strings.Repeat("x", 1025)} {
		if _, err := store.PutBytes(t.Context(), key, nil, backends.CreateOptions{}); backends.KindOf(err) != backends.Invalid {
			t.Errorf("putting %.20q: %v, want kind invalid", key, err)
		}
	}
}

func TestAuthorityNotTrusted(t *testing.T) {
	s := need(t, true)
	t.Parallel()
	_, err := s.open(t, "gs://test/", "CLOUDSDK_CORE_CUSTOM_CA_CERTS_FILE=").Stat(t.Context(), "x")
	if backends.KindOf(err) != backends.Invalid || !strings.Contains(fmt.Sprint(err), "ca-bundle") {
		t.Errorf("without the authority: %v (%v); want words about ?ca-bundle=", err, backends.KindOf(err))
	}
}

func TestPublicBucketIsReadAnonymously(t *testing.T) {
	s := need(t, true)
	t.Parallel()
	at := directory(t, "public")
	if _, err := s.open(t, at).PutBytes(t.Context(), "k", []byte("x"), backends.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	store := s.open(t, at+"?anonymous=true", "GOOGLE_APPLICATION_CREDENTIALS=")
	if got, _, err := store.ReadAll(t.Context(), "k", 10); err != nil || string(got) != "x" {
		t.Errorf("got %q, %v", got, err)
	}
	for obj, err := range store.List(t.Context(), "") {
		if err != nil || obj.Key != "k" {
			t.Errorf("List yields %+v, %v; want k", obj, err)
		}
	}
	if _, err := store.PutBytes(t.Context(), "k", nil, backends.CreateOptions{}); backends.KindOf(err) != backends.Permission {
		t.Errorf("writing: %v, want kind permission", err)
	}
}
