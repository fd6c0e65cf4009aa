package gs

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/google"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/internal/objectstore"
)

// credentials fetch access tokens from the sources in the package comment, in order.
type credentials struct {
	opts      backends.Options
	anonymous bool
	tokens    *http.Client // for the servers that issue tokens
	metadata  *http.Client // for the metadata server, which is link-local: no proxy, and a short timeout

	mu      sync.Mutex // guards the fields below
	have    *oauth2.Token
	fetched time.Time     // when have was fetched
	renew   time.Time     // when it is replaced
	failed  error         // the result of the last attempt
	since   time.Time     // time of the last attempt
	pending chan struct{} // closed when the attempt in progress ends; nil: none is
}

const (
	// scope is the permission that tokens are requested for.
	scope = "https://www.googleapis.com/auth/devstorage.read_write"
	// renewBefore is how long before its expiry a token is replaced.
	renewBefore = 5 * time.Minute
	// failFor is how long a failure is shared with other requests, so that concurrent requests do
	// not all wait for a service that does not exist.
	failFor = time.Second
	// tokenTimeout limits one attempt to fetch a token.
	tokenTimeout = 30 * time.Second
	// metadataHost is the metadata server of machines and pods.
	metadataHost = "169.254.169.254"
)

func newCredentials(opts backends.Options, anonymous bool, transport *http.Transport) *credentials {
	return &credentials{
		opts: opts, anonymous: anonymous,
		tokens: &http.Client{Timeout: tokenTimeout, Transport: transport},
		metadata: &http.Client{
			Timeout:       5 * time.Second,
			Transport:     &http.Transport{DialContext: (&net.Dialer{Timeout: time.Second}).DialContext, DisableKeepAlives: true},
			CheckRedirect: objectstore.NoRedirect,
		},
	}
}

// token returns an access token; "" if requests carry none. Concurrent calls share one attempt, which
// continues if the context of one of them ends.
func (c *credentials) token(ctx context.Context) (string, error) {
	if c.anonymous {
		return "", nil
	}
	for {
		if err := ctx.Err(); err != nil {
			return "", context.Cause(ctx)
		}
		token, err, pending := c.known(ctx)
		if pending == nil {
			return token, err
		}
		select {
		case <-pending:
		case <-ctx.Done():
		}
	}
}

// known returns the token or the failure that is known, or what to wait for.
func (c *credentials) known(ctx context.Context) (token string, err error, pending chan struct{}) { //nolint:revive,staticcheck // the last result is no error
	c.mu.Lock()
	defer c.mu.Unlock()
	switch now := time.Now(); {
	case c.have != nil && now.Before(c.renew):
		return c.have.AccessToken, nil, nil
	case c.failed != nil && time.Since(c.since) < failFor:
		return "", c.failed, nil
	case c.pending == nil:
		c.pending = make(chan struct{})
		go c.attempt(context.WithoutCancel(ctx), c.pending)
	}
	return "", nil, c.pending
}

// attempt fetches a token. If that fails, the current one is used as long as it lasts.
func (c *credentials) attempt(ctx context.Context, done chan struct{}) {
	ctx, cancel := context.WithTimeout(ctx, tokenTimeout)
	defer cancel()
	token, err := c.fetch(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	defer close(done)
	c.pending = nil
	now := time.Now()
	if err != nil && c.have != nil && now.Before(c.have.Expiry) {
		c.renew = now.Add(failFor)
		return
	}
	c.failed, c.since = err, now
	if err != nil {
		return
	}
	c.have, c.fetched, c.renew = token, now, token.Expiry.Add(-renewBefore)
	if token.Expiry.IsZero() {
		c.renew = now.Add(renewBefore)
	} else if !c.renew.After(now) { // a short-lived one is used for half its life
		c.renew = now.Add(token.Expiry.Sub(now) / 2)
	}
}

// forget makes the next request fetch another token after the store rejected this one. It reports
// whether that may help: not if the token was just fetched.
func (c *credentials) forget(token string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case token == "":
		return false
	case c.have == nil || c.have.AccessToken != token:
		return true // it was replaced meanwhile
	case time.Since(c.fetched) < 10*time.Second:
		return false
	}
	c.have = nil
	return true
}

