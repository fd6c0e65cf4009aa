package fileshare

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"
)

// A Session is a connection to a server, for a library whose calls have no deadlines and cannot be
// interrupted. It ends at the first failure of the connection and is not reused.
type Session struct {
	config SessionConfig
	conn   *watchedConn
	ctx    context.Context // lifetime of the session
	end    context.CancelCauseFunc
	calls  chan struct{} // a token for each concurrent Call; nil if there is no limit
	active atomic.Int64  // number of pending calls
}

// SessionConfig describes a session.
type SessionConfig struct {
	Server string // for messages
	// Silence is how long the server may send nothing while calls are pending. After a third of it
	// the session sends a ping, since some calls take long.
	Silence time.Duration
	// Fatal returns the reason if an error of the library concerns the whole session and not one
	// call, else nil.
	Fatal func(error) error
	// Calls limits how many functions Call runs at once; 0 means no limit.
	Calls int
}

// NewSession returns the session of a new connection. The library uses Conn for the login. Call
// Watch afterwards.
func NewSession(conn net.Conn, c SessionConfig) *Session {
	s := &Session{config: c}
	s.ctx, s.end = context.WithCancelCause(context.Background())
	s.conn = &watchedConn{Conn: conn, session: s}
	if c.Calls > 0 {
		s.calls = make(chan struct{}, c.Calls)
	}
	return s
}

// Conn returns the connection for the library.
func (s *Session) Conn() net.Conn { return s.conn }

// Context returns the context of the session, which ends with it.
func (s *Session) Context() context.Context { return s.ctx }

// Alive reports whether the session can be used.
func (s *Session) Alive() bool { return s.ctx.Err() == nil }

// Err returns why the session ended, as a [LostError], or nil.
func (s *Session) Err() error { return context.Cause(s.ctx) }

// Idle reports whether no calls are pending.
func (s *Session) Idle() bool { return s.active.Load() == 0 }

// Silence returns how long the server may be silent.
func (s *Session) Silence() time.Duration { return s.config.Silence }

// Kill ends the session. Pending calls fail.
func (s *Session) Kill(why error) {
	s.end(&LostError{why})
	_ = s.conn.Close() // the session has failed already
}

// Close ends a session that is no longer needed.
func (s *Session) Close() { s.Kill(errors.New("it was closed")) }

// Watch ends the session when the server is silent while calls are pending. It runs until the
// session ends. It calls ping in a goroutine to request any response.
func (s *Session) Watch(ping func()) {
	silence := s.config.Silence
	tick := time.NewTicker(silence / 6)
	defer tick.Stop()
	asked := false
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-tick.C:
		}
		quiet := time.Since(time.Unix(0, s.conn.last.Load()))
		switch {
		case s.Idle():
			s.conn.received() // nothing is pending: restart the silence
		case quiet > silence:
			s.Kill(fmt.Errorf("the server %s was silent for %v", s.config.Server, quiet.Round(time.Millisecond)))
			return
		case quiet > silence/3 && !asked:
			asked = true
			go ping() // watchedConn records the response
		case quiet < silence/3:
			asked = false
		}
	}
}

// Do runs one call of the library and ends the session if its error is fatal.
func (s *Session) Do(f func() error) (err error) {
	if !s.Alive() {
		return s.Err()
	}
	if s.active.Add(1) == 1 {
		s.conn.received() // the silence starts with the call
	}
	defer s.active.Add(-1)
	defer func() {
		if err != nil && !s.Alive() {
			err = s.Err()
		}
	}()
	err = Survive(f)
	var invalid *invalidError
	switch why := s.config.Fatal(err); {
	case errors.As(err, &invalid):
		s.Kill(err)
	case why != nil:
		s.Kill(why)
	}
	return err
}

// invalidError reports that the library panicked.
type invalidError struct{ why any }

func (e *invalidError) Error() string {
	return fmt.Sprintf("invalid response from the server: %v", e.why)
}

// Survive calls f and turns a panic of the library, which parses what a hostile server may have
// crafted, into an error.
func Survive(f func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = &invalidError{r}
		}
	}()
	return f()
}

// Call runs a call of the library by Do. When ctx ends, Call returns at once and the call of the
// library finishes in the background. The result of such an abandoned call is passed to drop, if
// drop is not nil.
func Call[T any](ctx context.Context, s *Session, f func() (T, error), drop func(T)) (T, error) {
	type result struct {
		value T
		err   error
	}
	var none T
	if s.calls != nil {
		select {
		case s.calls <- struct{}{}:
		case <-ctx.Done():
			return none, context.Cause(ctx)
		case <-s.ctx.Done():
			return none, s.Err()
		}
	}
	done, left := make(chan result), make(chan struct{})
	go func() {
		var r result
		r.err = s.Do(func() (err error) {
			r.value, err = f()
			return err
		})
		if s.calls != nil {
			<-s.calls
		}
		select {
		case done <- r:
		case <-left:
			if r.err == nil && drop != nil {
				drop(r.value)
			}
		}
	}()
	select {
	case r := <-done:
		return r.value, r.err
	case <-ctx.Done():
		close(left)
		return none, context.Cause(ctx)
	}
}

// watchedConn is a connection that records when it last received data. It ends its session when it
// fails.
type watchedConn struct {
	net.Conn
	session *Session
	last    atomic.Int64 // Unix time in nanoseconds
}

func (w *watchedConn) received() { w.last.Store(time.Now().UnixNano()) }

func (w *watchedConn) Read(p []byte) (int, error) {
	n, err := w.Conn.Read(p)
	if n > 0 {
		w.received()
	}
	if err != nil {
		w.session.Kill(err)
	}
	return n, err
}

// longestWrite is how much is written under one deadline.
const longestWrite = 128 << 10

func (w *watchedConn) Write(p []byte) (n int, err error) {
	for n < len(p) && err == nil {
		var m int
		_ = w.Conn.SetWriteDeadline(time.Now().Add(w.session.config.Silence)) // Write reports the error
		m, err = w.Conn.Write(p[n:min(n+longestWrite, len(p))])
		n += m
	}
	if err != nil {
		w.session.Kill(err)
	}
	return n, err
}
