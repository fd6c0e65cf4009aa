package git

import (
	"context"
	"log/slog"
	"net/http"
	"net/url"
	"regexp"
	"strings"

	"github.com/dustin/go-humanize"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/internal/objectstore"
	"github.com/stager-dev/stager/backends/internal/params"
)

// Schemes returns the schemes of git+https:// and git+http:// URLs.
func Schemes() []backends.Scheme {
	of := func(name, summary string) backends.Scheme {
		return backends.Scheme{
			Name: name, Summary: summary, Example: name + "://server/org/repo@main//directory/", ReadOnly: true, Revision: true,
			Params: []backends.Param{
				{Name: "max-size", Summary: "the largest commit that is fetched, as the size of its files; they are kept in TMPDIR, uncompressed", Default: "1GiB"},
				{Name: "ca-bundle", Summary: "a PEM file of certificate authorities to trust", Default: "the system's"},
			},
			Credentials: "Set GIT_PASSWORD, which may be a token, and GIT_USERNAME, or mount files named username and password.",
			Open:        open,
		}
	}
	return []backends.Scheme{
		of("git+http", "commits of Git servers, without encryption (read-only)"),
		of("git+https", "commits of Git servers: GitHub, GitLab, Gitea and others (read-only)"),
	}
}

// settings are the validated parts of a Target.
type settings struct {
	at       url.URL // of the repository
	user     string  // "": read from the credentials
	revision string  // "": the default branch
	base     string  // the path in the repository
	maxSize  int64
}

// revisionForm excludes what no reference contains.
var revisionForm = regexp.MustCompile(`^[^\x00-\x20\x7f~^:?*\[\\]+$`)

func parse(t backends.Target) (settings, error) {
	invalid := func(format string, args ...any) (settings, error) {
		return settings{}, backends.Errorf(backends.Invalid, "open", "", format, args...)
	}
	repo, base, _ := strings.Cut(t.Path, "//")
	repo, revision, given := strings.Cut(strings.TrimSuffix(repo, "/"), "@")
	base = strings.Trim(base, "/")
	c := settings{
		at:   url.URL{Scheme: strings.TrimPrefix(t.Scheme, "git+"), Host: t.Host, Path: "/" + repo},
		user: t.User, revision: revision, base: base, maxSize: 1 << 30,
	}
	if c.at.Hostname() == "" || !objectstore.Passable(repo) || base != "" && !objectstore.Passable(base) {
		return invalid("a %[1]s URL looks like %[1]s://server/org/repo@revision//directory/, with no empty part and no \".\" or \"..\" in its paths", t.Scheme)
	}
	if given && (!revisionForm.MatchString(revision) || strings.HasPrefix(revision, "-") || strings.Contains(revision, "..")) {
		return invalid("the text after the @ is not the name of a branch, a tag or a commit")
	}
	err := params.Read(t.Params, params.Func("max-size", "a size from 1MiB, such as 4GiB", func(text string) bool {
		n, err := humanize.ParseBytes(text)
		c.maxSize = int64(min(n, 1<<60))
		return err == nil && n >= 1<<20
	}))
	return c, err
}

// open fetches the commit.
func open(ctx context.Context, t backends.Target) (backends.Opened, error) {
	set, err := parse(t)
	if err != nil {
		return backends.Opened{}, err
	}
	header, err := authorization(t.Options, set.user)
	if err != nil {
		return backends.Opened{}, err
	}
	transport, err := objectstore.NewTransport(t.Params.Get("ca-bundle"))
	if err != nil {
		return backends.Opened{}, err
	}
	defer transport.CloseIdleConnections()
	log := t.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	r := &remote{
		base: &set.at, home: &set.at, authorization: header,
		client: &http.Client{Transport: transport, CheckRedirect: objectstore.NoRedirect},
	}
	c, err := checkout(ctx, r, set, log)
	if err != nil {
		return backends.Opened{}, r.explain(err)
	}
	return backends.Opened{Backend: c, Prefix: set.base}, nil
}
