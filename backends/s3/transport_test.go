package s3

import (
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
func (*assembling) WritePart(context.Context, int64, *io.SectionReader) error { return nil }
func (*assembling) Abort() error                                              { return nil }

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
