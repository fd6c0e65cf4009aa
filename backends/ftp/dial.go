package ftp

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/internal/objectstore"
)

const (
	// connectWithin is the limit for opening a connection and logging in.
	connectWithin = 15 * time.Second
	// silence is how long the server may send nothing.
	silence = 30 * time.Second
)

// dialer opens connections.
type dialer struct {
	settings
	opts  backends.Options
	log   *slog.Logger
	trust *tls.Config // nil: without encryption
}

// dial connects and logs in.
func (d *dialer) dial(ctx context.Context) (*conn, error) {
	user, password, err := d.credentials()
	if err != nil {
		return nil, err
	}
	within, cancel := context.WithTimeout(ctx, connectWithin)
	defer cancel()
	raw, err := new(net.Dialer).DialContext(within, "tcp", d.address)
	if err != nil {
		return nil, d.late(ctx, within, err)
	}
	stop := context.AfterFunc(within, func() { _ = raw.Close() }) // reading then fails
	defer stop()
	c := &conn{raw: raw, control: raw, in: bufio.NewReaderSize(raw, longestLine)}
	if err := d.login(c, user, password); err != nil {
		_ = raw.Close() // nothing was sent that matters
		return nil, d.late(ctx, within, err)
	}
	d.log.Debug("logged in to an FTP server", "server", d.address)
	return c, nil
}

// late returns the error of a server that took too long to log in, else err.
func (d *dialer) late(ctx, within context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case within.Err() != nil:
		return backends.Errorf(backends.Unavailable, "open", "", "the server %s does not respond: connection and login took longer than %v", d.address, connectWithin)
	}
	return err
}

// login starts encryption, authenticates, and prepares binary transfers.
func (d *dialer) login(c *conn, user, password string) error {
	if d.encryption == implicit {
		if err := c.encrypt(d.trust); err != nil {
			return err
		}
	}
	if err := d.greeting(c); err != nil {
		return err
	}
	if d.encryption == explicit {
		if _, err := c.command([]int{codeTLS}, "AUTH TLS"); err != nil {
			return d.lacksTLS(err)
		}
		if err := c.encrypt(d.trust); err != nil {
			return err
		}
	}
	if err := d.authenticate(c, user, password); err != nil {
		return err
	}
	if c.tls != nil {
		if _, err := c.command([]int{codeOK}, "PBSZ 0"); err != nil {
			return d.lacksTLS(err)
		}
		if _, err := c.command([]int{codeOK}, "PROT P"); err != nil {
			return d.lacksTLS(err)
		}
	}
	return d.prepare(c)
}

// greeting reads the first reply.
func (d *dialer) greeting(c *conn) error {
	for {
		r, err := c.reply()
		switch {
		case errors.Is(err, errNoReply):
			return backends.Errorf(backends.Invalid, "open", "", "%s is not an FTP server, or expects TLS at once: check the port, or write ftps:// with ?tls=implicit", d.address)
		case errors.Is(err, io.EOF):
			return errNoGreeting
		case err != nil:
			return err
		case r.code == codeReady:
			return nil
		case r.code < codeOK: // it asks to wait
			continue
		}
		return &replyError{r}
	}
}

// authenticate sends the user and the password.
func (d *dialer) authenticate(c *conn, user, password string) error {
	r, err := c.command([]int{codeLoggedIn, codePassword}, "USER "+user)
	if err == nil && r.code == codePassword {
		if password == "" {
			return refused("no password was found for user %s", user)
		}
		_, err = c.command([]int{codeLoggedIn, 202}, "PASS "+password)
	}
	var done *backends.Error
	switch {
	case err == nil:
		return nil
	case full(err), errors.As(err, &done):
		return err
	case is(err, codeAccount):
		return backends.Errorf(backends.Unsupported, "open", "", "the server demands an account beside user and password, which stager does not support")
	case refusesLogin(err) && user == anonymous && d.user == "":
		return refused("the server %s rejects anonymous logins", d.address)
	case refusesLogin(err):
		return refused("the server rejects user %s or the password", user)
	}
	return err
}

// refusesLogin reports whether the reply is final.
func refusesLogin(err error) bool {
	var r *replyError
	return errors.As(err, &r) && r.code >= codeSyntax
}

// lacksTLS returns the error of a server without encryption.
func (d *dialer) lacksTLS(err error) error {
	if !refusesLogin(err) {
		return err
	}
	return backends.Errorf(backends.Unsupported, "open", "", "the server %s offers no encryption (%w): enable TLS there, or write ftp:// to send everything in the clear", d.address, err)
}

// prepare finds out what the server can do.
func (d *dialer) prepare(c *conn) error {
	r, err := c.command([]int{211}, "FEAT")
	if err != nil && c.dead {
		return err
	}
	for _, line := range r.lines {
		name, list, _ := strings.Cut(strings.ToLower(strings.TrimSpace(line)), " ")
		switch name {
		case "mlst":
			has := func(fact string) bool {
				return slices.ContainsFunc(strings.Split(list, ";"), func(f string) bool { return strings.Trim(f, " *") == fact })
			}
			c.mlsd = has("type") && has("size") && has("modify")
		case "utf8":
			if _, err := c.command([]int{codeOK}, "OPTS UTF8 ON"); err != nil && c.dead {
				return err
			}
		}
	}
	if _, err := c.command([]int{codeOK}, "TYPE I"); err != nil {
		if refusesLogin(err) {
			return backends.Errorf(backends.Unsupported, "open", "", "the server offers no binary transfers (%w)", err)
		}
		return err
	}
	if d.absolute {
		return nil
	}
	r, err = c.command([]int{codePath}, "PWD")
	if err != nil {
		return err
	}
	c.home, err = quotedPath(r)
	return err
}

// quotedPath returns the path in a reply, which is quoted, with its quotes doubled.
func quotedPath(r reply) (string, error) {
	text := r.lines[0]
	from := strings.IndexByte(text, '"')
	to := strings.LastIndexByte(text, '"')
	if from < 0 || to <= from {
		return "", backends.Errorf(backends.Unsupported, "open", "", "the server does not name its directory: %s", objectstore.OneLine(text))
	}
	return strings.ReplaceAll(text[from+1:to], `""`, `"`), nil
}
