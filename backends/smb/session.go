package smb

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	smb2 "github.com/cloudsoda/go-smb2"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/internal/kerberos"
)

// How long a server may be silent. These hold whatever the caller's context says.
const (
	// connectWithin is the time for all of connecting and logging in.
	connectWithin = 10 * time.Second
	// silence is for how long nothing may come while something is awaited. After a
	// third of it the server is asked whether it lives, since some calls take long.
	silence = 18 * time.Second
)

// credits are how much may be under way in a session, in pieces of 64 KiB, as far as
// the server agrees.
const credits = 1024

// dialer makes sessions of one share.
type dialer struct {
	settings
	opts          backends.Options
	log           *slog.Logger
	connectWithin time.Duration
	silence       time.Duration

	krb   sync.Mutex // guards login
	login *kerberos.Login
}

// dial connects and logs in.
func (d *dialer) dial(ctx context.Context) (*session, error) {
	within, cancel := context.WithTimeout(ctx, d.connectWithin)
	defer cancel()
	s, err := d.connect(within)
	switch {
	case err == nil:
		return s, nil
	case ctx.Err() != nil:
		return nil, ended(ctx, "open", "")
	case within.Err() != nil:
		return nil, backends.Errorf(backends.Unavailable, "open", "", "the server %s does not answer: it took longer than %v to connect and log in", d.address, d.connectWithin)
	}
	return nil, d.explain(err)
}

func (d *dialer) connect(ctx context.Context) (*session, error) {
	how, err := d.initiator(ctx)
	if err != nil {
		return nil, err
	}
	raw, err := new(net.Dialer).DialContext(ctx, "tcp", d.address)
	if err != nil {
		return nil, err
	}
	s := &session{address: d.address, silence: d.silence, calls: make(chan struct{}, metadataCalls), transfers: make(chan struct{}, transfers)}
	s.ctx, s.end = context.WithCancelCause(context.Background())
	s.conn = &watched{Conn: raw, session: s, writeWithin: d.silence}
	smb := &smb2.Dialer{
		MaxCreditBalance: credits,
		Negotiator:       smb2.Negotiator{RequireMessageSigning: d.signing},
		Initiator:        how,
	}
	if err := s.login(ctx, smb, d); err != nil {
		s.kill(err)
		return nil, err
	}
	d.log.Debug("logged in to a share", "server", d.address, "share", d.share)
	go s.watch()
	return s, nil
}

func (s *session) login(ctx context.Context, smb *smb2.Dialer, d *dialer) (err error) {
	// The library takes answers apart that a hostile server may have made.
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("the server's answer cannot be understood: %v", r)
		}
	}()
	if s.smb, err = smb.DialConn(ctx, newSealingConn(s.conn, d.signing), d.host); err != nil {
		return err
	}
	var opts []smb2.MountOption
	if d.mapped {
		opts = append(opts, smb2.WithMapPosix())
	}
	s.share, err = s.smb.WithContext(ctx).Mount(d.share, opts...)
	if err != nil {
		return &mountError{err}
	}
	s.share = s.share.WithContext(s.ctx)
	return s.measure(ctx)
}

// near is a round trip from which on a server is far.
const near = 2 * time.Millisecond

// measure finds how far the server is while nothing else is under way; the better of
// two counts, since a machine that is busy makes them long.
func (s *session) measure(ctx context.Context) error {
	smb := s.smb.WithContext(ctx)
	for range 2 {
		asked := time.Now()
		if err := smb.Echo(); err != nil {
			return err
		}
		if took := time.Since(asked); s.roundTrip == 0 || took < s.roundTrip {
			s.roundTrip = took
		}
		if s.roundTrip <= near {
			break
		}
	}
	return nil
}

// mountError says that the login worked and the share is what is refused.
type mountError struct{ err error }

func (e *mountError) Error() string { return e.err.Error() }
func (e *mountError) Unwrap() error { return e.err }

// explain puts words to why there is no session.
func (d *dialer) explain(err error) error {
	var (
		mount   *mountError
		invalid *smb2.InvalidResponseError
		done    *backends.Error
	)
	switch {
	case errors.As(err, &done):
		return err
	case status(err) == statusBadNetworkName, errors.As(err, &mount) && errors.Is(err, os.ErrNotExist):
		return backends.Errorf(backends.NotExist, "open", "", "the server %s has no share named %q", d.address, d.share)
	case errors.As(err, &mount) && errors.Is(err, os.ErrPermission):
		return backends.Errorf(backends.Permission, "open", "", "this user may not use the share %q", d.share)
	case errors.Is(err, os.ErrPermission):
		return backends.Errorf(backends.Permission, "open", "", "the server denies the login; one that insists on encryption denies it to SMB 2 as well")
	case status(err) == statusNotSupported:
		return backends.Errorf(backends.Unsupported, "open", "", "the server %s refuses the SMB versions that are spoken here, 2.0.2 to 3.1.1", d.address)
	case innermost(err) == io.EOF: //nolint:errorlint // it is the last of the chain
		return backends.Errorf(backends.Unavailable, "open", "", "what answers at %s hangs up before the login: is it an SMB server?", d.address)
	case errors.As(err, &invalid) && d.signing && invalid.Message == "guest account doesn't support signing":
		return backends.Errorf(backends.Permission, "open", "", "the server does not know this user and lets him in as a guest, who cannot sign: correct the user, or say ?signing=off")
	}
	return classify("open", "", err)
}

