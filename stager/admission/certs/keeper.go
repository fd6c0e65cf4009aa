package certs

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/stager-dev/stager/stager/admission/kube"
)

// Keeper issues and renews a certificate, coordinated with other replicas.
type Keeper struct {
	API           *kube.Client
	Namespace     string   // namespace of the Secret
	Secret        string   // name of the Secret, which must exist and may be empty
	Configuration string   // MutatingWebhookConfiguration in which the bundle is published
	Names         []string // DNS names of the certificate
	Log           *slog.Logger

	current
}

// current is the certificate in use.
type current struct {
	certificate atomic.Pointer[tls.Certificate]
}

// GetCertificate is the callback of tls.Config.
func (c *current) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if cert := c.certificate.Load(); cert != nil {
		return cert, nil
	}
	return nil, errors.New("there is no certificate yet")
}

// Expires returns when the certificate expires; the zero time means that there is none yet.
func (c *current) Expires() time.Time {
	if cert := c.certificate.Load(); cert != nil {
		return cert.Leaf.NotAfter
	}
	return time.Time{}
}

// tries is how often an update is attempted after a conflict with another replica.
const tries = 5

// Sync performs the steps that are due; the package comment lists them. The served certificate is
// never newer than the published bundle.
func (k *Keeper) Sync(ctx context.Context) error {
	var err error
	for range tries {
		if err = k.sync(ctx); !kube.Conflict(err) {
			return err
		}
	}
	return err
}

func (k *Keeper) sync(ctx context.Context) error {
	s, err := k.update(ctx, func(s state) (state, error) { return s.prepare(k.Names, time.Now()) })
	if err != nil {
		return err
	}
	if err := k.publish(ctx, s[keyBundle]); err != nil {
		return err
	}
	if s, err = k.update(ctx, func(s state) (state, error) { return s.promote(k.Names, time.Now()), nil }); err != nil {
		return err
	}
	cert, good := s.serving().open(s[keyBundle], k.Names, time.Now())
	if !good {
		return fmt.Errorf("the Secret %s/%s changed during the update", k.Namespace, k.Secret)
	}
	if was := k.certificate.Swap(cert); was == nil || !was.Leaf.Equal(cert.Leaf) {
		k.Log.Info("serving a certificate", "until", cert.Leaf.NotAfter, "names", k.Names)
	}
	return nil
}

// object is an API object of any kind. Fields that are not touched are preserved.
type object map[string]any

// update reads the Secret, applies change to its data and writes it if the data changed.
func (k *Keeper) update(ctx context.Context, change func(state) (state, error)) (state, error) {
	path := "/api/v1/namespaces/" + k.Namespace + "/secrets/" + k.Secret
	var secret object
	if err := k.API.Get(ctx, path, &secret); err != nil {
		return nil, fmt.Errorf("the Secret %s/%s: %w", k.Namespace, k.Secret, err)
	}
	data, _ := secret["data"].(map[string]any)
	was := make(state)
	for key, v := range data {
		text, _ := v.(string)
		was[key], _ = base64.StdEncoding.DecodeString(text) // invalid base64 is not a certificate
	}
	now, err := change(was)
	if err != nil || now.equal(was) {
		return now, err
	}
	secret["data"] = now
	if err := k.API.Put(ctx, path, secret); err != nil {
		return nil, fmt.Errorf("the Secret %s/%s: %w", k.Namespace, k.Secret, err)
	}
	return now, nil
}

// publish writes the bundle into the webhook's configuration.
func (k *Keeper) publish(ctx context.Context, bundle []byte) error {
	path := "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/" + k.Configuration
	var configuration object
	if err := k.API.Get(ctx, path, &configuration); err != nil {
		return fmt.Errorf("the MutatingWebhookConfiguration %s: %w", k.Configuration, err)
	}
	want := base64.StdEncoding.EncodeToString(bundle)
	hooks, _ := configuration["webhooks"].([]any)
	stale := false
	for _, hook := range hooks {
		fields, _ := hook.(map[string]any)
		if client, ok := fields["clientConfig"].(map[string]any); ok && client["caBundle"] != want {
			client["caBundle"], stale = want, true
		}
	}
	if !stale {
		return nil
	}
	if err := k.API.Put(ctx, path, configuration); err != nil {
		return fmt.Errorf("the MutatingWebhookConfiguration %s: %w", k.Configuration, err)
	}
	return nil
}
