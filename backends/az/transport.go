package az

import (
	"net/http"

	"github.com/stager-dev/stager/backends/internal/objectstore"
)

// transport sends the requests of the SDK. It reports sent bytes, which the Store does not see, to
// the stall detector.
type transport struct{ client http.Client }

// Do implements policy.Transporter.
func (t *transport) Do(req *http.Request) (*http.Response, error) {
	if req.Body != nil && req.Body != http.NoBody {
		req = req.Clone(req.Context())
		req.Body = objectstore.Moving(req.Context(), req.Body)
	}
	return t.client.Do(req)
}
