package objectstore

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/stager-dev/stager/backends"
)

// NewTransport is tuned for many requests to one host: as many idle connections as
// requests at once, no limit on how long a body may take (Store watches whether it
// moves), no second protocol and no compression between us and the bytes. It trusts
// the authorities in the file caBundle beside the system's, if that is not "".
func NewTransport(caBundle string) (*http.Transport, error) {
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
	t.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	return t, nil
}

// NoRedirect is for a client's CheckRedirect. A redirect means another region or an
// endpoint that does not speak the protocol, and a request signed for one host is of
// no use at another.
func NoRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// Moving is body, and tells the watchdog of ctx of bytes that Store does not see.
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
