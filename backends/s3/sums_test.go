package s3

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stager-dev/stager/backends"
)

// sumServer is an S3 server that refuses the checksum of one operation.
type sumServer struct {
	op     operation
	answer http.HandlerFunc
	sticky bool // it also refuses to complete without checksums an upload that began with them
	never  bool // it also refuses the operation without a checksum

	mu       sync.Mutex
	summed   [operations]int // requests with a checksum
	plain    [operations]int // requests without
	refused  int
	uploads  map[string]bool // by ID: whether its creation named a checksum
	dropped  int
	finished int // objects
}

func (s *sumServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	body, _ := io.ReadAll(r.Body) // the client sees if it fails
	query := r.URL.Query()
	var op operation
	var sum bool
	switch {
	case r.Method == http.MethodPut && query.Has("partNumber"):
		op, sum = partOperation, r.Header.Get("X-Amz-Checksum-Crc64nvme") != ""
	case r.Method == http.MethodPut:
		op, sum = putOperation, r.Header.Get("X-Amz-Checksum-Crc64nvme") != ""
	case r.Method == http.MethodPost && query.Has("uploads"):
		op, sum = createOperation, r.Header.Get("X-Amz-Checksum-Algorithm") != ""
	case r.Method == http.MethodPost:
		op, sum = completeOperation, bytes.Contains(body, []byte("Checksum"))
	case r.Method == http.MethodDelete:
		s.dropped++
		w.WriteHeader(http.StatusNoContent)
		return
	default:
		w.WriteHeader(http.StatusNotFound) // to HEAD
		return
	}
	if sum {
		s.summed[op]++
	} else {
		s.plain[op]++
	}
	began := op == completeOperation && s.uploads[query.Get("uploadId")]
	if op == s.op && (sum || s.never || s.sticky && began) {
		s.refused++
		s.answer(w, r)
		return
	}
	s.accept(w, op, sum)
}

func (s *sumServer) accept(w http.ResponseWriter, op operation, sum bool) {
	switch op {
	case createOperation:
		id := fmt.Sprint(len(s.uploads))
		s.uploads[id] = sum
		fmt.Fprintf(w, `<InitiateMultipartUploadResult><UploadId>%s</UploadId></InitiateMultipartUploadResult>`, id)
	case completeOperation:
		s.finished++
		fmt.Fprint(w, `<CompleteMultipartUploadResult><ETag>"whole"</ETag></CompleteMultipartUploadResult>`)
	case putOperation:
		s.finished++
		fallthrough
	default:
		w.Header().Set("ETag", `"e"`)
	}
}

// refusals are the ways in which servers refuse an unknown field.
var refusals = map[string]struct {
	answer http.HandlerFunc
	least  int // requests until the refusal is recognised
}{
	"400 InvalidRequest":      {refuse(400, "InvalidRequest"), 1},
	"400 InvalidArgument":     {refuse(400, "InvalidArgument"), 1},
	"400 MalformedXML":        {refuse(400, "MalformedXML"), 1},
	"400 InvalidPart":         {refuse(400, "InvalidPart"), 1},
	"400 without a body":      {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(400) }, 1},
	"405 MethodNotAllowed":    {refuse(405, "MethodNotAllowed"), 1},
	"500 InternalError":       {refuse(500, "InternalError"), 2},
	"500 without a body":      {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) }, 2},
	"501 NotImplemented":      {refuse(501, "NotImplemented"), 1},
	"501 without a body":      {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(501) }, 1},
	"200 with InvalidRequest": {refuse(200, "InvalidRequest"), 1},
	"200 with InternalError":  {refuse(200, "InternalError"), 2},
}

var operationNames = [operations]string{"put", "create", "part", "complete"}

// sizeFor returns the size of an object whose upload uses the operation.
func sizeFor(op operation) int64 {
	if op == putOperation {
		return 100
	}
	return twoParts
}

