package api

import (
	"context"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/stager/checkpoint"
	"github.com/stager-dev/stager/stager/plan"
	"github.com/stager-dev/stager/window"
)

// API serves the state of a daemon and accepts requests that change it. All exported fields are
// required.
type API struct {
	// Window returns an input's window. It returns ErrUnknown if there is no such input, ErrNotYet
	// while the input is being listed, ErrAbsent if it is optional and absent, and another error if
	// it failed.
	Window func(input string) (*window.Window, error)
	// Windows returns the open windows and reports whether more will follow.
	Windows func() (open []*window.Window, more bool)
	// Uploader returns an output's uploader. It returns ErrUnknown if there is no such output, and
	// ErrNotYet while its destination is being opened.
	Uploader func(output string) (*checkpoint.Uploader, error)
	Snapshot func() Snapshot
	// Quality measures how well mixed the reported deliveries were.
	Quality func(input string, report iter.Seq2[window.Delivery, error]) (plan.Quality, error)
	// Rewind makes an input continue from cursors, and returns its new cursor.
	Rewind func(ctx context.Context, input string, cursors []window.Cursor) (window.Cursor, error)
	// Drain starts the drain: outputs are saved within the deadline.
	Drain func(deadline time.Duration)
	// Save saves all outputs after the trainer exited with a code. It returns ErrNotYet before the
	// destinations are open, and an error if a required output is not safe.
	Save func(ctx context.Context, code int) error
	// Restored records that the trainer of a job begins again, from the checkpoint of an agreement
	// in a source, in the outputs that save there. It returns ErrNotYet before the destinations are
	// open.
	Restored func(source, job string, agreement int) error

	Metrics http.Handler
	Log     *slog.Logger

	streams streams
	bound   bindings
	bodies  sync.Mutex // held while the body of a rewind is read, which may be large
}

// Errors of API.Window, API.Uploader and API.Rewind.
var (
	ErrUnknown = errors.New("no such name in the plan")
	ErrAbsent  = errors.New("it is optional, and its source has no objects")
	ErrNotYet  = errors.New("it is still being opened; try again in a moment")
	// ErrListing means that a window has only the first objects of its source, and no cursor.
	ErrListing = errors.New("its source is still being listed, which must end first; try again in a moment")
)

// longestBody is more than any request needs, and longestOrder more than any commit needs.
const (
	longestBody  = 1 << 20
	longestOrder = 32 << 10
)

// Handler serves the API to clients with full access: those that can open the socket.
func (a *API) Handler() http.Handler {
	return a.routes(func(h http.HandlerFunc) http.HandlerFunc { return h })
}

// Guarded serves the API on a port, which any process on the host can reach. Requests that change
// something, and requests for shards, need the bearer token; without a token they are refused. A
// request for a host name that is not in names and not the machine's own is refused, too.
func (a *API) Guarded(token string, names ...string) http.Handler {
	return ownHost(names, a.routes(func(h http.HandlerFunc) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			given, bearer := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
			switch {
			case token == "":
				fail(w, http.StatusForbidden, errors.New("this port is read-only, because stager was started without --token-file; use the socket"))
			case !bearer || subtle.ConstantTimeCompare([]byte(given), []byte(token)) != 1:
				w.Header().Set("WWW-Authenticate", "Bearer")
				fail(w, http.StatusUnauthorized, errors.New("this call requires \"Authorization: Bearer\" with the token from --token-file on a port; the socket requires none"))
			default:
				h(w, r)
			}
		}
	}))
}

// routes returns all handlers. guard wraps those that change something or return contents.
func (a *API) routes(guard func(http.HandlerFunc) http.HandlerFunc) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/inputs/{input}/lease", guard(limited(a.lease)))
	mux.HandleFunc("GET /v1/inputs/{input}/next", guard(limited(a.next)))
	mux.HandleFunc("GET /v1/inputs/{input}", a.input)
	mux.HandleFunc("GET /v1/inputs/{input}/cursor", a.cursor)
	mux.HandleFunc("PUT /v1/inputs/{input}/cursor", guard(a.rewind))
	mux.HandleFunc("GET /v1/inputs/{input}/quality", a.quality)
	mux.HandleFunc("GET /v1/inputs/{input}/plan", a.positions)
	mux.HandleFunc("GET /v1/inputs/{input}/report", a.report)
	mux.HandleFunc("POST /v1/leases/{id}/{verb}", guard(a.endLease))
	mux.HandleFunc("POST /v1/ack", guard(a.endLeaseByPath))
	mux.HandleFunc("POST /v1/nack", guard(a.endLeaseByPath))
	mux.HandleFunc("POST /v1/outputs/{output}/commit", guard(a.commit))
	mux.HandleFunc("GET /v1/outputs/{output}", a.output)
	mux.HandleFunc("POST /v1/drain", guard(a.drain))
	mux.HandleFunc("POST /v1/save", guard(a.save))
	mux.HandleFunc("POST /v1/restored", guard(a.restored))
	mux.HandleFunc("GET /v1/status", func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, a.Snapshot()) })
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", a.ready)
	mux.Handle("GET /metrics", a.Metrics)
	bounded := http.MaxBytesHandler(mux, longestBody)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(versionHeader, version)
		bounded.ServeHTTP(w, r)
	})
}

// versionHeader is in every response, so that a client detects a daemon that it does not fit. The
// version increases when a client of the version before would fail or lose data.
const (
	versionHeader = "Stager-Api"
	version       = "1"
)

func (a *API) ready(w http.ResponseWriter, _ *http.Request) {
	s := a.Snapshot()
	if s.Ready {
		fmt.Fprintln(w, "ready")
		return
	}
	fail(w, http.StatusServiceUnavailable, fmt.Errorf("not ready: %s", s.Waiting))
}

