package sftp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync/atomic"
	"time"

	"github.com/pkg/sftp"
	"golang.org/x/crypto/ssh"

	"github.com/stager-dev/stager/backends"
)

// Limits for a silent server. They apply whatever the context of the caller allows.
const (
	// connectWithin is the limit for connecting and logging in together.
	connectWithin = 10 * time.Second
	// silence is how long the server may send nothing while requests are pending. After a third of
	// it the session sends a keepalive request, since some calls take long.
	silence = 18 * time.Second
)

// largePacket is the payload of one request to an OpenSSH server that reports its limits. All
// servers accept 32 KiB.
const largePacket = chunkSize

// dialer opens sessions.
type dialer struct {
	settings
	opts          backends.Options
	log           *slog.Logger
	connectWithin time.Duration
	silence       time.Duration
}

// dial connects and logs in.
func (d *dialer) dial(ctx context.Context) (*session, error) {
	within, cancel := context.WithTimeout(ctx, d.connectWithin)
	defer cancel()
	keys, err := d.hostKeys()
	if err != nil {
		return nil, err
	}
	for {
		s, err := d.connect(within, keys)
		switch {
		case err == nil:
			return s, nil
		case ctx.Err() != nil:
			return nil, ended(ctx, "open", "")
		case within.Err() != nil:
			return nil, backends.Errorf(backends.Unavailable, "open", "", "the server %s does not respond: connection and login took longer than %v", d.address, d.connectWithin)
		case keys.next():
			continue
		}
		return nil, classify("open", "", err)
	}
}

func (d *dialer) connect(ctx context.Context, keys *hostKeys) (*session, error) {
	how, err := d.login(ctx)
	if err != nil {
		return nil, err
	}
	defer how.close()
	raw, err := new(net.Dialer).DialContext(ctx, "tcp", d.address)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = raw.Close() }) // the handshake then fails
	defer stop()
	s := &session{address: d.address, silence: d.silence}
	s.ctx, s.end = context.WithCancelCause(context.Background())
	s.conn = &watched{Conn: raw, session: s, writeWithin: d.silence}
	if err := s.login(d.address, how, keys); err != nil {
		s.kill(err)
		return nil, err
	}
	d.log.Debug("logged in to an SSH server", "server", d.address)
	go s.watch()
	return s, nil
}

// login authenticates and starts SFTP. The library parses responses that a hostile server may have
// crafted.
func (s *session) login(address string, how *login, keys *hostKeys) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("invalid response from the server: %v", r)
		}
	}()
	conn, channels, requests, err := ssh.NewClientConn(s.conn, address, &ssh.ClientConfig{
		User:              how.user,
		Auth:              how.methods,
		HostKeyCallback:   keys.check,
		HostKeyAlgorithms: keys.algorithms,
		ClientVersion:     "SSH-2.0-stager",
	})
	if err != nil {
		return explain(err, address, how, keys)
	}
	s.ssh = ssh.NewClient(conn, channels, requests)
	probe, err := s.ssh.NewSession()
	if err == nil {
		err = s.start(probe)
	}
	if err != nil && s.alive() {
		return backends.Errorf(backends.Unsupported, "open", "", "the server %s lets user %s log in but offers no SFTP: enable its sftp subsystem for this user (%w)", address, how.user, err)
	}
	return err
}

// start starts SFTP in a channel.
func (s *session) start(channel *ssh.Session) error {
	in, err := channel.StdinPipe()
	if err != nil {
		return err
	}
	out, err := channel.StdoutPipe()
	if err != nil {
		return err
	}
	if err := channel.RequestSubsystem("sftp"); err != nil {
		return err
	}
	opts := []sftp.ClientOption{sftp.UseConcurrentWrites(true)}
	// The library cannot change its packet size once it knows the server, so the size is that of
	// OpenSSH, which clamps longer reads, unless the version string names another server.
	if strings.Contains(string(s.ssh.ServerVersion()), "OpenSSH") {
		opts = append(opts, sftp.MaxPacketUnchecked(largePacket))
	}
	s.client, err = sftp.NewClientPipe(out, in, opts...)
	return err
}

// explain returns an error that describes why the handshake failed.
func explain(err error, address string, how *login, keys *hostKeys) error {
	var none *ssh.AlgorithmNegotiationError
	text := err.Error()
	switch {
	case keys.rejected != nil:
		return keys.rejected
	case errors.As(err, &none) && len(keys.algorithms) > 0 && strings.Contains(text, "host key"):
		return keys.lacking()
	case errors.As(err, &none):
		return backends.Errorf(backends.Unsupported, "open", "", "the server %s has no algorithm in common with stager: %w", address, none)
	case strings.Contains(text, "unable to authenticate"), strings.Contains(text, "Too many authentication failures"):
		return how.rejection()
	case errors.Is(err, io.EOF):
		return backends.Errorf(backends.Unavailable, "open", "", "%s closed the connection before the login: it accepts no more connections, or is not an SSH server", address)
	}
	return err
}

// session is one authenticated connection with its SFTP channel. It ends at the first failure of
// the connection and is not reused.
type session struct {
	address string
	silence time.Duration
	conn    *watched
	ssh     *ssh.Client
	client  *sftp.Client

	ctx context.Context // lifetime of the session
	end context.CancelCauseFunc

	awaited atomic.Int64 // number of pending calls
}

// kill ends the session. Pending calls fail.
func (s *session) kill(why error) {
	s.end(&lostError{why})
	_ = s.conn.Close() // the session has failed already
}

// alive reports whether the session can be used.
func (s *session) alive() bool { return s.ctx.Err() == nil }

// close ends a session that is no longer needed.
func (s *session) close() { s.kill(errors.New("it was closed")) }

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
			go func() { _, _, _ = s.ssh.SendRequest("keepalive@openssh.com", true, nil) }() // watched records the response
		case quiet < s.silence/3:
			asked = false
		}
	}
}

// do runs one library call and ends the session if the error is fatal.
func (s *session) do(f func() error) (err error) {
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
	err = f()
	if fatal(err) {
		s.kill(err)
	}
	return err
}

// fatal reports whether an error concerns the whole session and not one call.
func fatal(err error) bool {
	return errors.Is(err, sftp.ErrSSHFxConnectionLost) || errors.Is(err, sftp.ErrSSHFxNoConnection) || errors.Is(err, net.ErrClosed)
}

// call runs a call of the library. When ctx ends, call returns at once and the library call
// finishes in the background. The result of such an abandoned call is passed to drop, if drop is
// not nil.
func call[T any](ctx context.Context, s *session, f func(*sftp.Client) (T, error), drop func(T)) (T, error) {
	type result struct {
		value T
		err   error
	}
	done, left := make(chan result), make(chan struct{})
	go func() {
		var r result
		r.err = s.do(func() (err error) {
			r.value, err = f(s.client)
			return err
		})
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
		var none T
		return none, context.Cause(ctx)
	}
}

// run is call for calls that return an error alone.
func run(ctx context.Context, s *session, f func(*sftp.Client) error) error {
	_, err := call(ctx, s, func(c *sftp.Client) (struct{}, error) { return struct{}{}, f(c) }, nil)
	return err
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

func (w *watched) Write(p []byte) (int, error) {
	_ = w.Conn.SetWriteDeadline(time.Now().Add(w.writeWithin)) // Write reports the error
	n, err := w.Conn.Write(p)
	if err != nil {
		w.session.kill(err)
	}
	return n, err
}
