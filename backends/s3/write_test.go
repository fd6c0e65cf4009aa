package s3

import (
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stager-dev/stager/backends"
)

// vault accepts a multipart upload and controls the outcome of each attempt of a part.
type vault struct {
	refuses func(try int, sum string, body io.Reader) http.HandlerFunc // nil: accepts it

	mu    sync.Mutex
	tries int
}

func (v *vault) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	v.mu.Lock()
	defer v.mu.Unlock()
	query := r.URL.Query()
	switch {
	case r.Method == http.MethodPost && query.Has("uploads"):
		fmt.Fprint(w, `<InitiateMultipartUploadResult><UploadId>u</UploadId></InitiateMultipartUploadResult>`)
	case r.Method == http.MethodPut:
		v.tries++
		if refuse := v.refuses(v.tries, r.Header.Get("X-Amz-Checksum-Crc64nvme"), r.Body); refuse != nil {
			refuse(w, r)
			return
		}
		_, _ = io.Copy(io.Discard, r.Body) // the client sees if it fails
		w.Header().Set("ETag", `"p"`)
	case r.Method == http.MethodPost:
		fmt.Fprint(w, `<CompleteMultipartUploadResult><ETag>"whole"</ETag></CompleteMultipartUploadResult>`)
	default:
		w.WriteHeader(http.StatusNoContent)
	}
}

// source counts the bytes read for a checksum, and can change its contents.
type source struct {
	io.ReaderAt
	summed atomic.Int64 // bytes
	turned atomic.Bool
}

func (s *source) ReadAt(p []byte, off int64) (int, error) {
	n, err := s.ReaderAt.ReadAt(p, off)
	if s.turned.Load() && off == 0 && n > 0 {
		p[0]++
	}
	return n, err
}

func (s *source) Uncounted() io.ReaderAt { return summing{s} }

type summing struct{ *source }

func (s summing) ReadAt(p []byte, off int64) (int, error) {
	n, err := s.source.ReadAt(p, off)
	s.summed.Add(int64(n))
	return n, err
}

type zeros struct{}

func (zeros) ReadAt(p []byte, _ int64) (int, error) {
	clear(p)
	return len(p), nil
}

const twoParts = partSize + 5

// A store was away for a minute, and each attempt of each part read all of it again for its
// checksum: seven times the file, from a disk that a trainer reads from.
func TestOutageRereadsNoPartForItsChecksum(t *testing.T) {
	v := &vault{refuses: func(try int, _ string, _ io.Reader) http.HandlerFunc {
		if try <= 6 {
			return refuse(503, "SlowDown")
		}
		return nil
	}}
	src := &source{ReaderAt: zeros{}}
	if _, err := storeAt(t, newServer(t, v), "").Put(t.Context(), "k", src, twoParts, backends.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if got := src.summed.Load(); got != twoParts || v.tries != 8 {
		t.Errorf("%d bytes were summed in %d tries, want %d in 8", got, v.tries, twoParts)
	}
}

// The checksum of bytes that changed between two attempts is computed again: otherwise the store
// would reject them for ever.
func TestPartRejectedForItsChecksumIsChecksummedAgain(t *testing.T) {
	src := &source{ReaderAt: zeros{}}
	refused := 0
	v := &vault{refuses: func(try int, sum string, body io.Reader) http.HandlerFunc {
		if try == 1 {
			src.turned.Store(true)
			return refuse(503, "SlowDown")
		}
		h := backends.CRC64NVME.New()
		if _, err := io.Copy(h, body); err != nil || base64.StdEncoding.EncodeToString(h.Sum(nil)) != sum {
			refused++
			return refuse(400, "BadDigest")
		}
		return nil
	}}
	if _, err := storeAt(t, newServer(t, v), "").Put(t.Context(), "k", src, twoParts, backends.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if refused > 1 {
		t.Errorf("the store refused %d tries for their bytes, want at most one", refused)
	}
}
