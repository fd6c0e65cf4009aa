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

// Limits for a silent server. They apply whatever the context of the caller allows.
const (
	// connectWithin is the limit for connecting and logging in together.
	connectWithin = 10 * time.Second
	// silence is how long the server may send nothing while requests are pending. After a third of
	// it the session sends an echo, since some calls take long.
	silence = 18 * time.Second
)

// credits is the number of 64 KiB units that a session may have in flight, if the server agrees.
const credits = 1024

// dialer opens sessions to one share, or to none if its name is "".
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
		return nil, backends.Errorf(backends.Unavailable, "open", "", "the server %s does not respond: connection and login took longer than %v", d.address, d.connectWithin)
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

// survive turns a panic of the library, which parses what a hostile server may have crafted, into an
// error.
func survive(err *error) {
	if r := recover(); r != nil {
		*err = fmt.Errorf("invalid response from the server: %v", r)
	}
}

// shares returns the names of all shares of the server.
func (s *session) shares(ctx context.Context) (names []string, err error) {
	defer survive(&err)
	return s.smb.WithContext(ctx).ListSharenames()
}

func (s *session) login(ctx context.Context, smb *smb2.Dialer, d *dialer) (err error) {
	defer survive(&err)
	if s.smb, err = smb.DialConn(ctx, newSealingConn(s.conn, d.signing), d.host); err != nil {
		return err
	}
	if d.share == "" {
		return nil
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

// near is the longest round trip of a nearby server.
const near = 2 * time.Millisecond

// measure sets roundTrip while the session is idle. It uses the shorter of two echoes, because a
// busy machine makes them longer.
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

// mountError reports that the login worked but the server refused the share.
type mountError struct{ err error }

func (e *mountError) Error() string { return e.err.Error() }
func (e *mountError) Unwrap() error { return e.err }

// explain returns an error that describes why no session could be opened.
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
		return backends.Errorf(backends.Permission, "open", "", "the server denies the login; it may require encryption, which SMB 2 lacks")
	case status(err) == statusNotSupported:
		return backends.Errorf(backends.Unsupported, "open", "", "the server %s rejects the supported SMB versions, 2.0.2 to 3.1.1", d.address)
	case innermost(err) == io.EOF: //nolint:errorlint // it is the last of the chain
		return backends.Errorf(backends.Unavailable, "open", "", "%s closed the connection before the login: is it an SMB server?", d.address)
	case errors.As(err, &invalid) && d.signing && invalid.Message == "guest account doesn't support signing":
		return backends.Errorf(backends.Permission, "open", "", "the server does not know this user and allows only guest access, which cannot sign: correct the user, or set ?signing=off")
	}
	return classify("open", "", err)
}

// session is one authenticated connection with its mounted share. It ends at the first failure of
// the connection and is not reused.
type session struct {
	address string
	silence time.Duration
	conn    *watched
	smb     *smb2.Session
	share   *smb2.Share // bound to ctx

	roundTrip time.Duration // measured at login

	ctx context.Context // lifetime of the session; the context of all its calls
	end context.CancelCauseFunc

	// Semaphores for calls that move no data and for those that do.
	calls, transfers chan struct{}
	awaited          atomic.Int64 // number of pending calls
}

const (
	// metadataCalls and transfers limit concurrent calls to what the credits of a server allow.
	// Beyond them servers return STATUS_INVALID_PARAMETER.
	metadataCalls = 8
	transfers     = 12
)

// kill ends the session. Pending calls fail.
func (s *session) kill(why error) {
	s.end(&lost{why})
	_ = s.conn.Close() // the session has failed already
}

// alive reports whether the session can be used.
func (s *session) alive() bool { return s.ctx.Err() == nil }

// close ends a session that is no longer needed. It logs off only when the session is idle, because
// the library mishandles a logoff amid other calls.
func (s *session) close() {
	if s.alive() && s.awaited.Load() == 0 {
		ctx, cancel := context.WithTimeout(s.ctx, time.Second)
		defer cancel()
		_ = s.smb.WithContext(ctx).Logoff() // the server ends the session anyway
	}
	s.kill(errors.New("it was closed"))
}

// watch ends the session when the server is silent while requests are pending.
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
			s.conn.received() // nothing is pending: restart the silence
		case quiet > s.silence:
			s.kill(fmt.Errorf("the server %s was silent for %v", s.address, quiet.Round(time.Millisecond)))
			return
		case quiet > s.silence/3 && !asked:
			asked = true
			go func() { _ = s.smb.WithContext(s.ctx).Echo() }() // watched records the response
		case quiet < s.silence/3:
			asked = false
		}
	}
}

// do runs one library call and ends the session if the error is fatal.
func (s *session) do(f func(*smb2.Share) error) (err error) {
	if !s.alive() {
		return context.Cause(s.ctx)
	}
	if s.awaited.Add(1) == 1 {
		s.conn.received() // the silence starts with the call
	}
	defer s.awaited.Add(-1)
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("invalid response from the server: %v", r)
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

// fatal reports whether an error concerns the whole session and not one call.
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

// call runs a call that moves no data and limits how many run at once. When ctx ends, call returns
// at once and the library call finishes in the background: interrupting it while it sends would
// make the library reuse its buffer too early. The result of such an abandoned call is passed to
// drop, if drop is not nil.
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

// transfer runs a call that moves data. It cannot be interrupted; a caller that cannot wait runs it
// in a goroutine.
func (s *session) transfer(f func() error) error {
	select {
	case s.transfers <- struct{}{}:
	case <-s.ctx.Done():
		return context.Cause(s.ctx)
	}
	defer func() { <-s.transfers }()
	return s.do(func(*smb2.Share) error { return f() })
}

// watched is a connection that records when it last received data. It ends its session when it
// fails.
type watched struct {
	net.Conn
	session     *session
	writeWithin time.Duration
	last        atomic.Int64 // Unix time in nanoseconds
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
		_ = w.Conn.SetWriteDeadline(time.Now().Add(w.writeWithin)) // Write reports the error
		m, err = w.Conn.Write(p[n:min(n+128<<10, len(p))])
		n += m
	}
	if err != nil {
		w.session.kill(err)
	}
	return n, err
}