// fetch tries the sources in order.
func (c *credentials) fetch(ctx context.Context) (*oauth2.Token, error) {
	text, err := c.file()
	if err != nil {
		return nil, err
	}
	if text != nil {
		return c.fromFile(ctx, text)
	}
	if off, _ := strconv.ParseBool(getenv(c.opts, "NO_GCE_CHECK")); off {
		return nil, noCredentials(errors.New("NO_GCE_CHECK disables the metadata server"))
	}
	return c.fromMetadata(ctx)
}

// file returns the JSON of the credentials; nil if no file is set.
func (c *credentials) file() ([]byte, error) {
	const name = "GOOGLE_APPLICATION_CREDENTIALS"
	given, err := value(c.opts, name)
	if err != nil {
		return nil, backends.Errorf(backends.Permission, "open", "", "cannot read the files with credentials: %w", err)
	}
	if strings.HasPrefix(given, "{") {
		return []byte(given), nil
	}
	path := given
	if path == "" {
		if path = c.ofGcloud(); path == "" {
			return nil, nil
		}
	}
	text, err := os.ReadFile(path)
	switch {
	case err == nil:
		return text, nil
	case given == "" && errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case given == "":
		return nil, backends.Errorf(backends.Permission, "open", "", "cannot read the credentials of gcloud: %w", err)
	}
	return nil, backends.Errorf(backends.Permission, "open", "", "cannot read the file in %s: %w", name, errors.Unwrap(err))
}

// ofGcloud returns the path of the file that "gcloud auth application-default login" writes; "" if it
// is unknown.
func (c *credentials) ofGcloud() string {
	dir := getenv(c.opts, "CLOUDSDK_CONFIG")
	if home := getenv(c.opts, "HOME"); dir == "" && home != "" {
		dir = filepath.Join(home, ".config", "gcloud")
	}
	if dir == "" {
		return ""
	}
	return filepath.Join(dir, "application_default_credentials.json")
}

// kinds are the types of credentials in a file.
var kinds = map[google.CredentialsType]bool{
	google.ServiceAccount: true, google.AuthorizedUser: true, google.ExternalAccount: true,
	google.ExternalAccountAuthorizedUser: true, google.ImpersonatedServiceAccount: true,
}

// fromFile exchanges the credentials in a file for a token.
func (c *credentials) fromFile(ctx context.Context, text []byte) (*oauth2.Token, error) {
	var of struct{ Type google.CredentialsType }
	if json.Unmarshal(text, &of) != nil || !kinds[of.Type] {
		return nil, backends.Errorf(backends.Permission, "open", "", "GOOGLE_APPLICATION_CREDENTIALS is not the JSON of a service account, a workload identity or a user")
	}
	client, failed := *c.tokens, &failure{RoundTripper: c.tokens.Transport}
	client.Transport = failed
	ctx = context.WithValue(ctx, oauth2.HTTPClient, &client)
	found, err := google.CredentialsFromJSONWithType(ctx, text, of.Type, scope)
	if err != nil {
		return nil, backends.Errorf(backends.Permission, "open", "", "the credentials in GOOGLE_APPLICATION_CREDENTIALS are not valid (%s): create the file again", of.Type)
	}
	token, err := found.TokenSource.Token()
	if err != nil {
		return nil, rejected(cmp.Or(failed.err, err))
	}
	return token, nil
}

// failure is a transport that keeps why a request or its response failed, since the library that
// exchanges tokens reports that as text.
type failure struct {
	http.RoundTripper
	err error // requests are sent one after another
}

