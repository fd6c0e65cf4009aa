package oss

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/conformance"
	"github.com/stager-dev/stager/backends/conformance/live"
)

func writeSecrets(t *testing.T, dir, id, secret, token string) {
	t.Helper()
	for name, text := range map[string]string{"OSS_ACCESS_KEY_ID": id, "OSS_ACCESS_KEY_SECRET": secret, "OSS_SESSION_TOKEN": token} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func TestCredentialSources(t *testing.T) {
	dir := t.TempDir()
	writeSecrets(t, dir, "file-id", "file-secret", "")
	env := (&live.Server{}).Getenv("OSS_ACCESS_KEY_ID=env-id", "OSS_ACCESS_KEY_SECRET=env-secret", "OSS_SESSION_TOKEN=env-token")
	for _, tt := range []struct {
		name      string
		opts      backends.Options
		anonymous bool
		want      keys
		renewed   bool
	}{
		{"files before the environment", backends.Options{Secrets: dir, Getenv: env}, false, keys{id: "file-id", secret: "file-secret"}, true},
		{"the environment", backends.Options{Secrets: t.TempDir(), Getenv: env}, false, keys{id: "env-id", secret: "env-secret", token: "env-token"}, false},
		{"nobody", backends.Options{Secrets: dir, Getenv: env}, true, keys{}, false},
	} {
		c := newCredentials(tt.opts, tt.anonymous)
		if err := c.fetch(t.Context()); err != nil {
			t.Errorf("%s: %v", tt.name, err)
		}
		got := c.GetCredentials()
		if got.GetAccessKeyID() != tt.want.id || got.GetAccessKeySecret() != tt.want.secret || got.GetSecurityToken() != tt.want.token || c.have.renew.IsZero() == tt.renewed {
			t.Errorf("%s: got %+v, want %+v", tt.name, got, tt.want)
		}
	}
	if err := os.Remove(filepath.Join(dir, "OSS_ACCESS_KEY_SECRET")); err != nil {
		t.Fatal(err)
	}
	if err := newCredentials(backends.Options{Secrets: dir, Getenv: env}, false).fetch(t.Context()); backends.KindOf(err) != backends.Permission {
		t.Errorf("half a key: %v, want kind permission", err)
	}
}

func TestInstanceRole(t *testing.T) {
	s := need(t, false)
	nothing := []string{"OSS_ACCESS_KEY_ID=", "OSS_ACCESS_KEY_SECRET="}
	for _, tt := range []struct {
		name  string
		env   []string
		works bool
	}{
		{"the only one", nil, true},
		{"by name", []string{"ALIBABA_CLOUD_ECS_METADATA=stager-test-role"}, true},
		{"another's", []string{"ALIBABA_CLOUD_ECS_METADATA=nobody"}, false},
		{"no instance", []string{"OSS_ECS_METADATA_ENDPOINT=http://127.0.0.1:1"}, false},
		{"not wanted", []string{"ALIBABA_CLOUD_ECS_METADATA_DISABLED=true"}, false},
	} {
		store := s.open(t, directory(t, "test"), append(tt.env, nothing...)...)
		_, err := store.PutBytes(t.Context(), "k", []byte("x"), backends.CreateOptions{})
		if (err == nil) != tt.works || err != nil && backends.KindOf(err) != backends.Permission {
			t.Errorf("%s: %v; it is to work: %t", tt.name, err, tt.works)
		}
	}
}

func TestTokensOfTheRoleAreRenewed(t *testing.T) {
	s := need(t, false)
	s.token(t, 300*time.Millisecond) // tokens of the role last as long
	defer s.token(t, time.Hour)
	store := s.open(t, directory(t, "test"), "OSS_ACCESS_KEY_ID=", "OSS_ACCESS_KEY_SECRET=")
	raw, _ := store.Backend()
	b := raw.(*bucket)
	seen := make(map[string]bool)
	for until := time.Now().Add(time.Minute); len(seen) < 3 && time.Now().Before(until); {
		if _, err := store.PutBytes(t.Context(), "k", []byte("x"), backends.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		seen[b.credentials.GetCredentials().GetAccessKeyID()] = true
	}
	if len(seen) < 3 {
		t.Errorf("%d tokens of 300 ms were used in a minute, want more", len(seen))
	}
}

// direct sends requests to a handler without a network, for tests in virtual time.
type direct struct{ to http.Handler }

func (d direct) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	d.to.ServeHTTP(w, r)
	return w.Result(), nil
}

// A failing metadata service does no harm while the last token is valid.
func TestTokenIsUsedUntilItExpires(t *testing.T) { synctest.Test(t, tokenUsedUntilItEnds) }

func tokenUsedUntilItEnds(t *testing.T) {
	down, ends := false, time.Now().Add(300*time.Millisecond)
	service := direct{http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case down:
			http.Error(w, "down", http.StatusInternalServerError)
		case strings.HasSuffix(r.URL.Path, "/role"):
			fmt.Fprintf(w, `{"Code":"Success","AccessKeyId":"id","AccessKeySecret":"secret","SecurityToken":"token","Expiration":%q}`, ends.UTC().Format(time.RFC3339Nano))
		default:
			fmt.Fprint(w, "role")
		}
	})}
	c := newCredentials(backends.Options{Getenv: (&live.Server{}).Getenv("OSS_ECS_METADATA_ENDPOINT=http://metadata.example")}, false)
	c.client.Transport = service
	if err := c.fetch(t.Context()); err != nil || c.GetCredentials().GetSecurityToken() != "token" {
		t.Fatalf("got %+v, %v", c.have, err)
	}
	down = true
	c.have.renew = time.Now()
	if err := c.fetch(t.Context()); err != nil {
		t.Errorf("while the token is good: %v", err)
	}
	time.Sleep(time.Until(ends))
	c.have.renew = time.Now()
	if err := c.fetch(t.Context()); backends.KindOf(err) != backends.Unavailable {
		t.Errorf("after its end: %v, want kind unavailable", err)
	}
}

