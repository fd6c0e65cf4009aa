package ftp

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"path"
	"strings"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/internal/objectstore"
	"github.com/stager-dev/stager/backends/internal/params"
)

// Schemes returns the schemes of ftp:// and ftps:// URLs.
func Schemes() []backends.Scheme {
	conns := backends.Param{Name: "conns", Summary: "connections, each of which reads one file at a time", Default: "4"}
	of := func(name, summary string, more ...backends.Param) backends.Scheme {
		return backends.Scheme{
			Name: name, Summary: summary, Example: name + "://user@server/directory/", ReadOnly: true,
			Params:      append([]backends.Param{conns}, more...),
			Credentials: "Set the user in the URL or in FTP_USERNAME, and FTP_PASSWORD, or mount files named username and password; without a user, the login is anonymous.",
			Open:        open,
		}
	}
	return []backends.Scheme{
		of("ftp", "directories of FTP servers, without encryption (read-only)"),
		of("ftps", "directories of FTP servers, encrypted by TLS (read-only)",
			backends.Param{Name: "tls", Summary: "explicit sends AUTH TLS after connecting, implicit starts with TLS", Default: "implicit on port 990, else explicit"},
			backends.Param{Name: "ca-bundle", Summary: "a PEM file of certificate authorities to trust", Default: "the system's"}),
	}
}

// encryption is how connections are encrypted.
type encryption string

const (
	none     encryption = ""
	explicit encryption = "explicit"
	implicit encryption = "implicit"
)

// implicitPort is the port of servers that start with TLS.
const implicitPort = "990"

// settings are the validated parts of a Target.
type settings struct {
	address    string // host:port
	user       string // "": read from the credentials
	encryption encryption
	conns      int
	absolute   bool   // base is relative to the root, not to the directory of the login
	base       string // key of the directory of the URL
}

func parse(t backends.Target) (settings, error) {
	invalid := func(format string, args ...any) (settings, error) {
		return settings{}, backends.Errorf(backends.Invalid, "open", "", format, args...)
	}
	c := settings{user: t.User, conns: 4}
	if t.Scheme == "ftps" {
		c.encryption = explicit
	}
	host, port, err := net.SplitHostPort(t.Host)
	if err != nil {
		host, port = strings.Trim(t.Host, "[]"), "21"
		if t.Params.Get("tls") == string(implicit) {
			port = implicitPort
		}
	}
	if host == "" {
		return invalid("an %s URL starts with the server, as in %s://user@server/directory/", t.Scheme, t.Scheme)
	}
	if strings.ContainsAny(t.Path+t.User, "\r\n\x00") {
		return invalid("the user and the path of an %s URL cannot contain line breaks or zero bytes", t.Scheme)
	}
	if c.encryption != none && port == implicitPort {
		c.encryption = implicit
	}
	err = params.Read(t.Params,
		params.Int("conns", &c.conns, 1, 64),
		params.Choice("tls", (*string)(&c.encryption), string(explicit), string(implicit)))
	if err != nil {
		return settings{}, err
	}
	c.address = net.JoinHostPort(host, port)
	c.absolute = strings.HasPrefix(t.Path, "/") // an encoded slash
	c.base = path.Clean("/" + t.Path)[1:]
	return c, nil
}

// open connects once, to report wrong credentials at once.
func open(ctx context.Context, t backends.Target) (backends.Opened, error) {
	set, err := parse(t)
	if err != nil {
		return backends.Opened{}, err
	}
	d := &dialer{settings: set, opts: t.Options, log: t.Log}
	if d.log == nil {
		d.log = slog.New(slog.DiscardHandler)
	}
	if set.encryption != none {
		transport, err := objectstore.NewTransport(t.Params.Get("ca-bundle"))
		if err != nil {
			return backends.Opened{}, err
		}
		d.trust = transport.TLSClientConfig
		if d.trust == nil {
			d.trust = &tls.Config{MinVersion: tls.VersionTLS12}
		}
		d.trust.ServerName, _, _ = net.SplitHostPort(set.address) // JoinHostPort made it
	}
	s := &server{pool: newPool(d)}
	c, err := s.pool.get(ctx)
	if err != nil {
		return backends.Opened{}, explain("open", "", err)
	}
	s.pool.put(c)
	return backends.Opened{Backend: s, Prefix: set.base}, nil
}
