package certs

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stager-dev/stager/stager/admission/kube"
)

const (
	secretPath        = "/api/v1/namespaces/stager/secrets/hook-tls"
	configurationPath = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/hook"
)

var names = []string{"hook.stager.svc"}

// cluster is a fake API server with two objects. It is called without a network, so that time may
// be virtual.
type cluster struct {
	mu        sync.Mutex // guards all fields below
	objects   map[string]map[string]any
	version   int
	conflicts int
	broken    string         // path to which writes fail
	onPut     func(p string) // called before a write
}

func newCluster() *cluster {
	c := &cluster{objects: map[string]map[string]any{
		secretPath: {"kind": "Secret", "metadata": map[string]any{"resourceVersion": "1"}},
		configurationPath: {
			"kind": "MutatingWebhookConfiguration", "metadata": map[string]any{"resourceVersion": "1", "generation": 9007199254740993},
			"webhooks": []any{map[string]any{"name": "a", "clientConfig": map[string]any{"service": map[string]any{"name": "hook"}}, "timeoutSeconds": 5}},
		},
	}}
	return c
}

func (c *cluster) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	fail := func(code int, text string) {
		w.WriteHeader(code)
		fmt.Fprintf(w, `{"kind":"Status","message":%q}`, text)
	}
	if r.Method == http.MethodPut && c.onPut != nil {
		c.onPut(r.URL.Path)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	has := c.objects[r.URL.Path]
	switch {
	case r.Header.Get("Authorization") != "Bearer secret-token":
		fail(http.StatusUnauthorized, "who is that")
	case has == nil:
		fail(http.StatusNotFound, "not found")
	case r.Method == http.MethodGet:
		_ = json.NewEncoder(w).Encode(has)
	case r.URL.Path == c.broken:
		fail(http.StatusForbidden, "may not")
	default:
		var now map[string]any
		d := json.NewDecoder(r.Body)
		d.UseNumber()
		_ = d.Decode(&now)
		meta := now["metadata"].(map[string]any)
		if meta["resourceVersion"] != has["metadata"].(map[string]any)["resourceVersion"] {
			c.conflicts++
			fail(http.StatusConflict, "the object has been modified")
			return
		}
		c.version++
		meta["resourceVersion"] = "v" + strconv.Itoa(c.version)
		c.objects[r.URL.Path] = now
	}
}

// RoundTrip implements http.RoundTripper.
func (c *cluster) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	c.ServeHTTP(w, r)
	return w.Result(), nil
}

func (c *cluster) keeper() *Keeper {
	return &Keeper{
		API:       &kube.Client{URL: "https://api", HTTP: &http.Client{Transport: c}, Token: func() (string, error) { return "secret-token", nil }},
		Namespace: "stager", Secret: "hook-tls", Configuration: "hook", Names: names, Log: slog.New(slog.DiscardHandler),
	}
}

// bundle returns the bundle that the API servers trust.
func (c *cluster) bundle() []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	hook := c.objects[configurationPath]["webhooks"].([]any)[0].(map[string]any)
	text, _ := hook["clientConfig"].(map[string]any)["caBundle"].(string)
	bundle, _ := base64.StdEncoding.DecodeString(text)
	return bundle
}

// trusted fails unless an API server with this bundle trusts the certificate that k serves.
func trusted(t *testing.T, k *Keeper, bundle []byte) *x509.Certificate {
	t.Helper()
	cert, err := k.GetCertificate(nil)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(bundle)
	if _, err := cert.Leaf.Verify(x509.VerifyOptions{Roots: pool, DNSName: names[0], CurrentTime: time.Now()}); err != nil {
		t.Fatalf("%s: %v", time.Now(), err)
	}
	return cert.Leaf
}

func sync1(t *testing.T, k *Keeper) {
	t.Helper()
	if err := k.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// Two replicas run for two years. An API server that receives each new bundle up to half an hour
// late trusts both at all times.
func TestRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster()
		a, b := c.keeper(), c.keeper()
		seen := make(map[string]bool)
		var late []byte // the bundle of a slow API server
		for start := time.Now(); time.Since(start) < 2*365*24*time.Hour; {
			sync1(t, a)
			time.Sleep(7 * time.Minute) // the replicas are never synchronized
			sync1(t, b)
			if late == nil {
				late = c.bundle()
			}
			for _, k := range []*Keeper{a, b} {
				leaf := trusted(t, k, late)
				trusted(t, k, c.bundle())
				seen[leaf.SerialNumber.String()] = true
				if left := time.Until(leaf.NotAfter); left < Life/4 {
					t.Fatalf("the certificate has %s left, want it renewed long before", left)
				}
			}
			late = c.bundle()
			if n := strings.Count(string(late), "BEGIN"); n < 1 || n > 2 {
				t.Fatalf("the bundle has %d authorities, want one or two", n)
			}
			time.Sleep(30 * time.Minute)
			if _, renewing := c.objects[secretPath]["data"].(map[string]any)[keyNextCert]; !renewing {
				time.Sleep(13 * time.Hour)
			}
		}
		if n := len(seen); n < 11 || n > 14 {
			t.Errorf("%d certificates in two years, want one for each 60 days", n)
		}
		if text, _ := json.Marshal(c.objects); strings.Contains(string(text), "EC PRIVATE") || !strings.Contains(string(text), "9007199254740993") {
			t.Errorf("the objects lost or gained something: %s", text)
		}
	})
}

