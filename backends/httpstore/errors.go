package httpstore

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
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
	var untrusted *tls.CertificateVerificationError
	switch {
	case errors.As(err, &untrusted):
		return fmt.Errorf("the server's certificate is not trusted (%w): name the authority's file with ?ca-bundle=", untrusted.Err)
	case errors.Is(err, http.ErrSchemeMismatch):
		return errors.New("the endpoint speaks plain HTTP: write http:// before it")
	}
	return nil
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

// Unanswered is the kind of an error that came instead of an answer, from the network
// or from the client.
func Unanswered(err error) backends.Kind {
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
