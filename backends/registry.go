package backends

import (
	"context"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
)

// Scheme describes a protocol: what its URLs look like and how they are opened.
type Scheme struct {
	Name    string  // what stands before "://"
	Summary string  // one line for help texts
	Example string  // a URL
	Params  []Param // what may stand behind "?"
	// Credentials says in one sentence where they come from; it is the hint of
	// errors of kind Permission.
	Credentials string
	// Open makes a Backend of a URL. It is called again when its error is Retryable; ctx
	// ends with the call.
	Open func(ctx context.Context, t Target) (Opened, error)
}

// Param describes one parameter of a URL.
type Param struct{ Name, Summary, Default string }

// Target is a URL taken apart, with the surroundings a protocol may ask.
type Target struct {
	Scheme string
	Host   string // bucket, server or name service; with its port
	User   string
	Path   string // without the leading "/", percent-decoded
	Params url.Values
	Options
}

// Opened is what a protocol makes of a Target.
type Opened struct {
	Backend Backend
	// Prefix is the key that the URL's path means within Backend, without a
	// trailing "/"; empty for the root.
	Prefix string
}

// Registry knows the protocols by scheme.
type Registry struct{ schemes map[string]Scheme }

// NewRegistry makes a registry; two schemes of one name are a programming error
// and panic.
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

// Schemes lists the protocols by name.
func (r *Registry) Schemes() []Scheme {
	out := make([]Scheme, 0, len(r.schemes))
	for _, name := range slices.Sorted(maps.Keys(r.schemes)) {
		out = append(out, r.schemes[name])
	}
	return out
}

// Check tells what is wrong with a URL without contacting anything: kind Invalid.
func (r *Registry) Check(rawURL string) error {
	_, _, err := r.parse(rawURL)
	return err
}

// Open opens the directory that rawURL names: keys of the Store are relative to it.
// It contacts the store only as far as the protocol must, and is as patient with it as
// the Store's methods are. [Store.Self] tells
// whether the URL names one object instead.
func (r *Registry) Open(ctx context.Context, rawURL string, opts Options) (*Store, error) {
	scheme, target, err := r.parse(rawURL)
	if err != nil {
		return nil, err
	}
	s := newStore(target.name(), opts)
	s.scheme = scheme
	target.Options = opts
	var opened Opened
	if err := s.retry(ctx, "open", "", func(ctx context.Context, _ *stallDetector) error {
		opened, err = scheme.Open(ctx, target)
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

// parse takes a URL apart. Its errors never repeat what may be a secret.
func (r *Registry) parse(rawURL string) (Scheme, Target, error) {
	bad := func(format string, args ...any) (Scheme, Target, error) {
		return Scheme{}, Target{}, &Error{Op: "open", Kind: Invalid, Err: fmt.Errorf(format, args...)}
	}
	name, rest, ok := strings.Cut(rawURL, "://")
	if !ok {
		return bad("a URL like %s is needed; a local path is written file:///path", r.known())
	}
	scheme, ok := r.schemes[name]
	if !ok {
		return bad("unknown scheme%s; known are %s", shown(name), strings.Join(slices.Sorted(maps.Keys(r.schemes)), ", "))
	}
	// A "#" is a letter like any other in a key.
	u, err := url.Parse(name + "://" + strings.ReplaceAll(rest, "#", "%23"))
	if err != nil {
		return bad("this %s URL cannot be read: write special characters of the path as %%XX (%%25 for %%, %%3F for ?)", name)
	}
	if _, has := u.User.Password(); has {
		return bad("credentials do not belong in a URL, where logs and process lists show them: remove the password. %s", scheme.Credentials)
	}
	if u.User == nil && strings.Contains(u.Host, ":") && strings.Contains(u.EscapedPath(), "@") {
		// What looks like host and port may be user and password, if that has a "/".
		return bad("an @ behind the host of this %s URL may end a password: credentials do not belong in a URL. %s An @ in a key is written %%40 here", name, scheme.Credentials)
	}
	params, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return bad("the parameters of this %s URL cannot be read: they are written ?name=value&name=value", name)
	}
	for _, p := range slices.Sorted(maps.Keys(params)) {
		if !slices.ContainsFunc(scheme.Params, func(k Param) bool { return k.Name == p }) {
			return bad("unknown parameter%s of %s URLs; known are %s%s", shown(p), name, paramNames(scheme.Params), secretHint(p, scheme))
		}
		if len(params[p]) > 1 {
			return bad("parameter %q stands %d times in this URL; say it once", p, len(params[p]))
		}
	}
	return scheme, Target{
		Scheme: name, Host: u.Host, User: u.User.Username(),
		Path: strings.TrimPrefix(u.Path, "/"), Params: params,
	}, nil
}

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

// shown is a name with a space before it if it looks like one; what does not may be
// a secret that got into the wrong place, and is not repeated.
func shown(name string) string {
	odd := strings.IndexFunc(name, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("+-._", r)
	})
	if name == "" || odd >= 0 {
		return ""
	}
	return fmt.Sprintf(" %q", name)
}

// secretHint is for people who try to pass a credential in the URL.
func secretHint(param string, s Scheme) string {
	low := strings.ToLower(param)
	for _, word := range []string{"secret", "key", "token", "pass", "credential", "auth"} {
		if strings.Contains(low, word) {
			return ". Credentials do not belong in a URL. " + s.Credentials
		}
	}
	return ""
}

// name is the URL without parameters: fit for logs.
func (t Target) name() string {
	user := ""
	if t.User != "" {
		user = t.User + "@"
	}
	return t.Scheme + "://" + user + t.Host + "/" + strings.TrimSuffix(t.Path, "/")
}
