package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/stager-dev/stager/stager/checkpoint"
	"github.com/stager-dev/stager/window"
)

// defaultWait is how long a request waits for a lease by default.
const defaultWait = 30 * time.Second

// LeaseResponse is the response to a lease request: a shard, or the end of an epoch.
type LeaseResponse struct {
	End     bool   `json:"end,omitempty"`
	Early   bool   `json:"early,omitempty"` // the end for this reader only: others hold the rest
	Epoch   int    `json:"epoch"`
	Lease   string `json:"lease,omitempty"`
	Pos     int    `json:"pos"`
	Path    string `json:"path,omitempty"`
	Dir     bool   `json:"directory,omitempty"` // the path is a directory of files
	Size    int64  `json:"size,omitempty"`
	Samples int    `json:"samples,omitempty"`
	Digest  string `json:"digest,omitempty"`
	Attempt int    `json:"attempt,omitempty"`
	Skip    int    `json:"skip,omitempty"` // leading samples to skip: used before the restored checkpoint
}

// waitCauseHeader gives the reason of a 204: one of the window's causes, or causeEnd. Of a 503 it is
// causeListing, or missing.
const waitCauseHeader = "Stager-Wait-Cause"

// WaitCause returns why no lease was available, from the header of a 204 response.
func WaitCause(h http.Header) window.Cause { return window.Cause(h.Get(waitCauseHeader)) }

// causeListing means that the source of the input is still being listed, which ends or fails.
const causeListing = "listing"

// causeEnd is the cause after a drain. It is not an error: an error would crash the trainer, which
// is about to save its last checkpoint.
const causeEnd = "end"

// window returns the window of a request. It returns nil after responding with an error.
func (a *API) window(w http.ResponseWriter, r *http.Request) *window.Window {
	name := r.PathValue("input")
	win, err := a.Window(name)
	if err != nil {
		failLookup(w, "input", name, err)
	}
	return win
}

func (a *API) input(w http.ResponseWriter, r *http.Request) {
	if win := a.window(w, r); win != nil {
		answer(w, http.StatusOK, win.Status())
	}
}

// opened is window for a request that waits: while the input is being listed it retries until the
// time is over or the client is gone. For a lease request the response is then 204.
func (a *API) opened(w http.ResponseWriter, r *http.Request, wait time.Duration) *window.Window {
	until := time.Now().Add(wait)
	for wait > 0 {
		if _, err := a.Window(r.PathValue("input")); !errors.Is(err, ErrNotYet) {
			break
		}
		if r.Context().Err() != nil {
			return nil
		}
		left := time.Until(until)
		if left <= 0 {
			w.Header().Set(waitCauseHeader, string(window.CauseBackend))
			w.WriteHeader(http.StatusNoContent)
			return nil
		}
		waitOut(r.Context(), min(left, listedPause))
	}
	return a.window(w, r)
}

// listedPause is how often a waiting request checks whether its input has been listed.
const listedPause = 10 * time.Millisecond

func (a *API) lease(w http.ResponseWriter, r *http.Request) {
	asked := time.Now()
	wait, err := duration(r, "wait", defaultWait)
	if err != nil {
		fail(w, http.StatusBadRequest, err)
		return
	}
	// The server watches a connection only once the request's body is read.
	if _, err := io.Copy(io.Discard, r.Body); err != nil { // the body is ignored
		badBody(w, err)
		return
	}
	win := a.opened(w, r, wait)
	if win == nil {
		return
	}
	request, err := leaseRequest(r, win)
	if err != nil {
		fail(w, http.StatusBadRequest, err)
		return
	}
	request.Wait = max(wait-time.Since(asked), 0)
	if request.Bound, err = requestsBinding(r); err != nil {
		fail(w, http.StatusBadRequest, err)
		return
	}
	win, l, err := a.take(r, win, request)
	var end *window.EndError
	var waited *window.WaitError
	switch {
	case errors.As(err, &end):
		answer(w, http.StatusOK, LeaseResponse{End: true, Early: end.Early, Epoch: end.Epoch})
	case errors.As(err, &waited):
		w.Header().Set(waitCauseHeader, string(waited.Cause))
		w.WriteHeader(http.StatusNoContent)
	case errors.Is(err, window.ErrClosed):
		waitOut(r.Context(), wait-time.Since(asked))
		w.Header().Set(waitCauseHeader, causeEnd)
		w.WriteHeader(http.StatusNoContent)
	case err != nil:
		leaseFailed(w, r, err)
	default:
		a.give(w, r, win, l, request.Bound)
	}
}

