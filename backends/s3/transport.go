package s3

import (
	"context"
	"io"
	"net/http"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/internal/objectstore"
)

// progress reports bytes to the stall detector that the Store does not see: those of a body that the
// SDK sends, and the whitespace that a server sends while it assembles parts.
type progress struct{ http.RoundTripper }

func (p progress) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body != nil && r.ContentLength > 0 {
		r = r.WithContext(r.Context()) // a RoundTripper must not modify its request
		r.Body = objectstore.Moving(r.Context(), r.Body)
	}
	res, err := p.RoundTripper.RoundTrip(r)
	if err == nil && r.Method == http.MethodPost {
		res.Body = &blanks{res.Body, r.Context()}
	}
	return res, err
}

// blanks is a response body that may begin with whitespace.
type blanks struct {
	io.ReadCloser
	ctx context.Context //nolint:containedctx // it is that of the request
}

func (b *blanks) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if n > 0 {
		backends.Waits(b.ctx)
	}
	return n, err
}
