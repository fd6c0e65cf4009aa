package http

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/internal/objectstore"
)

// explain converts an error of a request for a URL to a *backends.Error with a readable message.
// Messages contain no URL, whose query may be a signature.
func (s *site) explain(op, key string, at *url.URL, err error) error {
	if page := (*pageError)(nil); errors.As(err, &page) && backends.KindOf(err) == backends.Unknown {
		return &backends.Error{Op: op, Key: key, Kind: backends.Invalid, Err: page}
	}
	out := objectstore.Fetched(op, key, err, func(e *objectstore.StatusError) error { return sentence(e, at, s.credentials.authorization(at) != "") })
	var status *objectstore.StatusError
	var e *backends.Error
	if errors.As(err, &status) && errors.As(out, &e) && e.Kind == backends.Permission {
		e.Again = status.Renewed(s.credentials.load, s.credentials.authorization)
	}
	return out
}

// sentence returns a better message than that of a status; nil if there is none.
func sentence(e *objectstore.StatusError, at *url.URL, known bool) error {
	signed := at.RawQuery != ""
	switch e.Status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusBadRequest, http.StatusGone:
		if signed {
			return fmt.Errorf("the server rejects the query of this URL (HTTP %d), which may have expired: renew the manifest", e.Status)
		}
	}
	switch e.Status {
	case http.StatusUnauthorized:
		if known {
			return fmt.Errorf("the server rejects the credentials (HTTP %d)", e.Status)
		}
		return fmt.Errorf("the server demands credentials (HTTP %d)", e.Status)
	case http.StatusForbidden:
		return fmt.Errorf("the server denies access (HTTP %d)", e.Status)
	case http.StatusNotFound, http.StatusGone:
		return fmt.Errorf("no such object (HTTP %d)", e.Status)
	case http.StatusPreconditionFailed:
		return errors.New("the object changed after it was listed")
	case http.StatusBadRequest:
		if objectstore.ExpectsTLS(e.Body) {
			return objectstore.ErrExpectsTLS
		}
	}
	return nil
}
