package sftp

import (
	"context"
	"encoding/base64"
	"log/slog"
	"net"
	"path"
	"strconv"
	"strings"

	"github.com/stager-dev/stager/backends"
)

// Scheme describes sftp:// URLs.
func Scheme() backends.Scheme {
	return backends.Scheme{
		Name:    "sftp",
		Summary: "directories of SSH servers, by SFTP",
		Example: "sftp://user@server/directory/",
		Params: []backends.Param{
			{Name: "hostkey", Summary: "the fingerprint of the server's key, as in SHA256:…, instead of known_hosts", Default: "none"},
			{Name: "conns", Summary: "connections", Default: "4"},
		},
		Credentials: "Set the user in the URL or in SFTP_USERNAME, and SSH_PRIVATE_KEY to a private key or SFTP_PASSWORD, or mount files named username, ssh-privatekey, passphrase, password and known_hosts.",
		Open:        open,
	}
}

// settings are the validated parts of a Target.
type settings struct {
	address string // host:port
	user    string // "": read from the secrets
	pinned  string // fingerprint of the host key, or ""
	conns   int
	root    string // what keys are relative to: "/", or "" for the home directory
	base    string // key of the directory of the URL
}

func parse(t backends.Target) (settings, error) {
	invalid := func(format string, args ...any) (settings, error) {
		return settings{}, backends.Errorf(backends.Invalid, "open", "", format, args...)
	}
	host, port, err := net.SplitHostPort(t.Host)
	if err != nil {
		host, port = strings.Trim(t.Host, "[]"), "22"
	}
	if host == "" {
		return invalid("an sftp URL starts with the server, as in sftp://user@server/directory/")
	}
	c := settings{address: net.JoinHostPort(host, port), user: t.User, pinned: t.Params.Get("hostkey"), conns: 4, root: "/"}
	if c.pinned != "" {
		sum, ok := strings.CutPrefix(c.pinned, "SHA256:")
		// A "+" in a query is a space.
		sum = strings.TrimRight(strings.ReplaceAll(sum, " ", "+"), "=")
		if raw, err := base64.RawStdEncoding.DecodeString(sum); !ok || err != nil || len(raw) != 32 {
			return invalid("parameter \"hostkey\" must be a fingerprint as ssh-keygen -l prints it, SHA256: and 43 characters")
		}
		c.pinned = "SHA256:" + sum
	}
	if text := t.Params.Get("conns"); text != "" {
		if c.conns, err = strconv.Atoi(text); err != nil || c.conns < 1 || c.conns > 16 {
			return invalid("parameter \"conns\" must be a number from 1 to 16, not %q", text)
		}
	}
	directory := t.Path
	if rest, home := strings.CutPrefix(t.Path+"/", "~/"); home {
		c.root, directory = "", rest
	}
	c.base = path.Clean("/" + directory)[1:]
	return c, nil
}

// open connects once, because the capabilities depend on the server.
func open(ctx context.Context, t backends.Target) (backends.Opened, error) {
	set, err := parse(t)
	if err != nil {
		return backends.Opened{}, err
	}
	log := t.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	b := newBackend(&dialer{settings: set, opts: t.Options, log: log, connectWithin: connectWithin, silence: silence})
	s, err := b.pool.Get(ctx)
	if err != nil {
		b.pool.Close()
		return backends.Opened{}, err
	}
	b.extensions = extensionsOf(s.client)
	if weaker := b.extensions.weaker(); weaker != "" {
		log.Warn("the SSH server lacks extensions of SFTP", "server", set.address, "effect", weaker)
	}
	return backends.Opened{Backend: b, Prefix: set.base}, nil
}
