package s3

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/stager-dev/stager/backends"
)

// newTransport is tuned for many requests to one host: as many idle connections as
// requests at once, no limit on how long a body may take (Store watches whether it
// moves), no second protocol and no compression between us and the bytes.
func newTransport(caBundle string) (*http.Transport, error) {
	t := &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}).DialContext,
		TLSHandshakeTimeout:   10 * time.Second,
		ResponseHeaderTimeout: time.Minute,
		MaxIdleConnsPerHost:   256,
		IdleConnTimeout:       90 * time.Second,
		DisableCompression:    true,
		WriteBufferSize:       64 << 10,
	}
	if caBundle == "" {
		return t, nil
	}
	pem, err := os.ReadFile(caBundle)
	if err != nil {
		return nil, backends.Errorf(backends.Invalid, "open", "", "the CA bundle cannot be read: %w", err)
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool()
	}
	if !pool.AppendCertsFromPEM(pem) {
		return nil, backends.Errorf(backends.Invalid, "open", "", "the CA bundle %s holds no certificate in PEM form", caBundle)
	}
	t.TLSClientConfig = &tls.Config{RootCAs: pool}
	return t, nil
}

// noRedirect: a redirect means another region or an endpoint that is no S3 server,
// and a request signed for one host is of no use at another.
func noRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// progress tells the watchdog of bytes that Store does not see: bodies that are
// sent, and the blanks by which a server says that it is still assembling parts.
type progress struct{ http.RoundTripper }

func (p progress) RoundTrip(r *http.Request) (*http.Response, error) {
	moved := func() { backends.Moved(r.Context()) }
	if r.Body != nil && r.Body != http.NoBody {
		r = r.WithContext(r.Context()) // a copy: a RoundTripper leaves its request alone
		r.Body = &movingBody{r.Body, moved}
	}
	res, err := p.RoundTripper.RoundTrip(r)
	if err == nil && r.Method == http.MethodPost {
		res.Body = &movingBody{res.Body, moved}
	}
	return res, err
}

type movingBody struct {
	io.ReadCloser
	moved func()
}

func (m *movingBody) Read(p []byte) (int, error) {
	n, err := m.ReadCloser.Read(p)
	if n > 0 {
		m.moved()
	}
	return n, err
}
