package hdfs

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

// kerberos finds out who we are, and keeps the ticket fresh: a keytab logs in again by
// itself, and a ticket cache that kinit or a sidecar renewed is read again.
type kerberos struct {
	options backends.Options
	getenv  func(string) string

	mu     sync.Mutex
	client *krb.Client // nil before the first login
	from   string      // the file it was made of
	at     time.Time   // when that file was changed last
}

// source is the file that says who we are: a keytab, or else a ticket cache.
func (k *kerberos) source() (path string, isKeytab bool, err error) {
	secret := func(name string) string {
		path := filepath.Join(k.options.Secrets, name)
		if _, err := os.Stat(path); k.options.Secrets == "" || err != nil {
			return ""
		}
		return path
	}
	file := func(name string) string { return strings.TrimPrefix(k.getenv(name), "FILE:") }
	if path = first(secret("krb5.keytab"), file("KRB5_CLIENT_KTNAME")); path != "" {
		return path, true, nil
	}
	path = first(secret("krb5cc"), file("KRB5CCNAME"), fmt.Sprintf("/tmp/krb5cc_%d", os.Getuid()))
	if kind, _, ok := strings.Cut(path, ":"); ok && !strings.HasPrefix(path, "/") {
		return "", false, permission("KRB5CCNAME names a ticket cache of type %s; stager reads those of type FILE", kind)
	}
	return path, false, nil
}

func permission(format string, args ...any) error {
	return backends.Errorf(backends.Permission, "open", "", format, args...)
}

// configuration reads krb5.conf.
func (k *kerberos) configuration() (*config.Config, error) {
	path := first(k.getenv("KRB5_CONFIG"), "/etc/krb5.conf")
	if k.options.Secrets != "" {
		if own := filepath.Join(k.options.Secrets, "krb5.conf"); isThere(own) {
			path = own
		}
	}
	c, err := config.Load(path)
	var unsupported config.UnsupportedDirective
	if err != nil && !errors.As(err, &unsupported) {
		return nil, backends.Errorf(backends.Invalid, "open", "", "Kerberos needs a configuration that can be read (KRB5_CONFIG, or krb5.conf among the secrets): %w", err)
	}
	return c, nil
}

func isThere(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// check tells of what is missing, without asking a server.
func (k *kerberos) check() error {
	path, _, err := k.source()
	if err != nil {
		return err
	}
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return permission("the NameNode wants Kerberos, and there is neither a keytab nor a ticket: %s is not there", path)
	}
	_, err = k.configuration()
	return err
}

// login is a client with a ticket, or with what it takes to get one.
func (k *kerberos) login() (*krb.Client, error) {
	path, isKeytab, err := k.source()
	if err != nil {
		return nil, err
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, permission("what Kerberos stands on cannot be read: %w", err)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.client != nil && k.from == path && k.at.Equal(info.ModTime()) {
		return k.client, nil
	}
	conf, err := k.configuration()
	if err != nil {
		return nil, err
	}
	client, err := newClient(path, isKeytab, conf)
	if err != nil {
		return nil, err
	}
	if k.client != nil {
		k.client.Destroy()
	}
	k.client, k.from, k.at = client, path, info.ModTime()
	return client, nil
}

func newClient(path string, isKeytab bool, conf *config.Config) (*krb.Client, error) {
	if !isKeytab {
		cache, err := credentials.LoadCCache(path)
		if err != nil {
			return nil, permission("the ticket cache %s cannot be read: %w", path, err)
		}
		client, err := krb.NewFromCCache(cache, conf, krb.DisablePAFXFAST(true))
		if err != nil {
			return nil, permission("the ticket cache %s holds no ticket to begin with: run kinit (%w)", path, err)
		}
		return client, nil
	}
	tab, err := keytab.Load(path)
	if err != nil {
		return nil, permission("the keytab %s cannot be read: %w", path, err)
	}
	if len(tab.Entries) == 0 {
		return nil, permission("the keytab %s is empty", path)
	}
	who := tab.Entries[0].Principal
	client := krb.NewWithKeytab(strings.Join(who.Components, "/"), who.Realm, tab, conf, krb.DisablePAFXFAST(true))
	if err := client.Login(); err != nil {
		return nil, loginFailed(err)
	}
	return client, nil
}

// loginFailed tells a server that refuses from one that cannot be reached.
func loginFailed(err error) error {
	text := err.Error()
	switch {
	case strings.Contains(text, "SKEW"):
		return permission("the clock of this machine and that of the Kerberos server differ too much: %w", err)
	case strings.Contains(text, "Networking_Error"), strings.Contains(text, "no KDC"):
		return backends.Errorf(backends.Unavailable, "open", "", "the Kerberos server cannot be reached: %w", err)
	}
	return permission("the Kerberos server refuses the keytab: %w", err)
}