// RoundTrip implements http.RoundTripper.
func (f *failure) RoundTrip(r *http.Request) (*http.Response, error) {
	res, err := f.RoundTripper.RoundTrip(r)
	if f.err = err; err == nil {
		res.Body = &failingBody{res.Body, f}
	}
	return res, err
}

type failingBody struct {
	io.ReadCloser
	f *failure
}

// Read implements io.Reader.
func (b *failingBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		b.f.err = err
	}
	return n, err
}

// rejected returns the error of a server that issues tokens.
func rejected(err error) error {
	var refused *oauth2.RetrieveError
	if !errors.As(err, &refused) || refused.Response == nil {
		if kind := objectstore.NoResponse(err); kind != backends.Unknown {
			return backends.Errorf(kind, "open", "", "cannot fetch an access token: %w", objectstore.Innermost(err))
		}
		return backends.Errorf(backends.Permission, "open", "", "cannot fetch an access token: %s", objectstore.Shorten(err.Error()))
	}
	status, said := refused.Response.StatusCode, struct {
		Error       string `json:"error"`
		Description string `json:"error_description"`
	}{refused.ErrorCode, refused.ErrorDescription}
	if said.Error == "" {
		_ = json.Unmarshal(refused.Body, &said) // otherwise the status suffices
	}
	switch {
	case status >= 500, status == http.StatusTooManyRequests:
		return backends.Errorf(backends.Unavailable, "open", "", "the server of access tokens returned HTTP %d", status)
	case strings.Contains(said.Description, "reasonable timeframe"):
		return backends.Errorf(backends.Permission, "open", "", "%w (%s)", backends.ErrClock, said.Error)
	case said.Error == "":
		return backends.Errorf(backends.Permission, "open", "", "Google rejects the credentials with HTTP %d", status)
	}
	return backends.Errorf(backends.Permission, "open", "", "Google rejects the credentials: %s (%s)", objectstore.Shorten(said.Description), said.Error)
}

// fromMetadata fetches a token of the service account of the machine or the pod.
func (c *credentials) fromMetadata(ctx context.Context) (*oauth2.Token, error) {
	text, err := c.query(ctx, "instance/service-accounts/default/token?scopes="+escape(scope))
	if err != nil {
		return nil, noCredentials(err)
	}
	var answer struct {
		AccessToken string `json:"access_token"`
		ExpiresIn   int64  `json:"expires_in"`
	}
	if json.Unmarshal(text, &answer) != nil || answer.AccessToken == "" || answer.ExpiresIn <= 0 {
		return nil, noCredentials(errors.New("the metadata server has no token for the service account"))
	}
	return &oauth2.Token{AccessToken: answer.AccessToken, Expiry: time.Now().Add(time.Duration(answer.ExpiresIn) * time.Second)}, nil
}

// query sends a request to the metadata server, whose responses are small texts.
func (c *credentials) query(ctx context.Context, path string) ([]byte, error) {
	host := getenv(c.opts, "GCE_METADATA_HOST")
	if host == "" {
		host = metadataHost
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+host+"/computeMetadata/v1/"+path, nil)
	if err != nil {
		return nil, errors.New("GCE_METADATA_HOST is not a host")
	}
	req.Header.Set("Metadata-Flavor", "Google")
	res, err := c.metadata.Do(req)
	if err != nil {
		return nil, objectstore.Innermost(err)
	}
	defer res.Body.Close() // it was read
	text, err := io.ReadAll(io.LimitReader(res.Body, errorLimit))
	if err == nil && res.StatusCode != http.StatusOK {
		err = &serverError{status: res.StatusCode}
	}
	return text, err
}

// noCredentials returns Unavailable for a failing metadata server, which may recover. A machine
// without one is a Permission error, because waiting does not help.
func noCredentials(why error) error {
	kind := backends.Permission
	if a := refusal(why); a.status >= 500 || a.status == http.StatusTooManyRequests {
		kind = backends.Unavailable
	}
	return &backends.Error{Op: "open", Kind: kind, Err: fmt.Errorf("no credentials were found (the metadata server: %w)", why)}
}
