package http

import (
	"context"
	"net/url"
	"path"
	"strings"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/internal/objectstore"
)

// Schemes returns the schemes of http:// and https:// URLs.
func Schemes() []backends.Scheme {
	of := func(name, summary, example string) backends.Scheme {
		return backends.Scheme{
			Name: name, Summary: summary, Example: example, ReadOnly: true,
			Params: []backends.Param{
				{Name: "manifest", Summary: "a list of the objects: SHA256SUMS, or lines of JSON with url, size, sha256 and key; relative to the URL, or absolute, or a local file:///path", Default: "the server's index pages"},
				{Name: "ca-bundle", Summary: "a PEM file of certificate authorities to trust", Default: "the system's"},
			},
			Credentials: "Mount files named username and password, token, or netrc, or set NETRC to a netrc file. Write signed URLs into a file, and pass it with ?manifest=file:///path.",
			Open:        open,
		}
	}
	return []backends.Scheme{
		of("http", "web servers, without encryption (read-only)", "http://server/directory/"),
		of("https", "web servers: files, index pages, manifests, and sequences such as train-{000000..000146}.tar (read-only)", "https://server/directory/"),
	}
}

func open(ctx context.Context, t backends.Target) (backends.Opened, error) {
	invalid := func(format string, args ...any) (backends.Opened, error) {
		return backends.Opened{}, backends.Errorf(backends.Invalid, "open", "", format, args...)
	}
	root := &url.URL{Scheme: t.Scheme, Host: t.Host, Path: "/"}
	if root.Hostname() == "" || !objectstore.Passable(strings.TrimSuffix(t.Path, "/")) && t.Path != "" {
		return invalid("an %s URL looks like %s://server/directory/, with no empty part and no \".\" or \"..\" in its path", t.Scheme, t.Scheme)
	}
	transport, err := objectstore.NewTransport(t.Params.Get("ca-bundle"))
	if err != nil {
		return backends.Opened{}, err
	}
	s := &site{root: root, fetcher: objectstore.NewFetcher(transport), credentials: newCredentials(t.Options, root, t.User)}
	if err := s.credentials.load(); err != nil {
		return backends.Opened{}, err
	}
	manifest := t.Params.Get("manifest")
	switch sequence := strings.ContainsAny(t.Path, "{}"); {
	case sequence && manifest != "":
		return invalid("a URL with braces is a list already: remove ?manifest=")
	case sequence:
		s.listed, err = expand(root, t.Path)
		prefix, _, _ := strings.Cut(t.Path, "{")
		return backends.Opened{Backend: s, Prefix: strings.TrimPrefix(path.Dir("/"+prefix+"x"), "/")}, err
	case manifest != "":
		dir := strings.Trim(t.Path, "/")
		if dir != "" {
			dir += "/"
		}
		s.listed, err = s.readManifest(ctx, manifest, dir)
	}
	return backends.Opened{Backend: s, Prefix: t.Path}, err
}
