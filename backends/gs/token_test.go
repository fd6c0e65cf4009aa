package gs

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/conformance"
)

// issuer is a metadata server that issues numbered tokens.
type issuer struct {
	n      int
	status int
	ttl    int
}

func (i *issuer) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	if i.status != 0 {
		w.WriteHeader(i.status)
		return
	}
	i.n++
	fmt.Fprintf(w, `{"access_token":"t%d","expires_in":%d,"token_type":"Bearer"}`, i.n, i.ttl)
}

// start returns credentials that use the issuer.
func (i *issuer) start(t *testing.T) *credentials {
	t.Helper()
	s := httptest.NewServer(i)
	t.Cleanup(s.Close)
	env := map[string]string{"GCE_METADATA_HOST": strings.TrimPrefix(s.URL, "http://")}
	return newCredentials(backends.Options{Getenv: func(name string) string { return env[name] }}, false, http.DefaultTransport.(*http.Transport))
}

func TestTokenIsSharedUntilItIsRejected(t *testing.T) {
	c := (&issuer{ttl: 3600}).start(t)
	want := func(token string) {
		t.Helper()
		if got, err := c.token(t.Context()); got != token || err != nil {
			t.Errorf("token = %q, %v; want %q", got, err, token)
		}
	}
	want("t1")
	want("t1")
	if c.forget("t1") {
		t.Error("a token that was just fetched and rejected is fetched again")
	}
	c.fetched = time.Now().Add(-time.Minute)
	if !c.forget("t1") || !c.forget("t0") {
		t.Error("a rejected token is not replaced")
	}
	want("t2")
	c.renew = time.Now()
	want("t3")
}

func TestTokenIsKeptWhileTheMetadataServerFails(t *testing.T) {
	i := &issuer{ttl: 3600}
	c := i.start(t)
	if _, err := c.token(t.Context()); err != nil {
		t.Fatal(err)
	}
	i.status, c.renew = http.StatusServiceUnavailable, time.Now()
	if got, err := c.token(t.Context()); got != "t1" || err != nil {
		t.Errorf("token = %q, %v; want the current one", got, err)
	}
	c.have.Expiry, c.renew = time.Now(), time.Now()
	if got, err := c.token(t.Context()); backends.KindOf(err) != backends.Unavailable {
		t.Errorf("token = %q, %v; want kind unavailable", got, err)
	}
}

func TestTokenWaitEndsWithItsContext(t *testing.T) {
	hold := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-hold }))
	defer s.Close()
	defer close(hold)
	c := newCredentials(backends.Options{Getenv: func(name string) string {
		return map[string]string{"GCE_METADATA_HOST": strings.TrimPrefix(s.URL, "http://")}[name]
	}}, false, http.DefaultTransport.(*http.Transport))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.token(ctx); backends.KindOf(err) != backends.Canceled {
		t.Errorf("token = %v, want kind canceled", err)
	}
}

func TestExpiredTokenIsReplaced(t *testing.T) {
	s := need(t, false)
	store := s.open(t, directory(t, "test"))
	obj, err := store.PutBytes(t.Context(), "k", []byte("x"), backends.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	raw, _ := store.Backend()
	c := raw.(*bucket).credentials
	c.mu.Lock()
	c.fetched = time.Now().Add(-time.Minute)
	c.mu.Unlock()
	s.control().Send(t, http.MethodPost, "/tokens?ttl=1h", nil) // those issued so far are invalid
	if _, err := store.ReadRange(t.Context(), obj, 0, 1, make(memory, 1), nil); err != nil {
		t.Errorf("reading: %v, want success with another token", err)
	}
	s.control().Inject(t, conformance.Injected{Kind: "expired", Key: "k", Times: 10})
	if _, err := store.Stat(t.Context(), "k"); backends.KindOf(err) != backends.Permission || !strings.Contains(err.Error(), "the access token has expired or was revoked") {
		t.Errorf("stat with rejected tokens: %v, want kind permission", err)
	}
	s.control().Send(t, http.MethodDelete, "/faults", nil)
}

// A server of tokens that cannot be reached, or breaks off, is no wrong credential: requests are
// repeated until it responds.
func TestUnreachableServerOfTokensIsWaitedFor(t *testing.T) {
	signer, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(signer)
	if err != nil {
		t.Fatal(err)
	}
	broken := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "100")
		fmt.Fprint(w, "{")
	}))
	defer broken.Close()
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	for _, at := range []string{broken.URL, gone.URL} {
		text, err := json.Marshal(map[string]string{
			"type": "service_account", "client_email": "a@b", "token_uri": at,
			"private_key": string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})),
		})
		if err != nil {
			t.Fatal(err)
		}
		c := newCredentials(backends.Options{}, false, http.DefaultTransport.(*http.Transport))
		if _, err := c.fromFile(t.Context(), text); backends.KindOf(err) != backends.Unavailable {
			t.Errorf("tokens from %s: %v (%v), want kind unavailable", at, err, backends.KindOf(err))
		}
	}
}
