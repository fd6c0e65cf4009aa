package s3

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/stager-dev/stager/backends"
)

// served is one object of a server that can misbehave.
type served struct {
	data []byte
	etag string
	sum  string // base64, of all bytes
	kind string // the type of the checksum

	mu       sync.Mutex
	asked    []string // Range and If-Match of each request
	cutAfter int      // bytes of a body before the connection breaks; 0: never
	slow     int      // number of SlowDown responses first
}

func (s *served) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, r.Header.Get("Range")+" "+r.Header.Get("If-Match"))
	if s.slow > 0 {
		s.slow--
		refuse(503, "SlowDown")(w, r)
		return
	}
	if m := r.Header.Get("If-Match"); m != "" && m != `"`+s.etag+`"` {
		refuse(412, "PreconditionFailed")(w, r)
		return
	}
	data, status := s.data, 200
	h := w.Header()
	if rng := r.Header.Get("Range"); rng != "" {
		var first, last int
		if n, _ := fmt.Sscanf(rng, "bytes=%d-%d", &first, &last); n < 2 {
			last = len(s.data) - 1
		}
		last = min(last, len(s.data)-1)
		data, status = s.data[first:last+1], 206
		h.Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", first, last, len(s.data)))
	}
	h.Set("ETag", `"`+s.etag+`"`)
	h.Set("Content-Length", fmt.Sprint(len(data)))
	if r.Header.Get("X-Amz-Checksum-Mode") == "ENABLED" && s.sum != "" {
		h.Set("X-Amz-Checksum-Crc64nvme", s.sum)
		h.Set("X-Amz-Checksum-Type", s.kind)
	}
	w.WriteHeader(status)
	if r.Method == http.MethodHead {
		return
	}
	if s.cutAfter > 0 && s.cutAfter < len(data) {
		_, _ = w.Write(data[:s.cutAfter])
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}
	_, _ = w.Write(data)
}

func TestReadResumesAtTheSameVersion(t *testing.T) {
	s := &served{data: bytes.Repeat([]byte("0123456789"), 10_000), etag: "v1", cutAfter: 40_000}
	store := storeAt(t, newServer(t, s), "")
	got := memory(make([]byte, len(s.data)))
	obj := backends.Object{Key: "k", Size: int64(len(s.data)), Version: "v1"}
	if _, err := store.ReadRange(t.Context(), obj, 0, obj.Size, got, nil); err != nil || !bytes.Equal(got, s.data) {
		t.Fatalf("ReadRange: %v, equal %t", err, bytes.Equal(got, s.data))
	}
	if len(s.asked) < 3 || s.asked[0] != ` "v1"` {
		t.Fatalf("asked %q, want the whole object and then the rest in two ranges", s.asked)
	}
	for _, asked := range s.asked[1:] {
		if !strings.HasPrefix(asked, "bytes=") || !strings.HasSuffix(asked, `-99999 "v1"`) {
			t.Errorf("resumed by %q, want a range to the end, and If-Match", asked)
		}
	}
}

type memory []byte

func (m memory) WriteAt(p []byte, off int64) (int, error) { return copy(m[off:], p), nil }

func TestReadReportsChangeAfterListing(t *testing.T) {
	s := &served{data: []byte("new"), etag: "v2"}
	b := openAt(t, newServer(t, s), "")
	for _, off := range []int64{0, 1} {
		_, err := b.OpenRange(t.Context(), backends.Object{Key: "k", Size: 3, Version: "v1"}, off, 2)
		if backends.KindOf(err) != backends.Changed {
			t.Errorf("from %d: %v, want kind changed", off, err)
		}
	}
}

func TestReadSurvivesThrottleStorm(t *testing.T) {
	s := &served{data: []byte("data"), etag: "v1", slow: 4}
	store := storeAt(t, newServer(t, s), "")
	got := memory(make([]byte, 4))
	if _, err := store.ReadRange(t.Context(), backends.Object{Key: "k", Size: 4, Version: "v1"}, 0, 4, got, nil); err != nil || string(got) != "data" {
		t.Errorf("got %q, %v", got, err)
	}
	if len(s.asked) != 5 {
		t.Errorf("%d requests, want 4 that are refused and one", len(s.asked))
	}
}

func TestReadRejectsMismatchedResponses(t *testing.T) {
	const data = "0123456789"
	answer := func(status int, etag, contentRange, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("ETag", etag)
			if contentRange != "" {
				w.Header().Set("Content-Range", contentRange)
			}
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body)
		}
	}
	for _, tt := range []struct {
		what string
		h    http.HandlerFunc
		off  int64
		kind backends.Kind
	}{
		{"ignores Range", answer(200, `"v"`, "", data), 2, backends.Unsupported},
		{"ignores If-Match", answer(206, `"w"`, "bytes 2-4/10", data[2:5]), 2, backends.Changed},
		{"another range", answer(206, `"v"`, "bytes 3-5/10", data[3:6]), 2, backends.Corrupt},
		{"no range at all", answer(206, `"v"`, "", data[2:5]), 2, backends.Corrupt},
		{"a length that is not the range's", answer(206, `"v"`, "bytes 2-4/10", data[2:4]), 2, backends.Corrupt},
		{"another size", answer(200, `"v"`, "", data+"x"), 0, backends.Changed},
	} {
		r, err := openFake(t, tt.h).OpenRange(t.Context(), backends.Object{Key: "k", Size: 10, Version: "v"}, tt.off, 3)
		if got := backends.KindOf(err); got != tt.kind || r != nil {
			t.Errorf("a server that sends %s: %v (%v), want kind %v", tt.what, err, got, tt.kind)
		}
	}
}

func TestChecksumCoversTheWholeObjectOrNone(t *testing.T) {
	const data = "hello world"
	h := backends.CRC64NVME.New()
	_, _ = io.WriteString(h, data)
	whole := backends.SumOf(backends.CRC64NVME, h)
	raw := base64.StdEncoding.EncodeToString(h.Sum(nil))
	for _, tt := range []struct {
		sum, kind string
		off       int64
		want      backends.Checksum
	}{
		{raw, "FULL_OBJECT", 0, whole},
		{raw, "", 0, whole},
		{raw, "FULL_OBJECT", 1, backends.Checksum{}}, // the response to a range may have the checksum of a part
		{raw, "COMPOSITE", 0, backends.Checksum{}},
		{raw + "-3", "", 0, backends.Checksum{}},
		{"AAAA", "", 0, backends.Checksum{}},
		{"", "", 0, backends.Checksum{}},
	} {
		b := openAt(t, newServer(t, &served{data: []byte(data), etag: "v", sum: tt.sum, kind: tt.kind}), "")
		r, err := b.OpenRange(t.Context(), backends.Object{Key: "k", Size: int64(len(data)), Version: "v"}, tt.off, 5)
		if err != nil {
			t.Fatal(err)
		}
		if got := r.(backends.ChecksumReader).ObjectChecksum(); got != tt.want {
			t.Errorf("sum %q of type %q from %d: got %v, want %v", tt.sum, tt.kind, tt.off, got, tt.want)
		}
		if got, err := io.ReadAll(r); err != nil || string(got) != data[tt.off:tt.off+5] {
			t.Errorf("read %q, %v; want the five bytes from %d", got, err, tt.off)
		}
		r.Close()
	}
}
