package s3

import (
	"net/http"

	"github.com/stager-dev/stager/backends/httpstore"
)

// progress tells the watchdog of bytes that Store does not see: the blanks by which a
// server says that it is still assembling parts.
type progress struct{ http.RoundTripper }

func (p progress) RoundTrip(r *http.Request) (*http.Response, error) {
	res, err := p.RoundTripper.RoundTrip(r)
	if err == nil && r.Method == http.MethodPost {
		res.Body = httpstore.Moving(r.Context(), res.Body)
	}
	return res, err
}