func sumStore(t *testing.T, s *sumServer, params string) (*backends.Store, *bytes.Buffer) {
	t.Helper()
	s.uploads = make(map[string]bool)
	var log bytes.Buffer
	store, err := backends.NewRegistry(Scheme()).Open(t.Context(), "s3://bucket/?endpoint="+newServer(t, s)+params, backends.Options{
		Log: slog.New(slog.NewTextHandler(&log, nil)), RetryFor: 20 * time.Second,
		Getenv: func(name string) string {
			return map[string]string{"AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "secret"}[name]
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	return store, &log
}

// S3Mock refused to complete an upload with CRC-64/NVME, with a 400, and s3proxy with a 500, so no
// large object could be stored there. Each operation that carries a checksum is refused here in
// each of these ways.
func TestChecksumIsOmittedAfterRejection(t *testing.T) {
	for name, way := range refusals {
		for op := range operations {
			for _, sticky := range []bool{false, true} {
				if sticky && op != completeOperation {
					continue
				}
				t.Run(fmt.Sprintf("%s/%s/sticky=%t", name, operationNames[op], sticky), func(t *testing.T) {
					t.Parallel()
					s := &sumServer{op: op, answer: way.answer, sticky: sticky}
					store, log := sumStore(t, s, "")
					for range 3 {
						if _, err := store.Put(t.Context(), "k", zeros{}, sizeFor(op), backends.CreateOptions{}); err != nil {
							t.Fatalf("got %v, want it stored\n%s", err, log)
						}
					}
					if s.finished != 3 {
						t.Errorf("got %d objects, want 3", s.finished)
					}
					most := way.least
					if op == partOperation {
						most += 2 // both parts are in flight
					}
					if sticky {
						most++ // the one without
					}
					if s.refused < way.least || s.refused > most {
						t.Errorf("got %d refusals, want %d to %d: the store is remembered", s.refused, way.least, most)
					}
					if got := strings.Count(log.String(), "store rejects"); got != 1 {
						t.Errorf("the log has it %d times, want once:\n%s", got, log)
					}
					if sticky && s.dropped == 0 {
						t.Error("the upload that was of no use was left")
					}
				})
			}
		}
	}
}

// A store that refuses the request for another reason, or with a forced checksum, keeps its
// checksums.
func TestChecksumIsKeptIfNotTheCause(t *testing.T) {
	for _, tt := range []struct {
		name, params string
		op           operation
		answer       http.HandlerFunc
		never        bool
	}{
		{"chosen by hand", "&checksum=crc64nvme", putOperation, refuse(400, "InvalidRequest"), false},
		{"refused without, too", "", putOperation, refuse(400, "InvalidRequest"), true},
		{"a part that is refused without, too", "", partOperation, refuse(400, "InvalidRequest"), true},
		{"access denied", "", putOperation, refuse(403, "AccessDenied"), false},
		{"other bytes arrived", "", putOperation, refuse(400, "BadDigest"), false},
		{"too large", "", putOperation, refuse(400, "EntityTooLarge"), false},
		{"full", "", putOperation, refuse(400, "QuotaExceeded"), false},
		{"no upload", "", completeOperation, refuse(404, "NoSuchUpload"), true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := &sumServer{op: tt.op, answer: tt.answer, never: tt.never}
			store, log := sumStore(t, s, tt.params)
			_, err := store.Put(t.Context(), "k", zeros{}, sizeFor(tt.op), backends.CreateOptions{})
			raw, _ := store.Backend()
			if err == nil || !raw.(*bucket).sums.Load() || strings.Contains(log.String(), "store rejects") {
				t.Errorf("got %v, checksums %t; want an error, and checksums\n%s", err, raw.(*bucket).sums.Load(), log)
			}
		})
	}
}

// A store that has accepted a checksum and fails for a while does not refuse checksums.
func TestChecksumIsKeptAfterTemporaryFailures(t *testing.T) {
	s := &sumServer{op: putOperation}
	fails := 0
	s.answer = func(w http.ResponseWriter, r *http.Request) {
		if fails--; fails >= 0 {
			refuse(500, "InternalError")(w, r)
			return
		}
		s.accept(w, putOperation, true)
	}
	store, log := sumStore(t, s, "")
	for _, n := range []int{0, 4} {
		s.mu.Lock()
		fails = n
		s.mu.Unlock()
		if _, err := store.Put(t.Context(), "k", zeros{}, 100, backends.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if s.plain[putOperation] != 0 || s.summed[putOperation] != 6 {
		t.Errorf("got %d requests with a checksum and %d without, want 6 and 0\n%s", s.summed[putOperation], s.plain[putOperation], log)
	}
}
