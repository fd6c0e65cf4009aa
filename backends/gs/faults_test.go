package gs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/conformance"
	"github.com/stager-dev/stager/backends/internal/objectstore"
)

type memory []byte

func (m memory) WriteAt(p []byte, off int64) (int, error) { return copy(m[off:], p), nil }

// wantReads reports an object that does not hold the contents of its key.
func wantReads(t *testing.T, store *backends.Store, obj backends.Object, size int64) {
	t.Helper()
	got, h := make(memory, size), backends.CRC32C.New()
	reported, err := store.ReadRange(t.Context(), obj, 0, size, got, h)
	want := conformance.ContentsOf("k", size)
	if err != nil || !bytes.Equal(got, want.Bytes()) {
		t.Errorf("reading: %v, the bytes are right: %t", err, bytes.Equal(got, want.Bytes()))
	}
	if sum := want.Sum(backends.CRC32C); reported != sum || backends.SumOf(backends.CRC32C, h) != sum {
		t.Errorf("the store reports %v, summed on the way %v; want %v", reported, backends.SumOf(backends.CRC32C, h), sum)
	}
}

func TestReadsSurviveFaults(t *testing.T) {
	s := need(t, false)
	const size = 3<<20 + 5
	for _, tt := range []struct {
		kind string
		n    int
		more []string
	}{
		{"throttle", 1, nil},
		{"too-many", 2, nil},
		{"server-error", 3, nil},
		{"web-page", 2, nil},
		{"reset", 2, nil},
		{"cut", 3, []string{"bytes", "1000001"}},
		{"cut", 2, []string{"bytes", "0"}},
		{"slow", 1, nil},
		{"ignore-range", 1, nil},
	} {
		t.Run(tt.kind, func(t *testing.T) {
			t.Parallel()
			store := s.open(t, directory(t, "test"))
			key := fmt.Sprintf("k-%d", time.Now().UnixNano())
			obj, err := store.Put(t.Context(), key, conformance.ContentsOf("k", size), size, backends.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			s.fail(t, tt.kind, key, tt.n, append(tt.more, "method", "GET")...)
			wantReads(t, store, obj, size)
		})
	}
}

// The backend does not detect a flipped bit; the checksum in the response reveals it, for any range.
func TestResponsesReportTheChecksum(t *testing.T) {
	s := need(t, false)
	t.Parallel()
	store := s.open(t, directory(t, "test"))
	const size = 100_000
	obj, err := store.Put(t.Context(), "flip", conformance.ContentsOf("k", size), size, backends.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	s.fail(t, "flip", "flip", 1, "method", "GET", "bytes", "777")
	h := backends.CRC32C.New()
	reported, err := store.ReadRange(t.Context(), obj, 0, size, make(memory, size), h)
	if err != nil || reported != obj.Sum || reported == backends.SumOf(backends.CRC32C, h) {
		t.Errorf("the store reports %v (%v), its object has %v, and the received bytes have %v", reported, err, obj.Sum, backends.SumOf(backends.CRC32C, h))
	}
	obj.Sum = backends.Checksum{}
	if reported, err = store.ReadRange(t.Context(), obj, 50_000, 10, make(memory, size), nil); err != nil || reported.IsZero() {
		t.Errorf("a range in the middle reports %v, %v", reported, err)
	}
}

const large = objectstore.SmallObject + 1<<20

func TestWritesSurviveFaults(t *testing.T) {
	s := need(t, false)
	for _, size := range []int64{10, large} {
		for _, tt := range []struct {
			kind, method, param, action string
			n                           int
		}{
			{"throttle", "PUT", "", "", 1},
			{"too-many", "PUT", "", "", 2},
			{"server-error", "PUT", "", "", 3},
			{"reset", "PUT", "", "", 2},
			{"flip-upload", "PUT", "", "", 2},
			{"lose-answer", "PUT", "", "", 1},
			{"wrong-crc", "PUT", "partNumber", "", 2},
			{"server-error", "POST", "uploads", "", 2},
			{"server-error", "POST", "uploadId", "", 2},
			{"lose-answer", "POST", "uploadId", "", 1},
			{"server-error", "POST", "", "compose", 2},
			{"lose-answer", "POST", "", "compose", 1},
			{"server-error", "DELETE", "", "", 1},
		} {
			if size == 10 && (tt.param != "" || tt.method != "PUT") {
				continue // those requests belong to large objects
			}
			for _, ifAbsent := range []bool{false, true} {
				t.Run(fmt.Sprint(size, " ", tt.kind, " ", tt.method, tt.param, tt.action, ifAbsent), func(t *testing.T) {
					t.Parallel()
					store := s.open(t, directory(t, "test"))
					key := fmt.Sprintf("w-%d", time.Now().UnixNano())
					s.fail(t, tt.kind, key, tt.n, "method", tt.method, "param", tt.param, "action", tt.action)
					obj, err := store.Put(t.Context(), key, conformance.ContentsOf("k", size), size, backends.CreateOptions{IfAbsent: ifAbsent})
					if err != nil || obj.Size != size || obj.Sum != conformance.ContentsOf("k", size).Sum(backends.CRC32C) {
						t.Fatalf("Put = %+v, %v; want success", obj, err)
					}
					wantReads(t, store, obj, size)
					if _, err := store.PutBytes(t.Context(), key, nil, backends.CreateOptions{IfAbsent: true}); backends.KindOf(err) != backends.Exist {
						t.Errorf("another's Put: %v, want kind exist", err)
					}
				})
			}
		}
	}
}

func TestWritesReportGarbledBytes(t *testing.T) {
	s := need(t, false)
	t.Parallel()
	store := s.open(t, directory(t, "test"))
	for _, tt := range []struct {
		name, kind, method, param string
		size                      int64
		want                      backends.Kind
	}{
		{"small", "wrong-crc", "PUT", "", 10, backends.Corrupt},
		{"small-garbled", "flip-upload", "PUT", "", 10, backends.Unknown},
		{"gone", "forget-upload", "PUT", "uploadId", large, backends.Invalid},
		{"part", "wrong-crc", "PUT", "partNumber", large, backends.Unknown},
		{"whole", "wrong-crc", "POST", "uploadId", large, backends.Corrupt},
	} {
		key := fmt.Sprintf("%s-%d", tt.name, time.Now().UnixNano())
		s.fail(t, tt.kind, key, 10, "method", tt.method, "param", tt.param) // more than the number of attempts
		_, err := store.Put(t.Context(), key, conformance.ContentsOf("k", tt.size), tt.size, backends.CreateOptions{})
		if backends.KindOf(err) != tt.want {
			t.Errorf("%s: got %v (%v), want kind %v", tt.name, err, backends.KindOf(err), tt.want)
		}
	}
	wantNoUploads(t, store)
}

// wantNoUploads reports uploads in progress below the store, and temporary objects.
func wantNoUploads(t *testing.T, store *backends.Store) {
	t.Helper()
	if left := orphans(t, store, false); len(left) > 0 {
		t.Errorf("%+v are left, want nothing", left)
	}
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

func TestAbortLeavesNoUpload(t *testing.T) {
	s := need(t, false)
	t.Parallel()
	for _, ifAbsent := range []bool{false, true} {
		store := s.open(t, directory(t, "other"))
		raw, prefix := store.Backend()
		ctx, cancel := context.WithCancel(t.Context())
		w, err := raw.Create(ctx, prefix+"aborted", backends.CreateOptions{Size: -1, IfAbsent: ifAbsent})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(make([]byte, partSize+1)); err != nil {
			t.Fatal(err)
		}
		if left := orphans(t, store, false); len(left) != 1 || left[0].Key != "aborted" || left[0].Marked != ifAbsent {
			t.Fatalf("%+v are in progress, want one", left)
		}
		cancel() // Abort works nevertheless
		for range 2 {
			if err := w.Abort(); err != nil {
				t.Errorf("Abort: %v", err)
			}
		}
		wantNoUploads(t, store)
		if _, err := w.Commit(t.Context()); backends.KindOf(err) != backends.Invalid {
			t.Errorf("Commit after Abort: %v, want kind invalid", err)
		}
	}
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
		if err := u.Send(t.Context(), 1, io.NewSectionReader(conformance.ContentsOf("k", 1000), 0, 1000)); err != nil {
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
		wantNoUploads(t, store)
	}
}

// The server restarts in the middle of many reads and writes.
func TestServerRestart(t *testing.T) {
	s := need(t, false)
	store := openWith(t, directory(t, "test"), backends.Options{Getenv: s.Getenv(), RetryFor: time.Minute})
	const size = partSize + 1<<20
	old, err := store.Put(t.Context(), "old", conformance.ContentsOf("k", size), size, backends.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for i := range 4 {
		all.Go(func() { wantReads(t, store, old, size) })
		all.Go(func() {
			obj, err := store.Put(t.Context(), fmt.Sprint("new", i), conformance.ContentsOf("k", size), size, backends.CreateOptions{IfAbsent: true})
			if err != nil {
				t.Error(err)
				return
			}
			wantReads(t, store, obj, size)
		})
	}
	s.control(t, http.MethodPost, "/down?for=1s", nil)
	all.Wait()
}

func TestServerSilenceTimesOut(t *testing.T) {
	s := need(t, false)
	t.Parallel()
	store := openWith(t, directory(t, "test"), backends.Options{Getenv: s.Getenv(), StallAfter: 300 * time.Millisecond})
	if _, err := store.PutBytes(t.Context(), "silent", []byte("x"), backends.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	s.fail(t, "stall", "silent", 2, "method", "GET")
	got, _, err := store.ReadAll(t.Context(), "silent", 10)
	if err != nil || string(got) != "x" {
		t.Errorf("got %q, %v; want the object, after silence", got, err)
	}
}

// shrinking is a file that lost its end.
type shrinking struct{ size int64 }

func (f shrinking) ReadAt(p []byte, off int64) (int, error) {
	if off+int64(len(p)) > f.size {
		return 0, io.EOF
	}
	return len(p), nil
}

func TestUploadOfAShrinkingFileFails(t *testing.T) {
	s := need(t, false)
	t.Parallel()
	store := s.open(t, directory(t, "test"))
	for _, size := range []int64{1000, large} {
		var local *backends.LocalError
		if _, err := store.Put(t.Context(), "k", shrinking{size - 10}, size, backends.CreateOptions{}); !errors.As(err, &local) {
			t.Errorf("%d bytes: got %v, want a local error", size, err)
		}
	}
	wantNoUploads(t, store)
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
