package az

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/service"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/internal/objectstore"
)

const connectionString = "AZURE_STORAGE_CONNECTION_STRING"

// access makes clients of an account with the credentials in the package comment.
type access struct {
	opts      backends.Options
	place     place
	transport *http.Transport
	identity  azcore.TokenCredential // nil until it is needed

	rotation objectstore.Rotation[login]

	mu    sync.Mutex // guards the fields below
	login login
	have  clients
	renew time.Time // when to read the files again; zero: never
}

// clients are those of one login.
type clients struct {
	service   *service.Client
	container *container.Client
}

// login is what a source of credentials has. Without a key and a SAS it is a token.
type login struct {
	key, sas string
	token    azcore.TokenCredential
}

func newAccess(opts backends.Options, p place) (*access, error) {
	transport, err := objectstore.NewTransport(p.caBundle)
	if err != nil {
		return nil, err
	}
	return &access{opts: opts, place: p, transport: transport}, nil
}

func (a *access) close() { a.transport.CloseIdleConnections() }

// container returns a client of the container.
func (a *access) container(ctx context.Context) (*container.Client, error) {
	c, err := a.clients(ctx)
	return c.container, err
}

// clients returns clients with valid credentials.
func (a *access) clients(ctx context.Context) (clients, error) {
	if err := ctx.Err(); err != nil {
		return clients{}, context.Cause(ctx)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.have.service != nil && (a.renew.IsZero() || time.Now().Before(a.renew)) {
		return a.have, nil
	}
	l, files, err := a.find()
	if err != nil {
		return clients{}, err
	}
	if a.have.service == nil || l != a.login {
		if a.have, err = a.connect(l); err != nil {
			return clients{}, err
		}
		a.login = l
	}
	a.renew = time.Time{}
	if files {
		a.renew = time.Now().Add(rereadAfter)
		a.rotation.Use(l)
	}
	return a.have, nil
}

// rejected handles a request that the store did not permit. If the files have another key, the next
// request uses it. It reports whether the request may succeed with another key than it was sent with.
func (a *access) rejected() bool {
	found, err := a.files()
	a.mu.Lock()
	defer a.mu.Unlock()
	if err != nil || found == (login{}) || a.renew.IsZero() { // those in use are not from files
		return false
	}
	others, again := a.rotation.Rejected(found)
	if others {
		a.renew = time.Now()
	}
	return again
}

// files reads the login in Options.Secrets, if there is any.
func (a *access) files() (login, error) {
	if a.opts.Secrets == "" {
		return login{}, nil
	}
	return a.read(func(name string) (string, error) { return objectstore.SecretFile(a.opts, name) })
}

// find tries the sources in order. files reports that the login comes from files.
func (a *access) find() (l login, files bool, err error) {
	if a.place.anonymous {
		return login{}, false, nil
	}
	if l, err := a.files(); err != nil || l != (login{}) {
		return l, true, err
	}
	getenv := a.opts.Getenv
	if getenv == nil {
		getenv = func(string) string { return "" }
	}
	l, err = a.read(func(name string) (string, error) { return getenv(name), nil })
	if err != nil || l != (login{}) {
		return l, false, err
	}
	if strings.HasPrefix(a.place.endpoint, "http://") {
		return l, false, backends.Errorf(backends.Permission, "open", "", "no credentials were found, and identities need an endpoint with https://")
	}
	if a.identity == nil {
		if a.identity, err = newIdentity(getenv, a.transport); err != nil {
			return login{}, false, err
		}
	}
	return login{token: a.identity}, false, nil
}

// read reads one source.
func (a *access) read(get func(name string) (string, error)) (login, error) {
	key, err1 := get("AZURE_STORAGE_KEY")
	sas, err2 := get("AZURE_STORAGE_SAS_TOKEN")
	text, err3 := get(connectionString)
	if err := errors.Join(err1, err2, err3); err != nil {
		return login{}, backends.Errorf(backends.Permission, "open", "", "cannot read the files with credentials: %w", err)
	}
	sas = strings.TrimPrefix(sas, "?")
	if key != "" || sas != "" || text == "" {
		if key != "" {
			sas = ""
		}
		return login{key: key, sas: sas}, nil
	}
	c, err := parseConnection(text)
	if err == nil && c.account != "" && c.account != a.place.account {
		err = backends.Errorf(backends.Permission, "open", "", "%s is for account %q, and not for %q: correct the account of the URL or set another string", connectionString, c.account, a.place.account)
	}
	return login{key: c.key, sas: c.sas}, err
}

// connect makes the clients of a login.
func (a *access) connect(l login) (c clients, err error) {
	opts := azcore.ClientOptions{
		Transport: &transport{http.Client{Transport: a.transport, CheckRedirect: objectstore.NoRedirect}},
		Retry:     policy.RetryOptions{MaxRetries: -1}, // the Store retries
		Telemetry: policy.TelemetryOptions{ApplicationID: "stager"},
	}
	at := a.place.endpoint + "/"
	place := at + url.PathEscape(cmp.Or(a.place.container, "$root"))
	switch {
	case l.key != "":
		shared, err := service.NewSharedKeyCredential(a.place.account, l.key)
		if err != nil {
			return c, backends.Errorf(backends.Permission, "open", "", "AZURE_STORAGE_KEY is no account key: it must be in base64, as the portal shows it")
		}
		var err1, err2 error
		c.service, err1 = service.NewClientWithSharedKeyCredential(at, shared, &service.ClientOptions{ClientOptions: opts})
		c.container, err2 = container.NewClientWithSharedKeyCredential(place, shared, &container.ClientOptions{ClientOptions: opts})
		return c, errors.Join(err1, err2)
	case l.token != nil:
		var err1, err2 error
		c.service, err1 = service.NewClient(at, l.token, &service.ClientOptions{ClientOptions: opts})
		c.container, err2 = container.NewClient(place, l.token, &container.ClientOptions{ClientOptions: opts})
		return c, errors.Join(err1, err2)
	case l.sas != "":
		if _, err := url.ParseQuery(l.sas); err != nil {
			return c, backends.Errorf(backends.Permission, "open", "", "AZURE_STORAGE_SAS_TOKEN is no token: it looks like sv=...&sig=...")
		}
		at, place = at+"?"+l.sas, place+"?"+l.sas
	}
	var err1, err2 error
	c.service, err1 = service.NewClientWithNoCredential(at, &service.ClientOptions{ClientOptions: opts})
	c.container, err2 = container.NewClientWithNoCredential(place, &container.ClientOptions{ClientOptions: opts})
	return c, errors.Join(err1, err2)
}

// expiry returns when the current SAS expires; zero if there is none or it is unknown.
func (a *access) expiry() time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	q, err := url.ParseQuery(a.login.sas)
	if err != nil {
		return time.Time{}
	}
	for _, layout := range []string{time.RFC3339, "2006-01-02T15:04Z07:00", time.DateOnly} {
		if t, err := time.Parse(layout, q.Get("se")); err == nil {
			return t
		}
	}
	return time.Time{}
}

// how names the credentials in use.
func (a *access) how() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.login.key != "":
		return "key"
	case a.login.sas != "":
		return "sas"
	case a.login.token != nil:
		return "token"
	}
	return "anonymous"
}

// connection is a parsed connection string.
type connection struct{ account, key, sas, endpoint, suffix string }

// parseConnection parses a string like DefaultEndpointsProtocol=https;AccountName=a;AccountKey=k;EndpointSuffix=s.
func parseConnection(text string) (c connection, err error) {
	for field := range strings.SplitSeq(text, ";") {
		name, v, _ := strings.Cut(strings.TrimSpace(field), "=")
		switch strings.ToLower(name) {
		case "accountname":
			c.account = v
		case "accountkey":
			c.key = v
		case "sharedaccesssignature":
			c.sas = strings.TrimPrefix(v, "?")
		case "blobendpoint":
			c.endpoint = strings.TrimSuffix(v, "/")
		case "endpointsuffix":
			c.suffix = v
		}
	}
	if c.key == "" && c.sas == "" {
		return c, backends.Errorf(backends.Permission, "open", "", "%s has neither AccountKey nor SharedAccessSignature: copy the whole string from the portal", connectionString)
	}
	return c, nil
}