func (a *API) drain(w http.ResponseWriter, r *http.Request) {
	deadline, err := duration(r, "deadline", 0)
	if err != nil {
		fail(w, http.StatusBadRequest, err)
		return
	}
	a.Drain(deadline)
	answer(w, http.StatusAccepted, a.Snapshot())
}

func (a *API) output(w http.ResponseWriter, r *http.Request) {
	if u := a.uploader(w, r); u != nil {
		answer(w, http.StatusOK, u.Status())
	}
}

func (a *API) uploader(w http.ResponseWriter, r *http.Request) *checkpoint.Uploader {
	name := r.PathValue("output")
	u, err := a.Uploader(name)
	if err != nil {
		failLookup(w, "output", name, err)
	}
	return u
}

// CommitOrder is the body of a commit request.
type CommitOrder struct {
	Path        string `json:"path"`                  // absolute, or relative to the output's directory
	Step        *int64 `json:"step,omitempty"`        // absent: the number at the end of the path
	SamplesSeen int64  `json:"samplesSeen,omitempty"` // samples used since the job began, of those that this stager delivered
	AllNodes    bool   `json:"allNodes,omitempty"`    // the files of all nodes are complete
}

// commit responds when the checkpoint is retained by hard links, so that the trainer may prune its
// own files. With ?wait=30s it responds when the checkpoint is saved, or with 202 when the time is
// over. It responds with 409 if files have changed since, and with 507 if there is no room for
// files.
func (a *API) commit(w http.ResponseWriter, r *http.Request) {
	u := a.uploader(w, r)
	if u == nil {
		return
	}
	wait, err := duration(r, "wait", 0)
	if err != nil {
		fail(w, http.StatusBadRequest, err)
		return
	}
	order, err := readOrder(w, r)
	if err != nil {
		badBody(w, fmt.Errorf(`the body must be {"path": …, "step": …, "samplesSeen": …, "allNodes": …}: %w`, err))
		return
	}
	request := checkpoint.CommitRequest{Path: order.Path, Step: -1, SamplesSeen: order.SamplesSeen, AllNodes: order.AllNodes}
	if order.Step != nil {
		request.Step = *order.Step
	}
	step, err := u.Commit(r.Context(), request)
	if err != nil {
		fail(w, codeForCommit(err), err)
		return
	}
	code := http.StatusAccepted
	if wait > 0 {
		switch err := waitFor(r.Context(), wait, u, step.Step); {
		case err == nil:
			code = http.StatusOK
		case !errors.Is(err, errNotYetSaved):
			fail(w, codeForSaving(err), err)
			return
		}
	}
	answer(w, code, step)
}

func readOrder(w http.ResponseWriter, r *http.Request) (order CommitOrder, err error) {
	body := json.NewDecoder(http.MaxBytesReader(w, r.Body, longestOrder))
	body.DisallowUnknownFields()
	if err := body.Decode(&order); err != nil {
		return order, err
	}
	_, err = body.Token()
	switch {
	case !errors.Is(err, io.EOF):
		return order, errors.Join(errors.New("unexpected data after the body"), err)
	case order.Path == "":
		return order, errors.New("the path is missing")
	case order.Step != nil && *order.Step < 0:
		return order, fmt.Errorf("step %d is negative", *order.Step)
	}
	return order, nil
}

// codeForCommit returns the status for a refused commit; it shows who must act.
func codeForCommit(err error) int {
	switch backends.KindOf(err) {
	case backends.Invalid, backends.NotExist, backends.Exist, backends.Permission, backends.Unsupported:
		return http.StatusUnprocessableEntity
	case backends.NoSpace:
		return http.StatusInsufficientStorage
	}
	return codeForSaving(err)
}

// codeForSaving returns the status for an accepted commit that failed. Changed files are complete
// some time later: the same request may succeed then.
func codeForSaving(err error) int {
	switch {
	case errors.As(err, new(*checkpoint.ProvisionalError)), backends.KindOf(err) == backends.Changed:
		return http.StatusConflict
	}
	return http.StatusInternalServerError
}

// failLookup responds with the reason why an input or output is not available.
func failLookup(w http.ResponseWriter, what, name string, err error) {
	err = fmt.Errorf("%s %q: %w", what, name, err)
	switch {
	case errors.Is(err, ErrUnknown), errors.Is(err, ErrAbsent):
		fail(w, http.StatusNotFound, err)
	case errors.Is(err, ErrListing):
		w.Header().Set(waitCauseHeader, causeListing)
		fallthrough
	case errors.Is(err, ErrNotYet):
		w.Header().Set("Retry-After", "1")
		fail(w, http.StatusServiceUnavailable, err)
	default:
		fail(w, http.StatusInternalServerError, err)
	}
}

// duration parses a parameter such as 30s.
func duration(r *http.Request, name string, absent time.Duration) (time.Duration, error) {
	text := r.FormValue(name)
	if text == "" {
		return absent, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		return 0, fmt.Errorf("%s=%q is not a time such as 30s or 5m", name, text)
	}
	return d, nil
}

// answer sends a response that may get lost: a client that is gone retries.
func answer(w http.ResponseWriter, code int, v any) {
	_ = deliver(w, code, v) // see above
}

// deliver sends a response and returns an error if the client did not receive it.
func deliver(w http.ResponseWriter, code int, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(text)+1))
	w.WriteHeader(code)
	_, err = w.Write(append(text, '\n'))
	return errors.Join(err, http.NewResponseController(w).Flush())
}

// Failure is the body of an error response.
type Failure struct {
	Error string `json:"error"`
}

func fail(w http.ResponseWriter, code int, err error) {
	answer(w, code, Failure{err.Error()})
}
