package smb

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"

	smb2 "github.com/cloudsoda/go-smb2"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/internal/fileshare"
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

// dial connects and logs in, to replace a session that ended for the reason after, or the first.
func (d *dialer) dial(ctx context.Context, after error) (*session, error) {
	within, cancel := context.WithTimeout(ctx, d.connectWithin)
	defer cancel()
	s, err := d.connect(within)
	switch {
	case err == nil:
		if after != nil {
			d.log.Info("reconnected to the share", "server", d.address, "share", d.share, "after", after)
		}
		return s, nil
	case ctx.Err() != nil:
		return nil, fileshare.Ended(ctx, "open", "")
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
	s := &session{
		Session:   fileshare.NewSession(raw, fileshare.SessionConfig{Server: d.address, Silence: d.silence, Fatal: fatal, Calls: metadataCalls}),
		transfers: make(chan struct{}, transfers),
	}
	smb := &smb2.Dialer{
		MaxCreditBalance: credits,
		Negotiator:       smb2.Negotiator{RequireMessageSigning: d.signing},
		Initiator:        how,
	}
	// The library parses responses that a hostile server may have crafted.
	if err := fileshare.Survive(func() error { return s.login(ctx, smb, d) }); err != nil {
		s.Kill(err)
		return nil, err
	}
	d.log.Debug("logged in to a share", "server", d.address, "share", d.share)
	go s.Watch(func() { _ = s.smb.WithContext(s.Context()).Echo() }) // any response will do
	return s, nil
}

// shares returns the names of all shares of the server.
func (s *session) shares(ctx context.Context) (names []string, err error) {
	err = fileshare.Survive(func() error {
		names, err = s.smb.WithContext(ctx).ListSharenames()
		return err
	})
	return names, err
}

func (s *session) login(ctx context.Context, smb *smb2.Dialer, d *dialer) (err error) {
	if s.smb, err = smb.DialConn(ctx, newSealingConn(s.Conn(), d.signing), d.host); err != nil {
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
	s.share = s.share.WithContext(s.Context())
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

// session is one authenticated connection with its mounted share.
type session struct {
	*fileshare.Session
	smb   *smb2.Session
	share *smb2.Share // bound to the context of the session

	roundTrip time.Duration // measured at login

	transfers chan struct{} // a token for each concurrent call that moves data
}

const (
	// metadataCalls and transfers limit concurrent calls to what the credits of a server allow.
	// Beyond them servers return STATUS_INVALID_PARAMETER.
	metadataCalls = 8
	transfers     = 12
)

// Close ends a session that is no longer needed. It logs off only when the session is idle, because
// the library mishandles a logoff amid other calls.
func (s *session) Close() {
	if s.Alive() && s.Idle() {
		ctx, cancel := context.WithTimeout(s.Context(), time.Second)
		defer cancel()
		_ = s.smb.WithContext(ctx).Logoff() // the server ends the session anyway
	}
	s.Session.Close()
}

// fatal returns an error that concerns the whole session and not one call, else nil.
func fatal(err error) error {
	var (
		transport *smb2.TransportError
		invalid   *smb2.InvalidResponseError
		internal  *smb2.InternalError
	)
	switch status(err) {
	case statusNameDeleted, statusSessionDeleted, statusSessionExpired:
		return innermost(err)
	}
	if errors.As(err, &transport) || errors.As(err, &invalid) || errors.As(err, &internal) {
		return innermost(err)
	}
	return nil
}

// call runs a call that moves no data by fileshare.Call. Interrupting it while it sends would make
// the library reuse its buffer too early.
func call[T any](ctx context.Context, s *session, f func(*smb2.Share) (T, error), drop func(T)) (T, error) {
	return fileshare.Call(ctx, s.Session, func() (T, error) { return f(s.share) }, drop)
}

// transfer runs a call that moves data. It cannot be interrupted; a caller that cannot wait runs it
// in a goroutine.
func (s *session) transfer(f func() error) error {
	select {
	case s.transfers <- struct{}{}:
	case <-s.Context().Done():
		return s.Err()
	}
	defer func() { <-s.transfers }()
	return s.Do(f)
}