// take leases from the window. If the window is rewound meanwhile, it uses the one that replaces
// it.
func (a *API) take(r *http.Request, win *window.Window, request window.LeaseRequest) (*window.Window, window.Lease, error) {
	for {
		l, err := win.Lease(r.Context(), request)
		if !errors.Is(err, window.ErrRewound) {
			return win, l, err
		}
		waitOut(r.Context(), rewindPause)
		if next, err := a.Window(r.PathValue("input")); err == nil {
			win = next
		} else if !errors.Is(err, ErrNotYet) {
			return win, l, err
		}
		if r.Context().Err() != nil {
			return win, l, r.Context().Err()
		}
	}
}

// rewindPause is how often a reader checks whether its window is available again.
const rewindPause = 10 * time.Millisecond

// give responds with a lease, or withdraws it if the client is gone.
func (a *API) give(w http.ResponseWriter, r *http.Request, win *window.Window, l window.Lease, bound bool) {
	if bound {
		a.bound.bind(connOf(r), l.ID, func() { a.giveBack(win, l.ID, "connection of the reader closed") })
	}
	err := r.Context().Err()
	if err == nil {
		err = deliver(w, http.StatusOK, LeaseResponse{
			Epoch: l.Epoch, Lease: l.ID, Pos: l.Pos, Path: l.Path, Dir: l.Tree, Size: l.Size,
			Samples: l.Samples, Digest: l.Digest, Attempt: l.Attempt, Skip: l.Skip,
		})
	}
	if err != nil {
		a.bound.unbind(l.ID)
		a.withdraw(win, l)
	}
}

// requestsBinding reports whether the lease is to live as long as the connection.
func requestsBinding(r *http.Request) (bool, error) {
	switch kind := r.Header.Get("Stager-Bind"); kind {
	case "":
		return false, nil
	case "connection":
	default:
		return false, fmt.Errorf("Stager-Bind: unknown value %q; the only valid value is connection", kind)
	}
	for _, trace := range []string{"Via", "Forwarded", "X-Forwarded-For"} {
		if r.Header.Get(trace) != "" {
			return false, errors.New("this request came through a proxy, so its connection does not identify the reader: omit Stager-Bind and renew the lease")
		}
	}
	if connOf(r) == nil {
		return false, errors.New("this server cannot bind a lease to a connection")
	}
	return true, nil
}

// leaseFailed responds to errors other than the end and a wait.
func leaseFailed(w http.ResponseWriter, r *http.Request, err error) {
	var none *window.ReleaseError
	var group *window.GroupError
	switch {
	case r.Context().Err() != nil: // the client is gone
	case errors.As(err, &group):
		fail(w, http.StatusBadRequest, err)
	case errors.As(err, &none):
		fail(w, http.StatusConflict, err)
	default:
		fail(w, http.StatusInternalServerError, err)
	}
}

// waitOut sleeps for d or until ctx ends.
func waitOut(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// giveBack returns a lease whose reader is gone, or did not receive the whole shard.
func (a *API) giveBack(win *window.Window, lease, why string) {
	err := win.Return(lease)
	a.noteEnd(lease, why, err)
}

// withdraw takes back a lease that its reader never received.
func (a *API) withdraw(win *window.Window, l window.Lease) {
	a.noteEnd(l.ID, "its reader went away while it was given", win.Withdraw(l.ID))
}

func (a *API) noteEnd(lease, why string, err error) {
	if err != nil && !errors.Is(err, window.ErrNoLease) {
		a.Log.Warn("cannot return lease", "lease", lease, "error", err)
		return
	}
	a.Log.Debug("lease returned", "lease", lease, "why", why)
}

// longestReader is the maximum length of a reader's name.
const longestReader = 128

// reader returns the reader's name. Requests without a name share one reader. Names appear in logs,
// journals and tables, and may be used as directory names.
func reader(r *http.Request) (string, error) {
	name := r.FormValue("reader")
	odd := func(c rune) bool {
		return !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.ContainsRune("-_.:@+=", c))
	}
	switch {
	case name == "":
		return "default", nil
	case len(name) > longestReader || strings.ContainsFunc(name, odd):
		return "", fmt.Errorf("the reader's name %.40q is not 1 to %d letters, digits and -_.:@+=", name, longestReader)
	}
	return name, nil
}

// leaseRequest parses a lease request.
func leaseRequest(r *http.Request, win *window.Window) (request window.LeaseRequest, err error) {
	if request.Reader, err = reader(r); err != nil {
		return request, err
	}
	if request.Epoch, err = epochOf(r, win); err != nil {
		return request, err
	}
	if request.Group, err = groupOf(r); err != nil {
		return request, err
	}
	switch mixes := r.FormValue("mixes"); mixes {
	case "", "false":
	case "true":
		request.Mixes = true
	default:
		return request, fmt.Errorf("mixes=%q is not true or false", mixes)
	}
	switch end := r.FormValue("end"); end {
	case "", "all":
	case "early":
		request.EndEarly = true
	default:
		return request, fmt.Errorf("end=%q is not all or early", end)
	}
	return request, nil
}

