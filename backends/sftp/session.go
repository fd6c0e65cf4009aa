package sftp

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"strings"
	"time"

	"github.com/pkg/sftp"
	"golang.org/x/crypto/ssh"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/internal/fileshare"
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

// dial connects and logs in, to replace a session that ended for the reason after, or the first.
func (d *dialer) dial(ctx context.Context, after error) (*session, error) {
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
			if after != nil {
				d.log.Info("reconnected to the SSH server", "server", d.address, "after", after)
			}
			return s, nil
		case ctx.Err() != nil:
			return nil, fileshare.Ended(ctx, "open", "")
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
	s := &session{Session: fileshare.NewSession(raw, fileshare.SessionConfig{Server: d.address, Silence: d.silence, Fatal: fatal})}
	// The library parses responses that a hostile server may have crafted.
	if err := fileshare.Survive(func() error { return s.login(d.address, how, keys) }); err != nil {
		s.Kill(err)
		return nil, err
	}
	d.log.Debug("logged in to an SSH server", "server", d.address)
	go s.Watch(func() { _, _, _ = s.ssh.SendRequest("keepalive@openssh.com", true, nil) }) // any response will do
	return s, nil
}

// login authenticates and starts SFTP.
func (s *session) login(address string, how *login, keys *hostKeys) error {
	conn, channels, requests, err := ssh.NewClientConn(s.Conn(), address, &ssh.ClientConfig{
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
	if err != nil && s.Alive() {
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

// session is one authenticated connection with its SFTP channel.
type session struct {
	*fileshare.Session
	ssh    *ssh.Client
	client *sftp.Client
}

// fatal returns an error that concerns the whole session and not one call, else nil.
func fatal(err error) error {
	if errors.Is(err, sftp.ErrSSHFxConnectionLost) || errors.Is(err, sftp.ErrSSHFxNoConnection) || errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

// call runs a call of the library by fileshare.Call.
func call[T any](ctx context.Context, s *session, f func(*sftp.Client) (T, error), drop func(T)) (T, error) {
	return fileshare.Call(ctx, s.Session, func() (T, error) { return f(s.client) }, drop)
}

// run is call for calls that return an error alone.
func run(ctx context.Context, s *session, f func(*sftp.Client) error) error {
	_, err := call(ctx, s, func(c *sftp.Client) (struct{}, error) { return struct{}{}, f(c) }, nil)
	return err
}