// Replicas that start at the same time agree on one certificate.
func TestReplicasBeginAtOnce(t *testing.T) {
	c := newCluster()
	var both sync.WaitGroup
	both.Add(2)
	var first sync.Map
	c.onPut = func(path string) { // neither writes the Secret before both have read it
		if n, _ := first.LoadOrStore(path, new(sync.Once)); path == secretPath {
			_ = n
			defer func() { _ = recover() }() // Done panics on later writes
			both.Done()
			both.Wait()
		}
	}
	a, b := c.keeper(), c.keeper()
	var group sync.WaitGroup
	for _, k := range []*Keeper{a, b} {
		group.Go(func() {
			if err := k.Sync(context.Background()); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	if c.conflicts == 0 {
		t.Error("the replicas did not meet")
	}
	if x, y := trusted(t, a, c.bundle()), trusted(t, b, c.bundle()); !x.Equal(y) {
		t.Error("the replicas serve two certificates")
	}
}

// A certificate is not served before API servers have its CA, however long that takes.
func TestCertificateIsServedOnlyWhenTrusted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster()
		k := c.keeper()
		c.broken = configurationPath
		err := k.Sync(t.Context())
		if err == nil || !strings.Contains(err.Error(), "stager manifests rbac") || strings.Contains(err.Error(), "secret-token") {
			t.Errorf("Sync = %v, want a hint at the rights", err)
		}
		if !k.Expires().IsZero() {
			t.Error("an untrusted certificate is served")
		}
		c.broken = ""
		sync1(t, k)
		was := trusted(t, k, c.bundle())
		time.Sleep(renewAge + time.Minute)
		c.broken = configurationPath
		for range 10 {
			_ = k.Sync(t.Context())
			time.Sleep(settleTime)
		}
		if leaf := trusted(t, k, c.bundle()); !leaf.Equal(was) {
			t.Error("the next certificate is served although nobody knows its authority")
		}
		c.broken = ""
		sync1(t, k)
		if leaf := trusted(t, k, c.bundle()); leaf.Equal(was) {
			t.Error("the next certificate is not served")
		}
	})
}

// An invalid Secret, or a Service with another name, causes a new certificate.
func TestBrokenStatesHeal(t *testing.T) {
	c := newCluster()
	k := c.keeper()
	sync1(t, k)
	was := trusted(t, k, c.bundle())
	c.objects[secretPath]["data"].(map[string]any)[keyKey] = "bm9uc2Vuc2U="
	sync1(t, k)
	now := trusted(t, k, c.bundle())
	if now.Equal(was) {
		t.Error("a certificate without its key is served")
	}
	k.Names = []string{names[0], "renamed.stager.svc"}
	sync1(t, k)
	if leaf := trusted(t, k, c.bundle()); leaf.VerifyHostname("renamed.stager.svc") != nil {
		t.Errorf("the certificate is for %v, want %v", leaf.DNSNames, k.Names)
	}
}

func TestDirIsReadAgain(t *testing.T) {
	dir := t.TempDir()
	f := &Dir{Dir: dir}
	if err := f.Sync(t.Context()); err == nil || !strings.Contains(err.Error(), dir) {
		t.Errorf("an empty directory: %v, want an error that names it", err)
	}
	var last *tls.Certificate
	for range 2 {
		p, _, err := issue(names, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		for name, text := range map[string][]byte{keyCert: p.cert, keyKey: p.key} {
			if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := f.Sync(t.Context()); err != nil {
			t.Fatal(err)
		}
		cert, _ := f.GetCertificate(nil)
		if last != nil && bytes.Equal(cert.Certificate[0], last.Certificate[0]) {
			t.Error("the old certificate is still served")
		}
		last = cert
	}
	if err := os.WriteFile(filepath.Join(dir, keyKey), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := f.Sync(t.Context()); err == nil {
		t.Error("a certificate without a key was taken")
	}
	if cert, _ := f.GetCertificate(nil); cert != last {
		t.Error("the good certificate was dropped")
	}
}
