package hf

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/internal/objectstore"
)

// explain converts an error of a request to a *backends.Error with a readable message.
func (r *repo) explain(op, key string, err error) error {
	out := objectstore.Fetched(op, key, err, r.sentence)
	var status *objectstore.StatusError
	var e *backends.Error
	if !errors.As(err, &status) || !errors.As(out, &e) {
		return out
	}
	switch code := status.Header.Get("X-Error-Code"); {
	case status.Status == http.StatusTooManyRequests:
		r.pause(status.RetryAfter)
	case code == "GatedRepo":
		e.Kind = backends.Permission
	case code == "RevisionNotFound", code == "EntryNotFound", code == "RepoNotFound" && status.Status == http.StatusNotFound:
		e.Kind = backends.NotExist
	}
	if e.Kind == backends.Permission {
		e.Again = status.Renewed(r.credentials.load, r.authorization)
	}
	return out
}

// sentence returns what to do about a status; nil if the status says it all.
func (r *repo) sentence(e *objectstore.StatusError) error {
	token := r.credentials.get() != ""
	switch code := e.Header.Get("X-Error-Code"); {
	case code == "GatedRepo" && token:
		return fmt.Errorf("%s is gated, and the account of the token has no access: request it at %s", r.repo, r.page())
	case code == "GatedRepo":
		return fmt.Errorf("%s is gated: request access at %s, and set HF_TOKEN", r.repo, r.page())
	case code == "RevisionNotFound":
		return fmt.Errorf("%s has no revision %q: see %s", r.repo, r.revision, r.page())
	case code == "EntryNotFound":
		return backends.ErrNothing
	case code == "RepoNotFound", e.Status == http.StatusUnauthorized && !token:
		return fmt.Errorf("%s does not exist, or is private and needs the HF_TOKEN of an account that may read it: see %s", r.repo, r.page())
	case e.Status == http.StatusUnauthorized:
		return fmt.Errorf("the Hub rejects the token, which may have expired (HTTP %d)", e.Status)
	case e.Status == http.StatusForbidden:
		return fmt.Errorf("the Hub denies access to %s (HTTP %d): see %s", r.repo, e.Status, r.page())
	case e.Status == http.StatusTooManyRequests:
		return fmt.Errorf("the Hub limits the rate of requests (HTTP %d)", e.Status)
	}
	return nil
}

// page returns the address of the repository's page.
func (r *repo) page() string {
	if r.kind == "models" {
		return r.base.JoinPath(r.repo).String()
	}
	return r.base.JoinPath(r.kind, r.repo).String()
}

// longestPause is how long a Retry-After of the Hub is honored for all requests.
const longestPause = 10 * time.Minute

// pause keeps all requests back for a while.
func (r *repo) pause(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if until := time.Now().Add(min(d, longestPause)); until.After(r.paused) {
		r.paused = until
	}
}

// ready returns an error of kind Throttled as long as requests are kept back.
func (r *repo) ready() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if left := time.Until(r.paused); left > 0 {
		return &backends.Error{Kind: backends.Throttled, RetryAfter: left, Err: errors.New("the Hub limits the rate of requests")}
	}
	return nil
}