// A token that expired early is fetched again if its source may have a newer one.
func TestTokenRejectedAsExpired(t *testing.T) {
	s := need(t, false)
	dir := t.TempDir()
	old, next := s.token(t, time.Hour), s.token(t, time.Hour)
	value := func(vars []string, i int) string { _, v, _ := strings.Cut(vars[i], "="); return v }
	writeSecrets(t, dir, value(old, 0), value(old, 1), value(old, 2))
	store := openWith(t, directory(t, "test"), backends.Options{Secrets: dir, Getenv: s.Getenv()})
	writeSecrets(t, dir, value(next, 0), value(next, 1), value(next, 2))
	s.control().Inject(t, conformance.Injected{Kind: "expired", Key: "expiring", Times: 1})
	if _, err := store.PutBytes(t.Context(), "expiring", []byte("x"), backends.CreateOptions{}); err != nil {
		t.Error(err)
	}
	raw, _ := store.Backend()
	if got := raw.(*bucket).credentials.GetCredentials().GetAccessKeyID(); got != value(next, 0) {
		t.Errorf("it was written as %s, want the new key %s", got, value(next, 0))
	}
}

func TestTokenRequestIsShared(t *testing.T) { synctest.Test(t, tokenRequestIsShared) }

func tokenRequestIsShared(t *testing.T) {
	var asked atomic.Int32
	c := newCredentials(backends.Options{Getenv: (&live.Server{}).Getenv("OSS_ECS_METADATA_ENDPOINT=http://metadata.example")}, false)
	c.client.Transport = direct{http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		time.Sleep(failFor / 2) // the others wait meanwhile
		http.Error(w, "none", http.StatusNotFound)
	})}
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			if err := c.fetch(t.Context()); backends.KindOf(err) != backends.Permission {
				t.Errorf("got %v, want kind permission", err)
			}
		})
	}
	all.Wait()
	if n := asked.Load(); n != 1 {
		t.Errorf("the service was asked %d times, want once", n)
	}
}

func TestFetchingCredentialsObeysTheContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	silent := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		cancel()
		<-r.Context().Done()
	}))
	defer silent.Close()
	c := newCredentials(backends.Options{Getenv: (&live.Server{}).Getenv("OSS_ECS_METADATA_ENDPOINT=" + silent.URL)}, false)
	c.client.Timeout = time.Minute
	start := time.Now()
	var all sync.WaitGroup
	for range 2 { // one request, the other waits for it
		all.Go(func() {
			if err := c.fetch(ctx); !errors.Is(err, context.Canceled) {
				t.Errorf("got %v, want the end of the context", err)
			}
		})
	}
	all.Wait()
	if took := time.Since(start); took >= time.Minute {
		t.Errorf("it took %v, want the end with the context and not with the client's time-out", took)
	}
}
