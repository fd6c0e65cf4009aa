package smb

import (
	"context"
	"log/slog"
	"net"
	"path"
	"slices"
	"strings"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/internal/params"
)

// Scheme describes smb:// URLs.
func Scheme() backends.Scheme {
	return backends.Scheme{
		Name:    "smb",
		Summary: "SMB 2 and 3 shares: Windows, Samba, Azure Files, NAS",
		Example: "smb://user@server/share/directory/",
		Params: []backends.Param{
			{Name: "auth", Summary: "ntlm or kerberos", Default: "kerberos if a keytab or a ticket cache is set and no password, else ntlm"},
			{Name: "signing", Summary: "off disables signing if the server allows it: faster, but not protected against tampering", Default: "on"},
			{Name: "mapchars", Summary: "off rejects names with " + reserved + ", instead of writing them as Linux and macOS do", Default: "on"},
		},
		Credentials: "Set the user in the URL or in SMB_USERNAME and the password in SMB_PASSWORD, mount files named username and password, or set KRB5_CLIENT_KTNAME to a keytab or KRB5CCNAME to a ticket cache.",
		Open:        open,
		Buckets:     listShares,
		Server:      true,
	}
}

// settings are the validated parts of a Target.
type settings struct {
	address string // host:port
	host    string // name of the server in share paths and Kerberos
	share   string
	user    string // empty: read from the secrets
	domain  string // likewise
	auth    string // "": chosen by the credentials that exist
	signing bool
	mapped  bool
}

func parse(t backends.Target) (settings, error) {
	invalid := func(format string, args ...any) (settings, error) {
		return settings{}, backends.Errorf(backends.Invalid, "open", "", format, args...)
	}
	host, port, err := net.SplitHostPort(t.Host)
	if err != nil {
		host, port = strings.Trim(t.Host, "[]"), "445"
	}
	share, _, _ := strings.Cut(t.Path, "/")
	if host == "" {
		return invalid(noShare)
	}
	if strings.Contains(share, `\`) {
		return invalid(`an smb URL has "/" between server, share and directory`)
	}
	set := settings{address: net.JoinHostPort(host, port), host: host, share: share, user: t.User, signing: true, mapped: true}
	if domain, user, ok := strings.Cut(t.User, ";"); ok {
		set.domain, set.user = domain, user
	}
	return set, params.Read(t.Params,
		params.Switch("signing", &set.signing),
		params.Switch("mapchars", &set.mapped),
		params.Choice("auth", &set.auth, "ntlm", "kerberos"))
}

// open does not connect: a server that is down when a job starts may come back.
func open(_ context.Context, t backends.Target) (backends.Opened, error) {
	d, err := newDialer(t)
	if err == nil && d.share == "" {
		err = backends.Errorf(backends.Invalid, "open", "", noShare)
	}
	if err != nil {
		return backends.Opened{}, err
	}
	_, prefix, _ := strings.Cut(t.Path, "/")
	b := newBackend(d)
	return backends.Opened{Backend: b, Prefix: path.Clean("/" + prefix)[1:]}, nil
}

const noShare = "an smb URL must contain a server and a share, as in smb://user@server/share/directory/; \"stager ls smb://user@server/\" lists the shares"

func newDialer(t backends.Target) (*dialer, error) {
	set, err := parse(t)
	if err != nil {
		return nil, err
	}
	log := t.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &dialer{settings: set, opts: t.Options, log: log, connectWithin: connectWithin, silence: silence}, nil
}

// listShares returns the shares of the server, without those that end in "$", which are for
// administration.
func listShares(ctx context.Context, t backends.Target) ([]string, error) {
	d, err := newDialer(t)
	if err != nil {
		return nil, err
	}
	s, err := d.dial(ctx, nil)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	names, err := s.shares(ctx)
	if err != nil {
		return nil, d.explain(err)
	}
	return slices.DeleteFunc(names, func(name string) bool { return strings.HasSuffix(name, "$") }), nil
}