// groupOf returns the reader group in a request, or nil.
func groupOf(r *http.Request) (*int, error) {
	text := r.FormValue("group")
	if text == "" {
		return nil, nil
	}
	group, err := strconv.Atoi(text)
	if err != nil {
		return nil, fmt.Errorf("group=%q is not a number from 0", text)
	}
	return &group, nil
}

// epochOf returns the epoch in a request, or nil.
func epochOf(r *http.Request, win *window.Window) (*int, error) {
	text := r.FormValue("epoch")
	if text == "" {
		return nil, nil
	}
	epoch, err := strconv.Atoi(text)
	if err != nil || epoch < 0 {
		return nil, fmt.Errorf("epoch=%q is not a number from 0", text)
	}
	if n := win.Epochs(); n > 0 && epoch >= n {
		return nil, fmt.Errorf("epoch=%d: the plan has %d, counted from 0", epoch, n)
	}
	return &epoch, nil
}

// endLease acknowledges, refuses, returns or renews a lease by its id.
func (a *API) endLease(w http.ResponseWriter, r *http.Request) {
	id, verb := r.PathValue("id"), r.PathValue("verb")
	bound, err := requestsBinding(r)
	if err != nil {
		fail(w, http.StatusBadRequest, err)
		return
	}
	var end func(win *window.Window) error
	switch verb {
	case "ack":
		end = func(win *window.Window) error { return win.Ack(id) }
	case "nack":
		end = func(win *window.Window) error { return win.Nack(id, r.FormValue("reason")) }
	case "return":
		end = func(win *window.Window) error { return win.PutBack(id) }
	case "renew":
		end = func(win *window.Window) error { return a.renew(win, id, r, bound) }
	default:
		fail(w, http.StatusNotFound, fmt.Errorf("unknown lease operation %q; valid: ack, nack, return, renew", verb))
		return
	}
	windows, more := a.Windows()
	err = window.ErrNoLease
	for _, win := range windows {
		if err = end(win); !errors.Is(err, window.ErrNoLease) {
			break
		}
	}
	if verb != "renew" {
		a.bound.unbind(id)
	}
	leaseEnded(w, id, more, err)
}

// renew renews a lease, or binds it to this connection, for a reader that reconnects after a
// restart of stager or after it lost its connection.
func (a *API) renew(win *window.Window, id string, r *http.Request, bound bool) error {
	if !bound {
		return win.Renew(id)
	}
	// Bind first: from here on the end of an earlier connection has no effect.
	a.bound.bind(connOf(r), id, func() { a.giveBack(win, id, "connection of the reader closed") })
	_, err := win.Attach(id, true)
	if err != nil {
		a.bound.unbind(id)
	}
	return err
}

// endLeaseByPath is for readers that know the path and not the lease.
func (a *API) endLeaseByPath(w http.ResponseWriter, r *http.Request) {
	path, ack := r.FormValue("path"), r.URL.Path == "/v1/ack"
	group, err := groupOf(r)
	if err != nil {
		fail(w, http.StatusBadRequest, err)
		return
	}
	windows, more := a.Windows()
	err = window.ErrNoLease
	for _, win := range windows {
		id, leased := win.LeaseOf(path, group)
		switch {
		case leased && ack:
			err = win.Ack(id)
		case leased:
			err = win.Nack(id, r.FormValue("reason"))
		case ack && win.Finished(path, group):
			err = nil // a retry, as the response was lost
		default:
			continue
		}
		a.bound.unbind(id)
		break
	}
	leaseEnded(w, path, more, err)
}

// leaseEnded responds to the end of a lease. While inputs are being listed after a restart, an
// unknown lease may belong to one of them.
func leaseEnded(w http.ResponseWriter, name string, more bool, err error) {
	switch {
	case err == nil:
		w.WriteHeader(http.StatusNoContent)
	case errors.Is(err, window.ErrNoLease) && more:
		w.Header().Set("Retry-After", "1")
		fail(w, http.StatusServiceUnavailable, fmt.Errorf("%s: %w", name, ErrNotYet))
	case errors.Is(err, window.ErrNoLease):
		fail(w, http.StatusGone, fmt.Errorf("%s: %w", name, err))
	default:
		fail(w, http.StatusInternalServerError, err)
	}
}

var errNotYetSaved = errors.New("not saved yet")

// waitFor waits until a step is saved; it returns errNotYetSaved when the time is over.
func waitFor(ctx context.Context, wait time.Duration, u *checkpoint.Uploader, step int64) error {
	ctx, cancel := context.WithTimeoutCause(ctx, wait, errNotYetSaved)
	defer cancel()
	err := u.Wait(ctx, step)
	if err != nil && ctx.Err() != nil {
		return errNotYetSaved
	}
	return err
}
