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

// Shorten collapses whitespace and limits the length, to keep HTML error pages out of the logs.
func Shorten(s string) string {
	s = strings.TrimSuffix(strings.Join(strings.Fields(s), " "), ".")
	if r := []rune(s); len(r) > 200 {
		s = string(r[:200]) + "…"
	}
	return s
}

// OneLine returns a text of a server for an error: one short line of valid UTF-8 without control
// characters.
func OneLine(text string) string {
	return Shorten(strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, "?")))
}

// Innermost returns the innermost cause of err, but keeps a *net.OpError for its address.
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

// Connection returns a message for a connection error that a URL parameter can fix; nil for other
// errors.
func Connection(err error) error {
	var (
		untrusted *tls.CertificateVerificationError
		name      x509.HostnameError
	)
	switch {
	case errors.As(err, &name) && name.Certificate != nil:
		return fmt.Errorf("the server's certificate is for %s, not for %s: use a name of the certificate in the URL of the endpoint", namesIn(name.Certificate), name.Host)
	case errors.As(err, &untrusted):
		return fmt.Errorf("the server's certificate is not trusted (%w): set the authority's file with ?ca-bundle=", untrusted.Err)
	case errors.Is(err, http.ErrSchemeMismatch):
		return errors.New("the endpoint uses plain HTTP: write http:// before it")
	case errors.Is(err, ErrExpectsTLS), err != nil && strings.Contains(err.Error(), malformed):
		return ErrExpectsTLS
	}
	return nil
}

// malformed is the net/http error text for a TLS alert received instead of a response.
const malformed = `malformed HTTP response "\x15\x03`

// tlsAlert is the first byte of such an alert.
const tlsAlert = 0x15

// ErrExpectsTLS means that a server expects HTTPS but received plain HTTP.
var ErrExpectsTLS = errors.New("the endpoint uses HTTPS: write https:// before it")

// ExpectsTLS reports whether the body of a plain HTTP response says that the port expects TLS. It
// knows the texts of Go, nginx, Apache and Jetty.
func ExpectsTLS(body []byte) bool {
	text := string(bytes.ToLower(body))
	for _, words := range []string{"http request to an https server", "plain http request was sent to https port", "speaking plain http to an ssl-enabled"} {
		if strings.Contains(text, words) {
			return true
		}
	}
	return false
}

// namesIn returns the names and addresses in a certificate.
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

// Known returns the kind of an error that needs no protocol knowledge: one of ours, or the end of a
// context. The Store finds out whose deadline it was.
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

// NoResponse returns the kind of an error of the network or the client that occurred without a
// response.
func NoResponse(err error) backends.Kind {
	var (
		op       *net.OpError
		dns      *net.DNSError
		timeout  net.Error
		sendFail *url.Error
		proxy    *ProxyError
	)
	switch {
	case errors.As(err, &proxy):
		return proxy.Kind()
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
