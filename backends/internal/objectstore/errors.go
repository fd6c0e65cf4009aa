package objectstore

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"syscall"

	"github.com/stager-dev/stager/backends"
)

// Shorten keeps a server's page of HTML out of the logs.
func Shorten(s string) string {
	s = strings.TrimSuffix(strings.Join(strings.Fields(s), " "), ".")
	if r := []rune(s); len(r) > 200 {
		s = string(r[:200]) + "…"
	}
	return s
}

// Innermost is what happened, without the layers it came through, but with the
// address that a network operation was about.
func Innermost(err error) error {
	for {
		if op, ok := err.(*net.OpError); ok { //nolint:errorlint // each layer is looked at
			return op
		}
		next := errors.Unwrap(err)
		if next == nil {
			return err
		}
		err = next
	}
}

// Connection is a sentence about an error before the store could answer whose remedy
// is a parameter of the URL; nil when it is none.
func Connection(err error) error {
	var (
		untrusted *tls.CertificateVerificationError
		name      x509.HostnameError
	)
	switch {
	case errors.As(err, &name) && name.Certificate != nil:
		return fmt.Errorf("the server's certificate is for %s, not for %s: write a name of the certificate in the URL of the endpoint", namesIn(name.Certificate), name.Host)
	case errors.As(err, &untrusted):
		return fmt.Errorf("the server's certificate is not trusted (%w): name the authority's file with ?ca-bundle=", untrusted.Err)
	case errors.Is(err, http.ErrSchemeMismatch):
		return errors.New("the endpoint speaks plain HTTP: write http:// before it")
	case errors.Is(err, ErrExpectsTLS), err != nil && strings.Contains(err.Error(), malformed):
		return ErrExpectsTLS
	}
	return nil
}

// malformed is what net/http says of an alert of TLS that comes instead of an answer.
const malformed = `malformed HTTP response "\x15\x03`

// tlsAlert is the first byte of such an alert.
const tlsAlert = 0x15

// ErrExpectsTLS is about a server that was asked in the clear.
var ErrExpectsTLS = errors.New("the endpoint speaks HTTPS: write https:// before it")

// ExpectsTLS reports whether the body of an answer in the clear says that the port is one
// for TLS, as the servers of Go, nginx, Apache and Jetty do.
func ExpectsTLS(body []byte) bool {
	text := string(bytes.ToLower(body))
	for _, words := range []string{"http request to an https server", "plain http request was sent to https port", "speaking plain http to an ssl-enabled"} {
		if strings.Contains(text, words) {
			return true
		}
	}
	return false
}

// namesIn are the names and addresses that a certificate is for.
func namesIn(cert *x509.Certificate) string {
	names := slices.Clone(cert.DNSNames)
	for _, ip := range cert.IPAddresses {
		names = append(names, ip.String())
	}
	switch {
	case len(names) == 0:
		return "no name"
	case len(names) > 5:
		names = append(names[:5], "…")
	}
	return strings.Join(names, ", ")
}

// Known is the kind of an error that a protocol need not look at: one of ours, or a
// context's end. Whose deadline it was that ended, Store tells.
func Known(err error) (kind backends.Kind, ok bool) {
	var ours *backends.Error
	if errors.As(err, &ours) {
		return ours.Kind, true
	}
	if errors.Is(err, context.Canceled) || Innermost(err) == context.DeadlineExceeded { //nolint:errorlint // the innermost wraps nothing
		return backends.Canceled, true
	}
	return backends.Unknown, false
}

// NoResponse is the kind of an error that came instead of an answer, from the network
// or from the client.
func NoResponse(err error) backends.Kind {
	var (
		op       *net.OpError
		dns      *net.DNSError
		timeout  net.Error
		sendFail *url.Error
	)
	switch {
	case Connection(err) != nil:
		return backends.Invalid
	case errors.As(err, &op), errors.As(err, &dns), errors.As(err, &sendFail),
		errors.As(err, &timeout) && timeout.Timeout(),
		errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF),
		errors.Is(err, syscall.ECONNRESET), errors.Is(err, net.ErrClosed):
		return backends.Unavailable
	}
	return backends.Unknown
}
