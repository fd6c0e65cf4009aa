package gs

import (
	"context"
	"errors"
	"log/slog"
	"net/url"
	"regexp"
	"strings"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/internal/objectstore"
	"github.com/stager-dev/stager/backends/internal/params"
)

// Scheme returns the scheme of gs:// URLs.
func Scheme() backends.Scheme {
	return backends.Scheme{
		Name:    "gs",
		Summary: "Google Cloud Storage",
		Example: "gs://bucket/directory/",
		Params: []backends.Param{
			{Name: "endpoint", Summary: "the URL of the service; else STORAGE_EMULATOR_HOST, CLOUDSDK_API_ENDPOINT_OVERRIDES_STORAGE", Default: defaultEndpoint},
			{Name: "anonymous", Summary: "true sends requests without credentials, for public buckets", Default: "false"},
			{Name: "user-project", Summary: "the project that pays for the requests, for buckets with requester pays", Default: "none"},
			{Name: "ca-bundle", Summary: "a PEM file of certificate authorities to trust; else CLOUDSDK_CORE_CUSTOM_CA_CERTS_FILE", Default: "the system's"},
		},
		Credentials: "Set GOOGLE_APPLICATION_CREDENTIALS to a file with a service account or a workload identity, mount a file of this name, give the machine or the pod a service account, or add ?anonymous=true for a public bucket.",
		Open:        open,
		Buckets:     listBuckets,
	}
}

const defaultEndpoint = "https://storage.googleapis.com"

// settings are the parsed parameters of a Target.
type settings struct {
	endpoint    *url.URL // its path has no trailing "/"
	anonymous   bool
	userProject string
	caBundle    string
}

// bucketForm matches the names of buckets, of 3 to 222 bytes. Google's rules are stricter, and the server knows them.
var bucketForm = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]+[a-z0-9]$`)

var projectForm = regexp.MustCompile(`^[A-Za-z0-9.:_-]+$`)

func parse(t backends.Target) (settings, error) {
	invalid := func(format string, args ...any) (settings, error) {
		return settings{}, backends.Errorf(backends.Invalid, "open", "", format, args...)
	}
	c := settings{caBundle: t.Params.Get("ca-bundle"), userProject: t.Params.Get("user-project")}
	if c.caBundle == "" {
		c.caBundle = getenv(t.Options, "CLOUDSDK_CORE_CUSTOM_CA_CERTS_FILE") // a file name, which has no meaning in a Secret
	}
	if c.userProject != "" && !projectForm.MatchString(c.userProject) {
		return invalid("parameter \"user-project\" must be the ID of a project")
	}
	if err := params.Read(t.Params, params.Bool("anonymous", &c.anonymous)); err != nil {
		return settings{}, err
	}
	endpoint, emulator, err := endpointOf(t)
	if err != nil {
		return invalid("cannot read the files with the endpoint: %w", err)
	}
	c.anonymous = c.anonymous || emulator
	if c.endpoint, err = objectstore.ParseEndpoint(endpoint); err != nil {
		return settings{}, err
	}
	// gcloud's override is the base of the JSON API.
	c.endpoint.Path = strings.TrimSuffix(strings.TrimSuffix(c.endpoint.Path, "/"), "/storage/v1")
	c.endpoint.RawPath = ""
	return c, nil
}

// endpointOf returns the endpoint, and whether it is that of an emulator.
func endpointOf(t backends.Target) (endpoint string, emulator bool, err error) {
	if endpoint = t.Params.Get("endpoint"); endpoint != "" {
		return withScheme(endpoint, "https"), false, nil
	}
	host, err1 := value(t.Options, "STORAGE_EMULATOR_HOST")
	other, err2 := value(t.Options, "CLOUDSDK_API_ENDPOINT_OVERRIDES_STORAGE")
	switch {
	case host != "":
		return withScheme(host, "http"), true, errors.Join(err1, err2)
	case other != "":
		return withScheme(other, "https"), false, errors.Join(err1, err2)
	}
	return defaultEndpoint, false, errors.Join(err1, err2)
}

func withScheme(endpoint, scheme string) string {
	if strings.Contains(endpoint, "://") {
		return endpoint
	}
	return scheme + "://" + endpoint
}

// value returns the contents of a file of a Secret, or the variable of that name.
func value(opts backends.Options, name string) (string, error) {
	text, err := objectstore.SecretFile(opts, name)
	if text == "" {
		text = getenv(opts, name)
	}
	return text, err
}

func getenv(opts backends.Options, name string) string {
	if opts.Getenv == nil {
		return ""
	}
	return strings.TrimSpace(opts.Getenv(name))
}

func open(_ context.Context, t backends.Target) (backends.Opened, error) {
	if t.User != "" || len(t.Host) > 222 || !bucketForm.MatchString(t.Host) {
		return backends.Opened{}, backends.Errorf(backends.Invalid, "open", "",
			"a gs URL starts with the bucket, of 3 or more letters a-z, digits, \"-\", \"_\" and \".\", as in gs://bucket/directory/; set the server with ?endpoint=")
	}
	b, err := newBucket(t)
	if err != nil {
		return backends.Opened{}, err
	}
	return backends.Opened{Backend: b, Prefix: t.Path}, nil
}

// newBucket returns the bucket of a target without sending a request.
func newBucket(t backends.Target) (*bucket, error) {
	set, err := parse(t)
	if err != nil {
		return nil, err
	}
	transport, err := objectstore.NewTransport(set.caBundle)
	if err != nil {
		return nil, err
	}
	httpClient, err := objectstore.NewClient(set.endpoint, transport)
	if err != nil {
		return nil, err
	}
	b := &bucket{name: t.Host, log: t.Log, credentials: newCredentials(t.Options, set.anonymous, transport)}
	b.client = client{http: httpClient, base: *set.endpoint, credentials: b.credentials, userProject: set.userProject}
	if b.log == nil {
		b.log = slog.New(slog.DiscardHandler)
	}
	return b, nil
}
