package objectstore

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"time"

	"github.com/stager-dev/stager/backends"
)

// NewTransport returns a transport tuned for many requests to one host. It keeps as many idle
// connections as concurrent requests. It sets no time limit on bodies, because the Store detects
// stalls, and disables HTTP/2 and compression. If caBundle is not "", the CAs in that file are
// trusted in addition to the system's.
func NewTransport(caBundle string) (*http.Transport, error) {
	t := &http.Transport{
		Proxy: http.ProxyFromEnvironment,
		OnProxyConnectResponse: func(_ context.Context, _ *url.URL, req *http.Request, res *http.Response) error {
			if res.StatusCode == http.StatusOK {
				return nil
			}
			return &ProxyError{Status: res.StatusCode, Host: req.Host}
		},
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
		return nil, backends.Errorf(backends.Invalid, "open", "", "cannot read the CA bundle: %w", err)
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool()
	}
	if !pool.AppendCertsFromPEM(pem) {
		return nil, backends.Errorf(backends.Invalid, "open", "", "the CA bundle %s contains no certificate in PEM format", caBundle)
	}
	t.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	return t, nil
}

// NoRedirect is a CheckRedirect function that never follows a redirect. A redirect means another
// region or an endpoint with another protocol, and a signed request is valid for one host only.
func NoRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// Moving returns body wrapped to report bytes, which the Store does not see, to the stall detector
// of ctx.
func Moving(ctx context.Context, body io.ReadCloser) io.ReadCloser { return &moving{body, ctx} }

type moving struct {
	io.ReadCloser
	ctx context.Context //nolint:containedctx // it is that of the request
}

func (m *moving) Read(p []byte) (int, error) {
	n, err := m.ReadCloser.Read(p)
	if n > 0 {
		backends.Moved(m.ctx)
	}
	return n, err
}
