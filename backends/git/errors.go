package git

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/internal/objectstore"
)

// corrupt returns an error for objects that are not what they should be.
func corrupt(format string, args ...any) error {
	return backends.Errorf(backends.Corrupt, "open", "", "the server sent invalid objects: "+format, args...)
}

// explain converts an error of opening to a *backends.Error with a readable message.
func (r *remote) explain(err error) error {
	var said *remoteError
	switch known := (*backends.Error)(nil); {
	case errors.As(err, &known):
	case errors.Is(err, errNoPacket):
		return &backends.Error{Op: "open", Kind: backends.Unsupported, Err: err}
	case errors.As(err, &said):
		return &backends.Error{Op: "open", Kind: kindOf(said), Err: said}
	}
	return objectstore.Fetched("open", "", err, r.sentence)
}

// kindOf returns the kind of a message of the server.
func kindOf(e *remoteError) backends.Kind {
	switch {
	case strings.Contains(e.text, "not our ref"), strings.Contains(e.text, "not found"):
		return backends.NotExist
	case e.fatal:
		return backends.Unavailable // a process of the server has ended
	}
	return backends.Unsupported
}

// sentence returns what to do about a status; nil if the status says it all.
func (r *remote) sentence(e *objectstore.StatusError) error {
	switch e.Status {
	case http.StatusUnauthorized:
		if r.authorization != "" {
			return fmt.Errorf("the server rejects the user or the password, or the repository does not exist (HTTP %d)", e.Status)
		}
		return fmt.Errorf("the repository needs credentials, or does not exist (HTTP %d)", e.Status)
	case http.StatusForbidden:
		return fmt.Errorf("the server denies access to the repository (HTTP %d)", e.Status)
	case http.StatusNotFound, http.StatusGone:
		return fmt.Errorf("there is no repository at this path, or it needs credentials (HTTP %d)", e.Status)
	case http.StatusBadRequest:
		if objectstore.ExpectsTLS(e.Body) {
			return errors.New("the server expects TLS: write git+https:// instead of git+http://")
		}
	}
	return nil
}
