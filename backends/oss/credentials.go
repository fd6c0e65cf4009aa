package oss

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/aliyun/aliyun-oss-go-sdk/oss"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/internal/objectstore"
)

// keys are one access key, possibly temporary.
type keys struct {
	id, secret, token string
	renew             time.Time // when to reload; zero: never
	ends              time.Time // when they certainly expire; zero: unknown
}

// GetAccessKeyID, GetAccessKeySecret and GetSecurityToken implement oss.Credentials.
func (k *keys) GetAccessKeyID() string     { return k.id }
func (k *keys) GetAccessKeySecret() string { return k.secret }
func (k *keys) GetSecurityToken() string   { return k.token }

// secret is an access key as files have it.
type secret struct{ id, secret, token string }

func (k *keys) secretOf() secret { return secret{k.id, k.secret, k.token} }

// credentials tries the sources in the package comment, in order. The SDK asks for credentials
// without a context. So every request first calls fetch, and the SDK uses the result.
type credentials struct {
	opts      backends.Options
	anonymous bool
	client    *http.Client // for the metadata service

	rotation objectstore.Rotation[secret]
	querying chan struct{} // a lock held while the sources are read, which a context can interrupt

	mu     sync.Mutex // guards the fields below
	have   *keys      // never nil
	failed error      // the result of the last attempt
	since  time.Time  // time of the last attempt
}

var _ oss.CredentialsProvider = (*credentials)(nil)

const (
	// rereadAfter is how long credentials from files are used before the files are read again.
	rereadAfter = 5 * time.Minute
	// renewBefore is how long before its expiry a token is replaced.
	renewBefore = 5 * time.Minute
	// failFor is how long a failure is shared with other requests, so that concurrent requests do
	// not all wait for a service that does not exist.
	failFor = time.Second
	// metadata is the metadata service of ECS instances.
	metadata = "http://100.100.100.200"
)

func newCredentials(opts backends.Options, anonymous bool) *credentials {
	return &credentials{opts: opts, anonymous: anonymous, querying: make(chan struct{}, 1), have: new(keys), client: &http.Client{
		Timeout: 5 * time.Second,
		// The service is link-local: no proxy, and a short timeout.
		Transport:     &http.Transport{DialContext: (&net.Dialer{Timeout: time.Second}).DialContext, DisableKeepAlives: true},
		CheckRedirect: objectstore.NoRedirect,
	}}
}

// GetCredentials returns the credentials with which the SDK signs.
func (c *credentials) GetCredentials() oss.Credentials {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.have
}

// fetch ensures that the SDK has valid credentials.
func (c *credentials) fetch(ctx context.Context) error {
	if c.anonymous {
		return nil
	}
	if known, err := c.known(); known {
		return err
	}
	select {
	case c.querying <- struct{}{}:
		defer func() { <-c.querying }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if known, err := c.known(); known { // a concurrent call has loaded them
		return err
	}
	now := time.Now()
	found, err := c.retrieve(ctx, now)
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil && now.Before(c.have.ends) { // the current ones remain valid for a while
		still := *c.have
		still.renew = now.Add(failFor)
		c.have = &still
		return nil
	}
	c.failed, c.since = err, time.Now()
	if err == nil {
		c.have = found
	}
	return err
}

// known reports whether the sources need not be read.
func (c *credentials) known() (bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.have.id != "" && (c.have.renew.IsZero() || time.Now().Before(c.have.renew)) {
		return true, nil
	}
	return c.failed != nil && time.Since(c.since) < failFor, c.failed
}

// forget makes the next request reload the credentials, if their source may have newer ones. It
// reports whether that is so.
func (c *credentials) forget() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.have.renew.IsZero() {
		return false
	}
	old := *c.have
	old.renew, old.ends = time.Now(), time.Time{}
	c.have = &old
	return true
}

// retrieve tries the sources in order.
func (c *credentials) retrieve(ctx context.Context, now time.Time) (*keys, error) {
	getenv := c.opts.Getenv
	if getenv == nil {
		getenv = func(string) string { return "" }
	}
	if found, err := c.files(); err != nil || found.id != "" {
		if err == nil {
			found.renew = now.Add(rereadAfter)
			c.rotation.Use(found.secretOf())
		}
		return found, err
	}
	found, err := threeNames(func(name string) (string, error) { return getenv(name), nil })
	if err != nil || found.id != "" {
		return found, err
	}
	if off, _ := strconv.ParseBool(getenv("ALIBABA_CLOUD_ECS_METADATA_DISABLED")); off {
		return nil, noCredentials(errors.New("the metadata service is disabled"))
	}
	return c.role(ctx, getenv, now)
}