// session is one connection, logged in, with its share. It ends with the first
// failure of its connection, and is not used again.
type session struct {
	address string
	silence time.Duration
	conn    *watched
	smb     *smb2.Session
	share   *smb2.Share // bound to ctx

	roundTrip time.Duration // to the server, as it was at first

	ctx context.Context // the session's life, and what all its calls are bound to
	end context.CancelCauseFunc

	// What is under way: calls that move no data, and those that do.
	calls, transfers chan struct{}
	awaited          atomic.Int64 // answers
}

const (
	// metadataCalls and transfers are how many at once a server's credits carry;
	// beyond them it answers that parameters are wrong.
	metadataCalls = 8
	transfers     = 12
)

// kill ends the session. Calls under way fail.
func (s *session) kill(why error) {
	s.end(&lost{why})
	_ = s.conn.Close() // nothing is expected of it any more
}

// alive tells whether the session may be used.
func (s *session) alive() bool { return s.ctx.Err() == nil }

// close ends a session that nothing is expected of: politely if it is at rest, for
// the library loses its head when it is asked to log off amid other calls.
func (s *session) close() {
	if s.alive() && s.awaited.Load() == 0 {
		ctx, cancel := context.WithTimeout(s.ctx, time.Second)
		defer cancel()
		_ = s.smb.WithContext(ctx).Logoff() // the server ends it anyway
	}
	s.kill(errors.New("it was closed"))
}

// watch ends the session when the server is silent while something is awaited.
func (s *session) watch() {
	tick := time.NewTicker(s.silence / 6)
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
		case s.awaited.Load() == 0:
			s.conn.received() // nothing is awaited, so the silence has not begun
		case quiet > s.silence:
			s.kill(fmt.Errorf("the server %s was silent for %v", s.address, quiet.Round(time.Millisecond)))
			return
		case quiet > s.silence/3 && !asked:
			asked = true
			go func() { _ = s.smb.WithContext(s.ctx).Echo() }() // its answer is heard by watched
		case quiet < s.silence/3:
			asked = false
		}
	}
}

// do makes one call of the library and judges how it ended.
func (s *session) do(f func(*smb2.Share) error) (err error) {
	if !s.alive() {
		return context.Cause(s.ctx)
	}
	if s.awaited.Add(1) == 1 {
		s.conn.received() // the silence begins with the call
	}
	defer s.awaited.Add(-1)
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("the server's answer cannot be understood: %v", r)
			s.kill(err)
		}
		if err != nil && !s.alive() {
			err = context.Cause(s.ctx)
		}
	}()
	err = f(s.share)
	if fatal(err) {
		s.kill(err)
	}
	return err
}

// fatal tells whether an error is of the session and not of one call.
func fatal(err error) bool {
	var (
		transport *smb2.TransportError
		invalid   *smb2.InvalidResponseError
		internal  *smb2.InternalError
	)
	switch status(err) {
	case statusNameDeleted, statusSessionDeleted, statusSessionExpired:
		return true
	}
	return errors.As(err, &transport) || errors.As(err, &invalid) || errors.As(err, &internal)
}

// call makes a call that moves no data, of which few are made at once. When
// ctx ends it returns at once, and the call ends by itself: the library must not be
// interrupted while it sends, for its buffer is then used again too early. What such
// a call returns is given to drop, if that is not nil.
func call[T any](ctx context.Context, s *session, f func(*smb2.Share) (T, error), drop func(T)) (T, error) {
	type result struct {
		value T
		err   error
	}
	var none T
	select {
	case s.calls <- struct{}{}:
	case <-ctx.Done():
		return none, context.Cause(ctx)
	case <-s.ctx.Done():
		return none, context.Cause(s.ctx)
	}
	done, left := make(chan result), make(chan struct{})
	go func() {
		var r result
		r.err = s.do(func(share *smb2.Share) (err error) {
			r.value, err = f(share)
			return err
		})
		<-s.calls
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

// transfer makes a call that moves data. It is not interrupted; those who cannot wait
// make it in a goroutine.
func (s *session) transfer(f func() error) error {
	select {
	case s.transfers <- struct{}{}:
	case <-s.ctx.Done():
		return context.Cause(s.ctx)
	}
	defer func() { <-s.transfers }()
	return s.do(func(*smb2.Share) error { return f() })
}

// watched is a connection that knows when it last heard of the server, and ends its
// session when it breaks.
type watched struct {
	net.Conn
	session     *session
	writeWithin time.Duration
	last        atomic.Int64 // nanoseconds of Unix time
}

func (w *watched) received() { w.last.Store(time.Now().UnixNano()) }

func (w *watched) Read(p []byte) (int, error) {
	n, err := w.Conn.Read(p)
	if n > 0 {
		w.received()
	}
	if err != nil {
		w.session.kill(err)
	}
	return n, err
}

func (w *watched) Write(p []byte) (n int, err error) {
	for n < len(p) && err == nil {
		var m int
		_ = w.Conn.SetWriteDeadline(time.Now().Add(w.writeWithin)) // Write tells what is wrong
		m, err = w.Conn.Write(p[n:min(n+128<<10, len(p))])
		n += m
	}
	if err != nil {
		w.session.kill(err)
	}
	return n, err
}
