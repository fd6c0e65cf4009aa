package status

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/stager-dev/stager/stager/checkpoint"
	"github.com/stager-dev/stager/window"
)

// defaultWait is how long a lease is waited for when the reader does not say.
const defaultWait = 30 * time.Second

// LeaseAnswer is the body of a lease: a shard, or the end of an epoch.
type LeaseAnswer struct {
	End     bool   `json:"end,omitempty"`
	Epoch   int    `json:"epoch"`
	Lease   string `json:"lease,omitempty"`
	Pos     int    `json:"pos"`
	Path    string `json:"path,omitempty"`
	Size    int64  `json:"size,omitempty"`
	Samples int    `json:"samples,omitempty"`
	Digest  string `json:"digest,omitempty"`
	Attempt int    `json:"attempt,omitempty"`
}

// waitCauseHeader says in a 204 what the reader would be waiting for.
const waitCauseHeader = "Stager-Wait-Cause"

// window finds the window of a request, or answers why there is none.
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

func (a *API) lease(w http.ResponseWriter, r *http.Request) {
	win := a.window(w, r)
	if win == nil {
		return
	}
	wait, err := duration(r, "wait", defaultWait)
	if err != nil {
		fail(w, http.StatusBadRequest, err)
		return
	}
	conn := connOf(r)
	bound := r.Header.Get("Stager-Bind") == "connection"
	if bound && conn == nil {
		fail(w, http.StatusBadRequest, errors.New("this server cannot bind a lease to a connection"))
		return
	}
	l, err := win.Lease(r.Context(), window.LeaseRequest{Reader: reader(r), Wait: wait, Bound: bound})
	var end *window.EndError
	var waited *window.WaitError
	switch {
	case err == nil:
	case errors.As(err, &end):
		answer(w, http.StatusOK, LeaseAnswer{End: true, Epoch: end.Epoch})
		return
	case errors.As(err, &waited):
		w.Header().Set(waitCauseHeader, string(waited.Cause))
		w.WriteHeader(http.StatusNoContent)
		return
	default:
		a.leaseFailed(w, r, err)
		return
	}
	if bound {
		conn.bind(l.ID, func() { a.giveBack(win, l, "the reader's connection ended") })
	}
	answer(w, http.StatusOK, LeaseAnswer{
		Epoch: l.Epoch, Lease: l.ID, Pos: l.Pos, Path: l.Path, Size: l.Size,
		Samples: l.Samples, Digest: l.Digest, Attempt: l.Attempt,
	})
}

// leaseFailed answers for errors other than the end and a wait.
func (a *API) leaseFailed(w http.ResponseWriter, r *http.Request, err error) {
	if r.Context().Err() != nil {
		return // nobody is there to read an answer
	}
	fail(w, http.StatusInternalServerError, err)
}

// giveBack returns a lease whose reader is gone.
func (a *API) giveBack(win *window.Window, l window.Lease, why string) {
	if err := win.Return(l.ID); err != nil && !errors.Is(err, window.ErrNoLease) {
		a.Log.Warn("lease not given back", "lease", l.ID, "shard", l.Name, "error", err)
		return
	}
	a.Log.Debug("lease given back", "lease", l.ID, "shard", l.Name, "reader", l.Reader, "why", why)
}

// reader is who asks. Without a name all are one.
func reader(r *http.Request) string {
	if id := r.FormValue("reader"); id != "" {
		return id
	}
	return "default"
}

// endLease acknowledges, refuses or prolongs a lease by its id.
func (a *API) endLease(w http.ResponseWriter, r *http.Request) {
	id, verb := r.PathValue("id"), r.PathValue("verb")
	var end func(win *window.Window) error
	switch verb {
	case "ack":
		end = func(win *window.Window) error { return win.Ack(id) }
	case "nack":
		end = func(win *window.Window) error { return win.Nack(id, r.FormValue("reason")) }
	case "renew":
		end = func(win *window.Window) error { return a.renew(win, id, r) }
	default:
		fail(w, http.StatusNotFound, fmt.Errorf("a lease knows ack, nack and renew, not %q", verb))
		return
	}
	windows, more := a.Windows()
	err := window.ErrNoLease
	for _, win := range windows {
		if err = end(win); !errors.Is(err, window.ErrNoLease) {
			break
		}
	}
	if conn := connOf(r); conn != nil && err == nil && verb != "renew" {
		conn.unbind(id)
	}
	leaseEnded(w, id, more, err)
}

// renew prolongs a lease; with the binding header it ties the lease to this
// connection, as a reader does that comes back after a restart of stager.
func (a *API) renew(win *window.Window, id string, r *http.Request) error {
	conn := connOf(r)
	if r.Header.Get("Stager-Bind") != "connection" || conn == nil {
		return win.Renew(id)
	}
	l, err := win.Attach(id, true)
	if err != nil {
		return err
	}
	conn.bind(id, func() { a.giveBack(win, l, "the reader's connection ended") })
	return nil
}

// endLeaseByPath is for readers that keep the path and not the lease.
func (a *API) endLeaseByPath(w http.ResponseWriter, r *http.Request) {
	path := r.FormValue("path")
	windows, more := a.Windows()
	for _, win := range windows {
		id, ok := win.LeaseOf(path)
		if !ok {
			continue
		}
		if r.URL.Path == "/v1/ack" {
			leaseEnded(w, path, false, win.Ack(id))
		} else {
			leaseEnded(w, path, false, win.Nack(id, r.FormValue("reason")))
		}
		return
	}
	leaseEnded(w, path, more, window.ErrNoLease)
}

// leaseEnded answers how the end of a lease went. While inputs are being listed
// after a restart a lease that nobody knows may be one of theirs.
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

// waitFor waits until a step is saved; errNotYetSaved when the time is over.
func waitFor(ctx context.Context, wait time.Duration, u *checkpoint.Uploader, step int64) error {
	ctx, cancel := context.WithTimeoutCause(ctx, wait, errNotYetSaved)
	defer cancel()
	err := u.Wait(ctx, step)
	if err != nil && ctx.Err() != nil {
		return errNotYetSaved
	}
	return err
}
