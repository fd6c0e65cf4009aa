package s3

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/mem"
)

// dripping responds to each request with one blank per second, for ever.
type dripping struct{}

func (dripping) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(drip{r.Context()}), Request: r}, nil
}

type drip struct{ ctx context.Context }

func (d drip) Read(p []byte) (int, error) {
	select {
	case <-d.ctx.Done():
		return 0, d.ctx.Err()
	case <-time.After(time.Second):
		p[0] = ' '
		return 1, nil
	}
}

// assembling commits with one request to a server that never finishes.
type assembling struct {
	backends.Backend
	looked error // the context error during the lookup after the failure
}

func (a *assembling) CreateParts(context.Context, string, backends.CreateOptions) (backends.PartWriter, error) {
	return a, nil
}
func (*assembling) WritePart(context.Context, int64, *backends.Part) error { return nil }
func (*assembling) Abort() error                                           { return nil }

var errHours = errors.New("it waited for an hour")

func (a *assembling) Commit(ctx context.Context) (backends.Object, error) {
	limited, cancel := context.WithTimeoutCause(ctx, time.Hour, errHours)
	defer cancel()
	req, err := http.NewRequestWithContext(limited, http.MethodPost, "http://store.example/k?uploadId=u", nil)
	if err != nil {
		return backends.Object{}, err
	}
	res, err := progress{dripping{}}.RoundTrip(req)
	if err != nil {
		return backends.Object{}, err
	}
	defer res.Body.Close()
	_, err = io.Copy(io.Discard, res.Body)
	look, done := backends.AfterStall(ctx, time.Second)
	defer done()
	a.looked = look.Err()
	return backends.Object{}, errors.Join(err, context.Cause(limited))
}

// A server that sent one blank per second, and nothing else, was waited for without end. S3 sends
// blanks for some minutes while it assembles a large object.
func TestCompletionIsKeptAliveByBlanks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &assembling{Backend: mem.New()}
		store := backends.NewStore(a, "mem://test", backends.Options{})
		start := time.Now()
		_, err := store.PutBytes(t.Context(), "k", []byte("x"), backends.CreateOptions{})
		if took := time.Since(start); backends.KindOf(err) != backends.Unavailable || errors.Is(err, errHours) || took < 4*time.Minute || took > 10*time.Minute {
			t.Errorf("got %v (%v) after %v, want kind unavailable after some minutes", err, backends.KindOf(err), took)
		}
		if a.looked != nil {
			t.Errorf("the context of a look at what became of it is over: %v", a.looked)
		}
	})
}

// sipping reads one byte of a request's body per second, and then accepts it.
type sipping struct{}

func (sipping) RoundTrip(r *http.Request) (*http.Response, error) {
	for {
		n, err := io.ReadFull(r.Body, make([]byte, 1))
		if n == 0 {
			return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody, Request: r}, errors.Join(r.Body.Close(), ignoreEOF(err))
		}
		select {
		case <-r.Context().Done():
			return nil, r.Context().Err()
		case <-time.After(time.Second):
		}
	}
}

func ignoreEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// sending commits with one request whose body takes two minutes.
type sending struct{ assembling }

func (s *sending) CreateParts(context.Context, string, backends.CreateOptions) (backends.PartWriter, error) {
	return s, nil
}

func (*sending) Commit(ctx context.Context) (backends.Object, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, "http://store.example/k", bytes.NewReader(make([]byte, 120)))
	if err != nil {
		return backends.Object{}, err
	}
	res, err := progress{sipping{}}.RoundTrip(req)
	if err != nil {
		return backends.Object{}, err
	}
	return backends.Object{Key: "k", Size: 1}, res.Body.Close()
}

// A small object that the SDK sends over a slow connection was cancelled after the time-out of a
// stall, though its bytes moved.
func TestBodyOfSDKIsNoStall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := backends.NewStore(&sending{assembling{Backend: mem.New()}}, "mem://test", backends.Options{})
		start := time.Now()
		_, err := store.PutBytes(t.Context(), "k", []byte("x"), backends.CreateOptions{})
		if took := time.Since(start); err != nil || took != 120*time.Second {
			t.Errorf("got %v after %v, want nil after 120s", err, took)
		}
	})
}
