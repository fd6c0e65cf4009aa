package backends

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
)

// Scheme describes a protocol: its URLs and how to open them.
type Scheme struct {
	Name     string  // the URL scheme, before "://"
	Summary  string  // one line for help texts
	Example  string  // a URL
	Params   []Param // the URL parameters, after "?"
	ReadOnly bool    // Create and Delete always fail
	Revision bool    // an "@" in the path begins a revision
	// Credentials is one sentence on where credentials come from. It is the hint of errors of kind
	// Permission.
	Credentials string
	// Open opens a Backend for a URL. It is called again after a Retryable error. ctx ends with the
	// call.
	Open func(ctx context.Context, t Target) (Opened, error)
	// Buckets, if not nil, returns the names of the buckets, containers or shares that the credentials
	// give access to, for a URL without one.
	Buckets func(ctx context.Context, t Target) ([]string, error)
	// Server means that URLs begin with a server, and the path with a bucket.
	Server bool
}

// Param describes one parameter of a URL.
type Param struct{ Name, Summary, Default string }

// Target is a parsed URL, together with the Options of the store.
type Target struct {
	Scheme string
	Host   string // bucket, server or name service, including the port
	User   string
	Path   string // without the leading "/", percent-decoded
	Params url.Values
	Options
}

// Opened is the result of Scheme.Open.
type Opened struct {
	Backend Backend
	// Prefix is the key within Backend that corresponds to the URL's path, without a trailing "/";
	// empty for the root.
	Prefix string
}

// Registry maps scheme names to protocols.
type Registry struct{ schemes map[string]Scheme }

// NewRegistry returns a registry. It panics on a duplicate scheme, which is a programming error.
func NewRegistry(schemes ...Scheme) *Registry {
	r := &Registry{make(map[string]Scheme)}
	for _, s := range schemes {
		if _, taken := r.schemes[s.Name]; taken {
			panic("backends: scheme " + s.Name + " is registered twice")
		}
		r.schemes[s.Name] = s
	}
	return r
}

// Schemes returns the protocols, sorted by name.
func (r *Registry) Schemes() []Scheme {
	out := make([]Scheme, 0, len(r.schemes))
	for _, name := range slices.Sorted(maps.Keys(r.schemes)) {
		out = append(out, r.schemes[name])
	}
	return out
}

// Check validates a URL without any request. It returns an error of kind Invalid.
func (r *Registry) Check(rawURL string) error {
	_, _, err := r.parse(rawURL)
	return err
}

// CheckDestination is Check for a URL that will be written to. Its error wraps ErrReadOnly if the
// protocol can only be read.
func (r *Registry) CheckDestination(rawURL string) error {
	scheme, _, err := r.parse(rawURL)
	if err == nil && scheme.ReadOnly {
		err = &Error{Op: "open", Kind: Invalid, Err: fmt.Errorf("%s:// %w; write to %s", scheme.Name, ErrReadOnly, r.writable())}
	}
	return err
}

// ErrReadOnly means that a protocol can only be read.
var ErrReadOnly = errors.New("URLs can only be read")

// writable returns the names of the protocols that can be written to.
func (r *Registry) writable() string {
	var names []string
	for _, s := range r.Schemes() {
		if !s.ReadOnly {
			names = append(names, s.Name)
		}
	}
	return strings.Join(names, ", ")
}

// Open opens the directory that rawURL names. Keys of the Store are relative to it. Open sends only
// the requests that the protocol requires, and retries them like the methods of Store. [Store.Self]
// finds out whether the URL names a single object instead.
func (r *Registry) Open(ctx context.Context, rawURL string, opts Options) (*Store, error) {
	scheme, target, err := r.parse(rawURL)
	if err != nil {
		return nil, err
	}
	s := newStore(scheme.Name, target.name(), opts)
	target.Options = opts
	var opened Opened
	if err := s.retry(ctx, "open", "", func(a *attempt) error {
		opened, err = scheme.Open(a, target)
		return err
	}); err != nil {
		return nil, err
	}
	s.stand(opened.Backend)
	s.self = strings.Trim(opened.Prefix, "/")
	if s.self != "" {
		s.prefix = s.self + "/"
	}
	s.dir = strings.HasSuffix(target.Path, "/") || s.self == ""
	return s, nil
}

