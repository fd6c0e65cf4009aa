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
	krbconfig "github.com/jcmturner/gokrb5/v8/config"
	"github.com/jcmturner/gokrb5/v8/credentials"
	"github.com/jcmturner/gokrb5/v8/keytab"

	"github.com/stager-dev/stager/backends"
)

// identity is who logs in. It is read again for each session, so that a Secret that
// changes is followed.
type identity struct{ user, domain, password string }

func (d *dialer) getenv(name string) string {
	if d.opts.Getenv == nil {
		return ""
	}
	return d.opts.Getenv(name)
}

// identity asks the URL, then files, then the environment, for each part by itself.
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
				failed = backends.Errorf(backends.Permission, "open", "", "the credentials cannot be read: %w", err)
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

// initiator is how a session proves who it is.
func (d *dialer) initiator(ctx context.Context) (smb2.Initiator, error) {
	id, err := d.identity()
	if err != nil {
		return nil, err
	}
	named := d.getenv("KRB5_CLIENT_KTNAME") != "" || d.getenv("KRB5CCNAME") != ""
	if d.auth == "kerberos" || d.auth == "" && id.password == "" && named {
		return d.kerberos(ctx, id)
	}
	if id.user == "" || id.password == "" {
		return nil, backends.Errorf(backends.Permission, "open", "", "no user and password were found for the share")
	}
	return &smb2.NTLMInitiator{User: id.user, Domain: id.domain, Password: id.password}, nil
}

// kerberos asks for the ticket here, and not in the course of the login, for its
// errors say more.
func (d *dialer) kerberos(ctx context.Context, id identity) (smb2.Initiator, error) {
	d.krb.Lock()
	defer d.krb.Unlock()
	if d.krbClient == nil {
		var err error
		if d.krbClient, err = d.krbLogin(id); err != nil {
			return nil, err
		}
	}
	spn := "cifs/" + d.host
	got := make(chan error, 1)
	asking := d.krbClient
	go func() {
		_, _, err := asking.GetServiceTicket(spn)
		got <- err
	}()
	select {
	case err := <-got:
		if err != nil {
			d.krbClient = nil // the next session reads keytab and cache anew
			return nil, krbError(err)
		}
	case <-ctx.Done():
		return nil, ended(ctx, "open", "")
	}
	return &smb2.Krb5Initiator{Client: asking, TargetSPN: spn}, nil
}

func (d *dialer) krbLogin(id identity) (*client.Client, error) {
	invalid := func(what, path string, err error) error {
		return backends.Errorf(backends.Permission, "open", "", "the Kerberos %s %s cannot be used: %w", what, path, err)
	}
	path := "/etc/krb5.conf"
	if p := d.getenv("KRB5_CONFIG"); p != "" {
		path = p
	}
	conf, err := krbconfig.Load(path)
	if err != nil {
		return nil, invalid("configuration", path, err)
	}
	if path := strings.TrimPrefix(d.getenv("KRB5_CLIENT_KTNAME"), "FILE:"); path != "" {
		keys, err := keytab.Load(path)
		if err != nil {
			return nil, invalid("keytab", path, err)
		}
		if id.user == "" {
			return nil, backends.Errorf(backends.Permission, "open", "", "a keytab may hold many keys: say in the URL whose, as in smb://user@server/share")
		}
		realm := conf.LibDefaults.DefaultRealm
		if id.domain != "" {
			realm = strings.ToUpper(id.domain)
		}
		// Active Directory knows no FAST negotiation.
		return client.NewWithKeytab(id.user, realm, keys, conf, client.DisablePAFXFAST(true)), nil
	}
	path = strings.TrimPrefix(d.getenv("KRB5CCNAME"), "FILE:")
	if path == "" {
		return nil, backends.Errorf(backends.Permission, "open", "", "Kerberos needs a keytab, named in KRB5_CLIENT_KTNAME, or a ticket cache, named in KRB5CCNAME")
	}
	cache, err := credentials.LoadCCache(path)
	if err != nil {
		return nil, invalid("ticket cache", path, err)
	}
	c, err := client.NewFromCCache(cache, conf, client.DisablePAFXFAST(true))
	if err != nil {
		return nil, invalid("ticket cache", path, err)
	}
	return c, nil
}

// krbError tells from the names in the library's text what happened; it has no other
// way to say it.
func krbError(err error) error {
	for _, k := range []struct {
		name string
		meaning
	}{
		{"KRB_AP_ERR_SKEW", meaning{backends.Invalid, "the clocks of this machine and the Kerberos server differ too much: set them"}},
		{"KRB_AP_ERR_TKT_EXPIRED", meaning{backends.Permission, "the Kerberos ticket has expired: renew it with kinit, or name a keytab"}},
		{"TGT", meaning{backends.Permission, "there is no valid Kerberos ticket: get one with kinit, or name a keytab"}},
		{"KDC_ERR_C_PRINCIPAL_UNKNOWN", meaning{backends.Permission, "the Kerberos server does not know this user"}},
		{"KDC_ERR_S_PRINCIPAL_UNKNOWN", meaning{backends.Permission, "the Kerberos server knows no service cifs on this host: use the server's full name in the URL"}},
		{"KDC_ERR_PREAUTH_FAILED", meaning{backends.Permission, "the keytab's key is not the user's current one"}},
		{"communicating with KDC", meaning{backends.Unavailable, "no Kerberos server of the realm answers"}},
		{"Networking_Error", meaning{backends.Unavailable, "no Kerberos server of the realm answers"}},
	} {
		if strings.Contains(err.Error(), k.name) {
			return backends.Errorf(k.kind, "open", "", "%s", k.words)
		}
	}
	return backends.Errorf(backends.Permission, "open", "", "no Kerberos ticket for the share could be had: %w", err)
}
