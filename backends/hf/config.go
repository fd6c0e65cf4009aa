package hf

import (
	"context"
	"regexp"
	"strings"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/internal/objectstore"
)

// Scheme returns the scheme of hf:// URLs.
func Scheme() backends.Scheme {
	return backends.Scheme{
		Name:     "hf",
		Summary:  "models, datasets and spaces of the Hugging Face Hub (read-only)",
		Example:  "hf://org/model@main/",
		ReadOnly: true,
		Params: []backends.Param{
			{Name: "endpoint", Summary: "the URL of the Hub or a mirror; else HF_ENDPOINT", Default: defaultEndpoint},
			{Name: "ca-bundle", Summary: "a PEM file of certificate authorities to trust", Default: "the system's"},
		},
		Credentials: "Set HF_TOKEN, mount a file of this name, or log in with \"hf auth login\".",
		Open:        open,
	}
}

const defaultEndpoint = "https://huggingface.co"

// place is what a URL names.
type place struct {
	kind     string // models, datasets or spaces
	repo     string // such as org/model
	revision string
	path     string
}

var (
	nameForm = regexp.MustCompile(`^[A-Za-z0-9._-]+$`)
	// refForm matches the revisions that contain slashes.
	refForm = regexp.MustCompile(`^refs/(?:pr|convert)/[^/]+`)
)

// parse returns the place of a URL.
func parse(t backends.Target) (place, error) {
	invalid := func() (place, error) {
		return place{}, backends.Errorf(backends.Invalid, "open", "",
			"an hf URL looks like hf://org/model@revision/path, hf://datasets/org/name or hf://spaces/org/name")
	}
	p := place{kind: "models"}
	rest := t.Host + "/" + t.Path
	for _, kind := range []string{"datasets", "spaces", "models"} {
		if after, ok := strings.CutPrefix(rest, kind+"/"); ok {
			p.kind, rest = kind, after
		}
	}
	org, rest, _ := strings.Cut(rest, "/")
	name, rest, _ := strings.Cut(rest, "/")
	name, revision, given := strings.Cut(name, "@")
	if revision == "refs" {
		if found := refForm.FindString(revision + "/" + rest); found != "" {
			rest = strings.TrimPrefix(strings.TrimPrefix(revision+"/"+rest, found), "/")
			revision = found
		}
	}
	if !nameForm.MatchString(org) || !nameForm.MatchString(name) || given && revision == "" || t.User != "" || strings.Contains(t.Host, ":") {
		return invalid()
	}
	if !given {
		revision = "main"
	}
	p.repo, p.revision, p.path = org+"/"+name, revision, rest
	return p, nil
}

func open(ctx context.Context, t backends.Target) (backends.Opened, error) {
	p, err := parse(t)
	if err != nil {
		return backends.Opened{}, err
	}
	creds := &credentials{opts: t.Options}
	if err := creds.load(); err != nil {
		return backends.Opened{}, err
	}
	endpoint := t.Params.Get("endpoint")
	if endpoint == "" {
		if endpoint, err = creds.value("HF_ENDPOINT"); err != nil {
			return backends.Opened{}, err
		}
	}
	if endpoint == "" {
		endpoint = defaultEndpoint
	}
	base, err := objectstore.ParseEndpoint(endpoint)
	if err != nil {
		return backends.Opened{}, err
	}
	base.Path = strings.TrimSuffix(base.Path, "/") + "/" // JoinPath needs it
	transport, err := objectstore.NewTransport(t.Params.Get("ca-bundle"))
	if err != nil {
		return backends.Opened{}, err
	}
	r := &repo{place: p, base: base, fetcher: objectstore.NewFetcher(transport), credentials: creds, locations: make(map[string]location)}
	if r.commit, err = r.resolve(ctx); err != nil {
		return backends.Opened{}, err
	}
	return backends.Opened{Backend: r, Prefix: strings.TrimSuffix(p.path, "/")}, nil
}
