package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"net/http"
	"time"

	"github.com/stager-dev/stager/window"
)

// cursor sends the position of an input. While its source is listed there is none, and the request waits. The
// parameter beginning asks for that in the first shards, which means the same in any list that begins with
// them: true, or the manifest of an earlier one, if that is of the same order.
func (a *API) cursor(w http.ResponseWriter, r *http.Request) {
	wait, err := listWait(r)
	if err != nil {
		fail(w, http.StatusBadRequest, err)
		return
	}
	win := a.window(w, r)
	beginning := r.URL.Query().Get("beginning")
	switch {
	case win == nil:
	case beginning == "" && !a.listed(w, r, win, wait):
	case beginning != "" && beginning != "true" && !win.Includes(beginning):
		fail(w, http.StatusUnprocessableEntity, fmt.Errorf("the list of input %q does not begin as %.20s; its source has changed", r.PathValue("input"), beginning))
	default:
		answer(w, http.StatusOK, win.Cursor())
	}
}

// listWait returns how long a request waits for the list of an input; negative: without a limit.
func listWait(r *http.Request) (time.Duration, error) {
	if !r.URL.Query().Has("wait") { // not by FormValue, which would read the body
		return -1, nil
	}
	text := r.URL.Query().Get("wait")
	wait, err := time.ParseDuration(text)
	if err != nil || wait < 0 {
		return 0, fmt.Errorf("wait=%q is not a time such as 30s or 5m", text)
	}
	return wait, nil
}

// listed reports whether a window has its whole list, and waits for that; negative: without a limit.
// Otherwise it responds.
func (a *API) listed(w http.ResponseWriter, r *http.Request, win *window.Window, wait time.Duration) bool {
	until, name := time.Now().Add(wait), r.PathValue("input")
	for win.Beginning() {
		_, err := a.Window(name)
		switch {
		case err == nil && win.Ended() != nil: // it is not going to get it
			err = ErrNotYet
		case err == nil && wait >= 0 && !time.Now().Before(until):
			err = ErrListing
		}
		if err != nil {
			failLookup(w, "input", name, err)
			return false
		}
		if waitOut(r.Context(), listedPause); r.Context().Err() != nil {
			return false
		}
	}
	return true
}

// rewind makes the input continue from a cursor, or from a list of cursors of several nodes.
func (a *API) rewind(w http.ResponseWriter, r *http.Request) {
	a.bodies.Lock()
	cursors, err := readCursors(r.Body)
	a.bodies.Unlock()
	if err != nil {
		badBody(w, fmt.Errorf("the body must be a cursor as returned by GET, or a list of cursors: %w", err))
		return
	}
	name := r.PathValue("input")
	wait, err := listWait(r)
	if err != nil {
		fail(w, http.StatusBadRequest, err)
		return
	}
	if win, err := a.Window(name); err == nil && !a.listed(w, r, win, wait) {
		return
	}
	now, err := a.Rewind(r.Context(), name, cursors)
	var refused *window.CursorError
	switch {
	case err == nil:
		answer(w, http.StatusOK, now)
	case errors.As(err, &refused):
		fail(w, http.StatusUnprocessableEntity, refused)
	case errors.Is(err, window.ErrClosed), errors.Is(err, window.ErrRewound):
		failLookup(w, "input", name, ErrNotYet)
	default:
		failLookup(w, "input", name, err)
	}
}

func readCursors(body io.Reader) (cursors []window.Cursor, err error) {
	text, err := io.ReadAll(body)
	if err != nil {
		return nil, err
	}
	if text = bytes.TrimSpace(text); !bytes.HasPrefix(text, []byte("[")) {
		text = fmt.Appendf(nil, "[%s]", text)
	}
	in := json.NewDecoder(bytes.NewReader(text))
	in.DisallowUnknownFields()
	if err := in.Decode(&cursors); err != nil {
		return nil, err
	}
	if len(cursors) == 0 {
		return nil, errors.New("the list is empty")
	}
	return cursors, nil
}

// positions sends an epoch's order for all nodes, one JSON line for each position.
func (a *API) positions(w http.ResponseWriter, r *http.Request) {
	if win, epoch, ok := a.windowAndEpoch(w, r); ok && a.listed(w, r, win, 0) {
		if err := lines(w, win.Positions(epoch)); err != nil {
			fail(w, http.StatusInternalServerError, err)
		}
	}
}

// report sends how an epoch's positions were completed, one JSON line for each.
func (a *API) report(w http.ResponseWriter, r *http.Request) {
	win, epoch, ok := a.windowAndEpoch(w, r)
	if !ok {
		return
	}
	switch err := lines(w, win.Report(epoch)); {
	case errors.Is(err, fs.ErrNotExist):
		fail(w, http.StatusNotFound, fmt.Errorf("input %s has no report of epoch %d: no shard of it is acknowledged, or the epoch is too old, or the input's release mode has no acknowledgements", r.PathValue("input"), epoch))
	case err != nil:
		fail(w, http.StatusInternalServerError, err)
	}
}

// quality sends how well mixed an epoch was, in the order in which readers received it.
func (a *API) quality(w http.ResponseWriter, r *http.Request) {
	win, epoch, ok := a.windowAndEpoch(w, r)
	if !ok || !a.listed(w, r, win, 0) {
		return
	}
	name := r.PathValue("input")
	q, err := a.Quality(name, win.Report(epoch))
	if err != nil {
		failLookup(w, "input", name, err)
		return
	}
	answer(w, http.StatusOK, q)
}

// windowAndEpoch returns the window and epoch of a request. The default is the current epoch.
func (a *API) windowAndEpoch(w http.ResponseWriter, r *http.Request) (win *window.Window, epoch int, ok bool) {
	if win = a.window(w, r); win == nil {
		return nil, 0, false
	}
	said, err := epochOf(r, win)
	if err != nil {
		fail(w, http.StatusBadRequest, err)
		return nil, 0, false
	}
	if said == nil {
		return win, win.Epoch(), true
	}
	return win, *said, true
}

// lines sends one JSON line for each value. It returns an error that comes before the first, and sends
// nothing then; another one ends the response in a way that the client notices.
func lines[T any](w http.ResponseWriter, values iter.Seq2[T, error]) error {
	out, sent := json.NewEncoder(w), false
	for v, err := range values {
		switch {
		case err == nil:
			if !sent {
				w.Header().Set("Content-Type", "application/jsonl")
			}
			if sent = true; out.Encode(v) != nil {
				return nil // the client is gone
			}
		case sent:
			panic(http.ErrAbortHandler)
		default:
			return err
		}
	}
	return nil
}
