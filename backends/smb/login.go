package smb

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	smb2 "github.com/cloudsoda/go-smb2"
	"github.com/jcmturner/gokrb5/v8/client"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/internal/fileshare"
	"github.com/stager-dev/stager/backends/internal/kerberos"
)

// identity holds the credentials. Each session reads them again, so that it picks up a changed
// Secret.
type identity struct{ user, domain, password string }

func (d *dialer) getenv(name string) string {
	if d.opts.Getenv == nil {
		return ""
	}
	return d.opts.Getenv(name)
}

// identity reads each part from the URL, then from a file, then from the environment.
func (d *dialer) identity() (identity, error) {
	var failed error
	first := func(url, file, env string) string {
		if url != "" {
			return url
		}
		if d.opts.Secrets != "" {
			text, err := os.ReadFile(filepath.Join(d.opts.Secrets, file))
			if err == nil {
				return strings.TrimRight(string(text), "\r\n")
			}
			if !errors.Is(err, fs.ErrNotExist) {
				failed = backends.Errorf(backends.Permission, "open", "", "cannot read the credentials: %w", err)
			}
		}
		return d.getenv(env)
	}
	return identity{
		user:     first(d.user, "username", "SMB_USERNAME"),
		domain:   first(d.domain, "domain", "SMB_DOMAIN"),
		password: first("", "password", "SMB_PASSWORD"),
	}, failed
}

// initiator returns the authentication method of a new session.
func (d *dialer) initiator(ctx context.Context) (smb2.Initiator, error) {
	id, err := d.identity()
	if err != nil {
		return nil, err
	}
	if d.auth == "kerberos" || d.auth == "" && id.password == "" && d.ticket(id).Named() {
		return d.kerberos(ctx, id)
	}
	if id.user == "" || id.password == "" {
		return nil, backends.Errorf(backends.Permission, "open", "", "no user and password were found for the share")
	}
	return &smb2.NTLMInitiator{User: id.user, Domain: id.domain, Password: id.password}, nil
}

// ticket returns the Kerberos login, which is shared by all sessions.
func (d *dialer) ticket(id identity) *kerberos.Login {
	d.krb.Lock()
	defer d.krb.Unlock()
	if d.login == nil {
		d.login = kerberos.New(d.opts, id.user, strings.ToUpper(id.domain))
	}
	return d.login
}

// kerberos requests the service ticket before the SMB login starts, because its errors are then
// more precise.
func (d *dialer) kerberos(ctx context.Context, id identity) (smb2.Initiator, error) {
	login, service := d.ticket(id), "cifs/"+d.host
	if err := login.Check(); err != nil {
		return nil, err
	}
	type answer struct {
		client *client.Client
		err    error
	}
	answers := make(chan answer, 1)
	go func() {
		c, err := login.Client()
		if err == nil {
			if _, _, err = c.GetServiceTicket(service); err != nil {
				login.Forget()
			}
		}
		answers <- answer{c, kerberos.Explain(err)}
	}()
	select {
	case a := <-answers:
		if a.err != nil {
			return nil, a.err
		}
		return &smb2.Krb5Initiator{Client: a.client, TargetSPN: service}, nil
	case <-ctx.Done():
		return nil, fileshare.Ended(ctx, "open", "")
	}
}
