package kerberos

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	krb "github.com/jcmturner/gokrb5/v8/client"
	"github.com/jcmturner/gokrb5/v8/config"
	"github.com/jcmturner/gokrb5/v8/credentials"
	"github.com/jcmturner/gokrb5/v8/keytab"

	"github.com/stager-dev/stager/backends"
)

// Login finds the identity and keeps the ticket fresh. Its methods are safe for concurrent use.
type Login struct {
	secrets     string
	getenv      func(string) string
	user, realm string

	mu     sync.Mutex // also held during requests
	client *krb.Client
	from   string    // the file it was created from
	at     time.Time // modification time of that file
}

// New returns a Login. It reads no files yet. user and realm select a key of the keytab; if empty,
// the keytab and krb5.conf decide.
func New(opts backends.Options, user, realm string) *Login {
	l := &Login{secrets: opts.Secrets, getenv: opts.Getenv, user: user, realm: realm}
	if l.getenv == nil {
		l.getenv = func(string) string { return "" }
	}
	return l
}

// secret returns the path of a file in the secrets directory, or "".
func (l *Login) secret(name string) string {
	path := filepath.Join(l.secrets, name)
	if _, err := os.Stat(path); l.secrets == "" || err != nil {
		return ""
	}
	return path
}

func (l *Login) file(variable string) string {
	return strings.TrimPrefix(l.getenv(variable), "FILE:")
}

// Named reports whether a keytab or a ticket cache is configured, which means that Kerberos is
// intended.
func (l *Login) Named() bool {
	return first(l.secret("krb5.keytab"), l.file("KRB5_CLIENT_KTNAME"), l.secret("krb5cc"), l.file("KRB5CCNAME")) != ""
}

func first(values ...string) string {
	for _, v := range values {
		if v != "" {
			return v
		}
	}
	return ""
}

// source returns the file with the identity: a keytab, or else a ticket cache.
func (l *Login) source() (path string, isKeytab bool, err error) {
	if path = first(l.secret("krb5.keytab"), l.file("KRB5_CLIENT_KTNAME")); path != "" {
		return path, true, nil
	}
	path = first(l.secret("krb5cc"), l.file("KRB5CCNAME"), fmt.Sprintf("/tmp/krb5cc_%d", os.Getuid()))
	if kind, _, ok := strings.Cut(path, ":"); ok && !strings.HasPrefix(path, "/") {
		return "", false, denied("KRB5CCNAME names a ticket cache of type %s, which stager cannot read: run kinit -c FILE:/tmp/krb5cc and set KRB5CCNAME=FILE:/tmp/krb5cc, or use a keytab", kind)
	}
	return path, false, nil
}

func denied(format string, args ...any) error {
	return backends.Errorf(backends.Permission, "open", "", format, args...)
}

// configuration loads krb5.conf.
func (l *Login) configuration() (*config.Config, error) {
	path := first(l.secret("krb5.conf"), l.getenv("KRB5_CONFIG"), "/etc/krb5.conf")
	c, err := config.Load(path)
	var unsupported config.UnsupportedDirective
	if err != nil && !errors.As(err, &unsupported) {
		return nil, backends.Errorf(backends.Invalid, "open", "", "cannot read the Kerberos configuration %s (KRB5_CONFIG, or krb5.conf among the secrets): %w", path, err)
	}
	return c, nil
}

// Check reports what is missing, without a request.
func (l *Login) Check() error {
	path, _, err := l.source()
	if err != nil {
		return err
	}
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return denied("the server requires Kerberos, but there is no keytab and no ticket: %s does not exist; run kinit, or set KRB5_CLIENT_KTNAME to a keytab", path)
	}
	_, err = l.configuration()
	return err
}

// Client returns a client that has a ticket. It may send requests.
func (l *Login) Client() (*krb.Client, error) {
	path, isKeytab, err := l.source()
	if err != nil {
		return nil, err
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, denied("cannot read the Kerberos credentials: %w", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.client == nil || l.from != path || !l.at.Equal(info.ModTime()) {
		conf, err := l.configuration()
		if err != nil {
			return nil, err
		}
		client, err := l.newClient(path, isKeytab, conf)
		if err != nil {
			return nil, err
		}
		l.forget()
		l.client, l.from, l.at = client, path, info.ModTime()
	}
	// An expired ticket is replaced, not renewed. gokrb5 does so by itself only once the ticket can
	// no longer be renewed either.
	if err := l.client.AffirmLogin(); err != nil {
		err = Explain(err)
		l.forget()
		return nil, err
	}
	return l.client, nil
}

func (l *Login) newClient(path string, isKeytab bool, conf *config.Config) (*krb.Client, error) {
	if !isKeytab {
		cache, err := credentials.LoadCCache(path)
		if err != nil {
			return nil, denied("cannot read the ticket cache %s: %w", path, err)
		}
		client, err := krb.NewFromCCache(cache, conf, krb.DisablePAFXFAST(true))
		if err != nil {
			return nil, denied("the ticket cache %s has no initial ticket: run kinit (%w)", path, err)
		}
		return client, nil
	}
	tab, err := keytab.Load(path)
	if err != nil {
		return nil, denied("cannot read the keytab %s: %w", path, err)
	}
	if len(tab.Entries) == 0 {
		return nil, denied("the keytab %s is empty", path)
	}
	who := tab.Entries[0].Principal
	user, realm := strings.Join(who.Components, "/"), who.Realm
	if l.user != "" {
		user, realm = l.user, first(l.realm, conf.LibDefaults.DefaultRealm, realm)
	}
	// Active Directory does not support FAST negotiation.
	return krb.NewWithKeytab(user, realm, tab, conf, krb.DisablePAFXFAST(true)), nil
}

// inUse is how long an ongoing login may keep using a client.
const inUse = time.Minute

// forget makes the next login start over. mu must be held.
func (l *Login) forget() {
	if l.client != nil && l.client.Credentials.HasKeytab() {
		time.AfterFunc(inUse, l.client.Destroy) // otherwise it renews for ever
	}
	l.client = nil
}

// Forget makes the next Client start over with the current files. Call it when a seemingly valid
// ticket was rejected.
func (l *Login) Forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.forget()
}