// files reads the access key in Options.Secrets. Without one, its id is empty.
func (c *credentials) files() (*keys, error) {
	if c.opts.Secrets == "" {
		return new(keys), nil
	}
	found, err := threeNames(func(name string) (string, error) { return objectstore.SecretFile(c.opts, name) })
	if err != nil {
		return nil, &backends.Error{Kind: backends.Permission, Err: fmt.Errorf("cannot read the files with credentials: %w", err)}
	}
	return found, nil
}

// rejected handles a request that the store did not permit. If the files have another key, the next
// request uses it. It reports whether the request may succeed with another key than it was sent with.
func (c *credentials) rejected() bool {
	found, err := c.files()
	if c.anonymous || err != nil || found.id == "" {
		return false
	}
	others, again := c.rotation.Rejected(found.secretOf())
	if others {
		return c.forget()
	}
	return again
}

// threeNames assembles a key. Half a key is an error, so that no other source is used by mistake.
func threeNames(get func(name string) (string, error)) (*keys, error) {
	id, err1 := get("OSS_ACCESS_KEY_ID")
	secret, err2 := get("OSS_ACCESS_KEY_SECRET")
	token, err3 := get("OSS_SESSION_TOKEN")
	if err := errors.Join(err1, err2, err3); err != nil {
		return nil, err
	}
	if (id == "") != (secret == "") {
		return nil, &backends.Error{Kind: backends.Permission, Err: errors.New("only one of OSS_ACCESS_KEY_ID and OSS_ACCESS_KEY_SECRET is set")}
	}
	return &keys{id: id, secret: secret, token: token}, nil
}

// role fetches a token for the role of the ECS instance.
func (c *credentials) role(ctx context.Context, getenv func(string) string, now time.Time) (*keys, error) {
	base := getenv("OSS_ECS_METADATA_ENDPOINT")
	if base == "" {
		base = metadata
	}
	base = strings.TrimSuffix(base, "/") + "/latest/"
	const session = "X-aliyun-ecs-metadata-token"
	header := make(http.Header)
	header.Set(session+"-ttl-seconds", "60")
	token, err := c.query(ctx, http.MethodPut, base+"api/token", header)
	if err != nil {
		return nil, noCredentials(err)
	}
	header = make(http.Header)
	header.Set(session, token)
	name := getenv("ALIBABA_CLOUD_ECS_METADATA")
	if name == "" {
		text, err := c.query(ctx, http.MethodGet, base+"meta-data/ram/security-credentials/", header)
		if err != nil {
			return nil, noCredentials(err)
		}
		name, _, _ = strings.Cut(strings.TrimSpace(text), "\n")
	}
	text, err := c.query(ctx, http.MethodGet, base+"meta-data/ram/security-credentials/"+name, header)
	if err != nil {
		return nil, noCredentials(err)
	}
	var answer struct {
		Code                                       string
		AccessKeyID                                string `json:"AccessKeyId"`
		AccessKeySecret, SecurityToken, Expiration string
	}
	if err := json.Unmarshal([]byte(text), &answer); err != nil || answer.Code != "Success" || answer.AccessKeyID == "" {
		return nil, noCredentials(fmt.Errorf("the metadata service has no token for role %q", name))
	}
	ends, err := time.Parse(time.RFC3339, answer.Expiration)
	if err != nil {
		return nil, noCredentials(fmt.Errorf("the metadata service did not return the expiry of the token for role %q", name))
	}
	renew := ends.Add(-renewBefore)
	if !renew.After(now) { // a short-lived one is used for half its life
		renew = now.Add(ends.Sub(now) / 2)
	}
	return &keys{id: answer.AccessKeyID, secret: answer.AccessKeySecret, token: answer.SecurityToken, renew: renew, ends: ends}, nil
}

// query sends a request to the metadata service, whose responses are small texts.
func (c *credentials) query(ctx context.Context, method, url string, header http.Header) (string, error) {
	req, err := http.NewRequestWithContext(ctx, method, url, nil)
	if err != nil {
		return "", err
	}
	req.Header = header
	res, err := c.client.Do(req)
	if err != nil {
		return "", objectstore.Innermost(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(io.LimitReader(res.Body, 64<<10))
	if err == nil && res.StatusCode != http.StatusOK {
		err = &serverError{status: res.StatusCode}
	}
	return string(text), err
}

// noCredentials returns Unavailable for a failing metadata service, which may recover. A machine
// without one is a Permission error, because waiting does not help.
func noCredentials(why error) error {
	kind := backends.Permission
	var a *serverError
	if errors.As(why, &a) && (a.status >= 500 || a.status == http.StatusTooManyRequests) {
		kind = backends.Unavailable
	}
	return &backends.Error{Kind: kind, Err: fmt.Errorf("no credentials were found (the instance's role: %w)", why)}
}