// Buckets returns the URLs of the buckets that the credentials give access to, for a URL without one,
// such as gs:// or smb://server/. ok is false for other URLs, and if the protocol cannot list buckets.
func (r *Registry) Buckets(ctx context.Context, rawURL string, opts Options) (urls []string, ok bool, err error) {
	scheme, target, err := r.parse(rawURL)
	if err != nil || scheme.Buckets == nil || target.Path != "" || (target.Host != "") != scheme.Server {
		return nil, false, err
	}
	at := scheme.Name + "://"
	if scheme.Server {
		at = target.name()
	}
	s := newStore(scheme.Name, at, opts)
	target.Options = opts
	var names []string
	err = s.retry(ctx, "list", "", func(a *attempt) error {
		names, err = scheme.Buckets(a, target)
		return err
	})
	slices.Sort(names)
	for _, name := range names {
		urls = append(urls, at+url.PathEscape(name)+"/")
	}
	return urls, true, err
}

// parse splits a URL. Its errors never repeat text that may be a secret.
func (r *Registry) parse(rawURL string) (Scheme, Target, error) {
	bad := func(format string, args ...any) (Scheme, Target, error) {
		return Scheme{}, Target{}, &Error{Op: "open", Kind: Invalid, Err: fmt.Errorf(format, args...)}
	}
	name, rest, ok := strings.Cut(rawURL, "://")
	if !ok {
		return bad("not a URL such as %s; write a local path as file:///path", r.known())
	}
	scheme, ok := r.schemes[name]
	if !ok {
		return bad("unknown scheme%s; supported: %s", quoted(name), strings.Join(slices.Sorted(maps.Keys(r.schemes)), ", "))
	}
	// A "#" is an ordinary character in keys.
	u, err := url.Parse(name + "://" + strings.ReplaceAll(rest, "#", "%23"))
	if err != nil {
		return bad("cannot parse this %s URL: write special characters of the path as %%XX (%%25 for %%, %%3F for ?)", name)
	}
	if _, has := u.User.Password(); has {
		return bad("credentials do not belong in a URL, where logs and process lists show them: remove the password. %s", scheme.Credentials)
	}
	if u.User == nil && strings.Contains(u.Host, ":") && strings.Contains(u.EscapedPath(), "@") && !(scheme.Revision && isHost(u.Hostname())) {
		// An apparent host and port may be a user and a password that contains a "/".
		return bad("the @ after the host of this %s URL may end a password: credentials do not belong in a URL. %s Write an @ in a key as %%40", name, scheme.Credentials)
	}
	params, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return bad("cannot parse the parameters of this %s URL: write them as ?name=value&name=value", name)
	}
	for _, p := range slices.Sorted(maps.Keys(params)) {
		if !slices.ContainsFunc(scheme.Params, func(k Param) bool { return k.Name == p }) {
			return bad("unknown parameter%s of %s URLs; supported: %s%s", quoted(p), name, paramNames(scheme.Params), secretHint(p, scheme))
		}
		if len(params[p]) > 1 {
			return bad("parameter %q appears %d times in this URL; write it once", p, len(params[p]))
		}
	}
	return scheme, Target{
		Scheme: name, Host: u.Host, User: u.User.Username(),
		Path: strings.TrimPrefix(u.Path, "/"), Params: params,
	}, nil
}

// isHost reports whether a name is certainly that of a host: an address, a name with dots, or localhost.
func isHost(name string) bool { return strings.ContainsAny(name, ".:") || name == "localhost" }

func (r *Registry) known() string {
	var examples []string
	for _, s := range r.Schemes() {
		if s.Example != "" {
			examples = append(examples, s.Example)
		}
	}
	return strings.Join(examples, " or ")
}

func paramNames(params []Param) string {
	if len(params) == 0 {
		return "none"
	}
	names := make([]string, len(params))
	for i, p := range params {
		names[i] = p.Name
	}
	return strings.Join(names, ", ")
}

// quoted returns a quoted name with a leading space, or "" for unusual names. Those may be a
// misplaced secret and must not be repeated.
func quoted(name string) string {
	odd := strings.IndexFunc(name, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("+-._", r)
	})
	if name == "" || odd >= 0 {
		return ""
	}
	return fmt.Sprintf(" %q", name)
}

// secretHint returns a hint for parameters that look like credentials.
func secretHint(param string, s Scheme) string {
	low := strings.ToLower(param)
	for _, word := range []string{"secret", "key", "token", "pass", "credential", "auth", "sig", "x-amz-", "x-goog-"} {
		if strings.Contains(low, word) {
			return ". Credentials do not belong in a URL. " + s.Credentials
		}
	}
	return ""
}

// name returns the URL without parameters, safe for logs.
func (t Target) name() string {
	user := ""
	if t.User != "" {
		user = t.User + "@"
	}
	return t.Scheme + "://" + user + t.Host + "/" + strings.TrimSuffix(t.Path, "/")
}
