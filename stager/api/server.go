package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// longestHeader is more than any request needs: a path of 4 KiB takes up to 12 KiB when escaped.
const longestHeader = 32 << 10

// headerTime limits how long a request's header may take to arrive.
const headerTime = 10 * time.Second

type connKey struct{}

// connOf returns the connection of a request, or nil under a server of another type.
func connOf(r *http.Request) *tracked {
	c, _ := r.Context().Value(connKey{}).(*tracked)
	return c
}

// Server is an http.Server that watches its connections, as bound leases need, and limits their
// number: clients must not use up the file descriptors that fetching and saving need.
type Server struct {
	http      http.Server
	table     *connections
	stop      context.CancelFunc
	ending    atomic.Bool
	hostCheck sync.RWMutex // held for reading by every handler
}

// NewServer returns a server for h within limits. With a nil log it logs nothing.
func NewServer(h http.Handler, limits Limits, log *slog.Logger) *Server {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	ctx, stop := context.WithCancel(context.Background())
	s := &Server{stop: stop, table: newConnections(limits, log)}
	s.http.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.handle(h, w, r) })
	s.http.ReadHeaderTimeout = headerTime
	s.http.MaxHeaderBytes = longestHeader
	s.http.ErrorLog = slog.NewLogLogger(log.Handler(), slog.LevelWarn)
	s.http.BaseContext = func(net.Listener) context.Context {
		return context.WithValue(ctx, serverKey{}, s)
	}
	s.http.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		return context.WithValue(ctx, connKey{}, c)
	}
	s.http.ConnState = func(c net.Conn, state http.ConnState) {
		t, ok := c.(*tracked)
		switch {
		case !ok:
		case state == http.StateActive, state == http.StateIdle:
			s.table.note(t, state)
		case state == http.StateClosed && !s.ending.Load():
			// The server ends, not the reader: the reader keeps its lease and uses it with the next
			// server.
			t.end()
		}
	}
	return s
}

// handle serves one request. If a handler returns without a response, its client is gone, or this
// process ends while the client still waits. net/http would then send 200 with an empty body, which
// a reader of [API.next] takes for an empty archive. So handle closes the connection instead.
func (s *Server) handle(h http.Handler, w http.ResponseWriter, r *http.Request) {
	s.hostCheck.RLock()
	defer s.hostCheck.RUnlock()
	out := &reply{ResponseWriter: w}
	if !s.ending.Load() {
		s.table.serve(connOf(r))
		if r.Body != http.NoBody {
			r.Body = newTimedBody(w, r.Body, s.table.limits.Body)
		}
		h.ServeHTTP(out, r)
	}
	if !out.begun && (s.ending.Load() || r.Context().Err() != nil) {
		panic(http.ErrAbortHandler)
	}
}

// reply is a ResponseWriter that knows whether anything was written.
type reply struct {
	http.ResponseWriter
	begun bool
}

// Unwrap supports http.ResponseController.
func (r *reply) Unwrap() http.ResponseWriter { return r.ResponseWriter }

func (r *reply) WriteHeader(code int) {
	r.begun = true
	r.ResponseWriter.WriteHeader(code)
}

func (r *reply) Write(p []byte) (int, error) {
	r.begun = true
	return r.ResponseWriter.Write(p)
}

// ReadFrom copies a file without an additional buffer.
func (r *reply) ReadFrom(from io.Reader) (int64, error) {
	r.begun = true
	return io.Copy(r.ResponseWriter, from)
}

// timedBody is a request's body with a deadline. At its end the deadline is removed: from then on
// the server reads only to detect the end of the connection.
type timedBody struct {
	io.ReadCloser
	deadline func(time.Time) error
}

func newTimedBody(w http.ResponseWriter, body io.ReadCloser, limit time.Duration) *timedBody {
	b := &timedBody{body, http.NewResponseController(w).SetReadDeadline}
	_ = b.deadline(time.Now().Add(limit)) // servers of other types may not support deadlines
	return b
}

func (b *timedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if errors.Is(err, io.EOF) {
		_ = b.deadline(time.Time{}) // likewise
	}
	return n, err
}

// badBody responds to a request whose body is invalid, too long or late.
func badBody(w http.ResponseWriter, err error) {
	var tooLong *http.MaxBytesError
	var timeout net.Error
	code := http.StatusBadRequest
	switch {
	case errors.As(err, &tooLong):
		code, err = http.StatusRequestEntityTooLarge, fmt.Errorf("the body is longer than the limit of %d bytes", tooLong.Limit)
	case errors.As(err, &timeout) && timeout.Timeout():
		code, err = http.StatusRequestTimeout, errors.New("timed out reading the body")
	}
	w.Header().Set("Connection", "close")
	fail(w, code, err)
}

type serverKey struct{}

// serverOf returns the server of a request, or nil under a server of another type.
func serverOf(r *http.Request) *Server {
	s, _ := r.Context().Value(serverKey{}).(*Server)
	return s
}

// serverEnds reports whether a request was cut off because its server is closing.
func serverEnds(r *http.Request) bool {
	s := serverOf(r)
	return s != nil && s.ending.Load()
}

// Serve accepts connections on l until Close.
func (s *Server) Serve(l net.Listener) error {
	stop := s.table.sweepRegularly()
	defer stop()
	err := s.http.Serve(trackingListener{l, s.table})
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// Close ends all connections and returns when their handlers have returned. Leases bound to the
// connections stay valid.
func (s *Server) Close() error {
	s.ending.Store(true)
	s.stop()
	err := s.http.Close()
	s.hostCheck.Lock() // later handlers see that the server is closing
	defer s.hostCheck.Unlock()
	return err
}
