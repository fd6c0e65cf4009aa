package oss

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/conformance"
	"github.com/stager-dev/stager/backends/conformance/live"
)

// server is the fake, which verifies every signature.
type server struct{ *live.Server }

// need returns the server over HTTP or HTTPS, or ends the test.
func need(t *testing.T, tls bool) server {
	t.Helper()
	return server{live.Start(t, "oss", fmt.Sprintf("-tls=%t", tls), "-bucket=test,other,versions,public", "-versions=versions", "-public=public")}
}

func (s server) control() live.Control { return live.Control(s.Env["OSS_ECS_METADATA_ENDPOINT"]) }

// token returns a temporary credential as variables.
func (s server) token(t *testing.T, ttl time.Duration) []string {
	t.Helper()
	var k struct{ AccessKeyId, AccessKeySecret, SecurityToken string }
	s.control().Send(t, http.MethodPost, "/tokens?ttl="+ttl.String(), &k)
	return []string{"OSS_ACCESS_KEY_ID=" + k.AccessKeyId, "OSS_ACCESS_KEY_SECRET=" + k.AccessKeySecret, "OSS_SESSION_TOKEN=" + k.SecurityToken}
}

// directory returns a URL that no other test uses.
func directory(t *testing.T, bucket string) string {
	return fmt.Sprintf("oss://%s/%s-%d/", bucket, strings.ReplaceAll(t.Name(), "/", "_"), time.Now().UnixNano())
}

func (s server) open(t *testing.T, url string, changed ...string) *backends.Store {
	t.Helper()
	return openWith(t, url, backends.Options{Getenv: s.Getenv(changed...)})
}

func openWith(t *testing.T, url string, opts backends.Options) *backends.Store {
	t.Helper()
	if opts.RetryFor == 0 {
		opts.RetryFor = 5 * time.Second
	}
	store, err := backends.NewRegistry(Scheme()).Open(t.Context(), url, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	return store
}

func TestContract(t *testing.T) {
	short := conformance.Options{MaxSize: 1 << 20, Without: []string{conformance.AnyOrder}}
	for _, tt := range []struct {
		name, bucket, params string
		tls, sts             bool
		opts                 conformance.Options
	}{
		{"v4", "test", "?signature=v4", false, false, conformance.Options{}},
		{"v1", "test", "?signature=v1", false, false, conformance.Options{MaxSize: 3*partSize + 1<<20}},
		{"v4 with a token over https", "test", "", true, true, short},
		{"v1 with a token", "test", "?signature=v1", false, true, short},
		{"versions", "versions", "", false, false, conformance.Options{MaxSize: 3*partSize + 1<<20, Without: []string{conformance.OneWinner}}},
	} {
		if testing.Short() && (tt.sts || tt.name == "v1") {
			continue // other tests use tokens and v1, too
		}
		t.Run(tt.name, func(t *testing.T) {
			s := need(t, tt.tls)
			t.Parallel()
			var changed []string
			if tt.sts {
				changed = s.token(t, time.Hour)
			}
			conformance.Run(t, func(t *testing.T) *backends.Store {
				store := s.open(t, directory(t, tt.bucket)+tt.params, changed...)
				if got, want := store.Capabilities().ConditionalCreate, tt.bucket != "versions"; got != want {
					t.Errorf("ConditionalCreate is %t in bucket %s, want %t", got, tt.bucket, want)
				}
				return store
			}, tt.opts)
		})
	}
}

func TestSweepsAndResumesAfterKills(t *testing.T) {
	s := need(t, false)
	for _, params := range []string{"?signature=v4", "?signature=v1"} {
		url := directory(t, "test") + params
		conformance.Sweeps(t, s.open(t, url), s.open(t, url))
		conformance.Resumes(t, s.open(t, url), s.open(t, url))
	}
}

func TestReplacements(t *testing.T) {
	s := need(t, false)
	url := directory(t, "test")
	conformance.Replacements(t, s.open(t, url), s.open(t, url))
}
