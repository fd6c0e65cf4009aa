package s3

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/internal/objectstore"
)

// credentials tries the sources in the package comment, in order.
type credentials struct {
	opts  backends.Options
	chain aws.CredentialsProvider
}

// rereadAfter is how long credentials from files are used before the files are read again.
const rereadAfter = 5 * time.Minute

func (c credentials) Retrieve(ctx context.Context) (aws.Credentials, error) {
	if c.opts.Secrets != "" {
		found, err := c.files(ctx)
		if err != nil {
			return found, &credentialsError{err}
		}
		if found.HasKeys() {
			found.CanExpire, found.Expires = true, time.Now().Add(rereadAfter)
			return found, nil
		}
	}
	if found := inEnvironment(c.opts); found.HasKeys() {
		return found, nil
	}
	found, err := c.chain.Retrieve(ctx)
	if err != nil && ctx.Err() == nil {
		err = &credentialsError{err}
	}
	return found, err
}

// files reads the credentials in Options.Secrets, if there are any.
func (c credentials) files(ctx context.Context) (aws.Credentials, error) {
	found, err := threeNames(func(name string) (string, error) { return objectstore.SecretFile(c.opts, name) }, "files")
	if err == nil && !found.HasKeys() {
		found, err = c.sharedFile(ctx)
	}
	return found, err
}

// renewable are credentials that can be reloaded early, as when the store reports an expired token.
type renewable struct {
	credentials
	chain *reloaded
	cache *aws.CredentialsCache // a cache of this provider
	fixed atomic.Bool           // the last ones came from the environment, which is constant

	rotation objectstore.Rotation[keys]
}

// keys are credentials without their source and times.
type keys struct{ id, secret, token string }

func keysOf(c aws.Credentials) keys { return keys{c.AccessKeyID, c.SecretAccessKey, c.SessionToken} }

// newRenewable returns credentials whose SDK chain is chain at first and reloaded with load. A nil
// chain is loaded when it is needed.
func newRenewable(opts backends.Options, chain aws.CredentialsProvider, load func(context.Context) (aws.CredentialsProvider, error)) *renewable {
	r := &renewable{chain: &reloaded{load: load, now: chain}}
	r.chain.stale.Store(chain == nil)
	r.credentials = credentials{opts, r.chain}
	r.cache = aws.NewCredentialsCache(r)
	return r
}

func (r *renewable) Retrieve(ctx context.Context) (aws.Credentials, error) {
	found, err := r.credentials.Retrieve(ctx)
	r.fixed.Store(err == nil && (found.Source == environment || found.Source == config.CredentialsSourceName))
	if err == nil {
		r.rotation.Use(keysOf(found))
	}
	return found, err
}

// rejected handles a request that the store did not permit. When the files in Options.Secrets were
// replaced, as in a rotation whose old key is revoked at once, it makes the next request read them. It
// reports whether the request may succeed with other keys than it was sent with.
func (r *renewable) rejected() bool {
	if r.opts.Secrets == "" {
		return false
	}
	found, err := r.files(context.Background())
	if err != nil || !found.HasKeys() {
		return false
	}
	others, again := r.rotation.Rejected(keysOf(found))
	if others {
		r.cache.Invalidate()
	}
	return again
}

// renew makes the next request reload the credentials. It returns false if they cannot have
// changed.
func (r *renewable) renew() bool {
	if r.fixed.Load() {
		return false
	}
	r.chain.stale.Store(true)
	r.cache.Invalidate()
	return true
}

// reloaded is the SDK's credential chain, reloaded on demand. The SDK itself caches files for ever.
type reloaded struct {
	load  func(context.Context) (aws.CredentialsProvider, error)
	stale atomic.Bool

	mu  sync.Mutex // guards now
	now aws.CredentialsProvider
}

func (r *reloaded) Retrieve(ctx context.Context) (aws.Credentials, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stale.Swap(false) {
		chain, err := r.load(ctx)
		if err != nil {
			r.stale.Store(true)
			return aws.Credentials{}, err
		}
		r.now = chain
	}
	return r.now.Retrieve(ctx)
}

// environment is the Source of credentials from Options.Getenv.
const environment = "environment"

// inEnvironment returns the credentials from Options.Getenv, without keys if there are none.
func inEnvironment(opts backends.Options) aws.Credentials {
	if opts.Getenv == nil {
		return aws.Credentials{}
	}
	found, _ := threeNames(func(name string) (string, error) { return opts.Getenv(name), nil }, environment) // Getenv does not fail
	return found
}

func threeNames(get func(string) (string, error), source string) (aws.Credentials, error) {
	id, err1 := get("AWS_ACCESS_KEY_ID")
	secret, err2 := get("AWS_SECRET_ACCESS_KEY")
	token, err3 := get("AWS_SESSION_TOKEN")
	return aws.Credentials{AccessKeyID: id, SecretAccessKey: secret, SessionToken: token, Source: source},
		errors.Join(err1, err2, err3)
}

// sharedFile reads a file named credentials, in the format of the AWS tools.
func (c credentials) sharedFile(ctx context.Context) (aws.Credentials, error) {
	path := filepath.Join(c.opts.Secrets, "credentials")
	if _, err := os.Stat(path); err != nil {
		return aws.Credentials{}, nil // a missing file is not an error
	}
	profile := "default"
	if c.opts.Getenv != nil {
		if p := c.opts.Getenv("AWS_PROFILE"); p != "" {
			profile = p
		}
	}
	shared, err := config.LoadSharedConfigProfile(ctx, profile, func(o *config.LoadSharedConfigOptions) {
		o.CredentialsFiles, o.ConfigFiles = []string{path}, []string{}
	})
	return shared.Credentials, err
}
