package e2e

import (
	"encoding/pem"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stager-dev/stager/backends/conformance/hub"
	"github.com/stager-dev/stager/backends/conformance/live"
	"github.com/stager-dev/stager/e2e/servers"
)

// at is where a store of the table is, and with which variables a client finds it.
type at struct {
	endpoint string
	env      []string
}

// storesOverHTTP start the store of each scheme over HTTP. Those that can be written to get their
// object from the test.
var storesOverHTTP = []struct {
	name  string
	url   string // of a directory; ENDPOINT is that of the server
	names string // the variable with the endpoint
	start func(*testing.T) at
}{
	{"s3", "s3://test/p/", "AWS_ENDPOINT_URL_S3", func(t *testing.T) at {
		s := begun(servers.StartS3(t.Context(), servers.S3Options{}))(t)
		return at{s.Endpoint, s.Env()}
	}},
	{"oss", "oss://test/p/", "OSS_ENDPOINT", func(t *testing.T) at {
		s := begun(servers.StartOSS(servers.OSSOptions{}))(t)
		return at{s.Endpoint, s.Env()}
	}},
	{"gs", "gs://test/p/", "CLOUDSDK_API_ENDPOINT_OVERRIDES_STORAGE", func(t *testing.T) at {
		s := begun(servers.StartGS(servers.GSOptions{}))(t)
		return at{s.Endpoint, s.Env()}
	}},
	{"az", "az://test/proxies/p/", "AZURE_STORAGE_SERVICE_ENDPOINT", func(t *testing.T) at {
		live.Require(t, "az", real.az.had())
		real.az.turn.Lock() // no script stops it meanwhile
		t.Cleanup(real.az.turn.Unlock)
		return at{real.az.it.Endpoint, real.az.it.Env()}
	}},
	{"http", "ENDPOINT/p/", "", func(t *testing.T) at {
		dir := t.TempDir()
		if err := os.Mkdir(filepath.Join(dir, "p"), 0o755); err != nil {
			t.Fatal(err)
		}
		live.PlantFile(t, filepath.Join(dir, "p", "it"), []byte("content"), time.Now())
		s := begun(servers.StartWeb(t.Context(), servers.WebOptions{Kind: servers.PythonWeb, Dir: dir}))(t)
		return at{s.URL, nil}
	}},
	{"hf", "hf://org/name/p/", "HF_ENDPOINT", func(t *testing.T) at {
		return at{hub.Start(t, map[string]int64{"p/it": 7}).URL, []string{"HF_TOKEN=" + hub.Token}}
	}},
}

// begun fails the test if a server does not start, and closes it at the end.
func begun[S io.Closer](s S, err error) func(*testing.T) S {
	return func(t *testing.T) S {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		return s
	}
}

// Each store over HTTP is reached by the proxy that the environment names, unless NO_PROXY lists it,
// and trusts an authority of the site by SSL_CERT_FILE or ?ca-bundle=. What goes wrong between is one
// sentence, without the proxy's password.
//
// The stores are known by names that only the proxy can resolve. Addresses of this machine would not
// do: Go asks no proxy for these.
func TestStoresBehindProxies(t *testing.T) {
	t.Parallel()
	for _, store := range storesOverHTTP {
		t.Run(store.name, func(t *testing.T) {
			t.Parallel()
			to := store.start(t)
			server, err := url.Parse(to.endpoint)
			if err != nil {
				t.Fatal(err)
			}
			run := func(code int, endpoint string, env []string, args ...string) string {
				t.Helper()
				env = slices.Concat(os.Environ(), to.env, env)
				if store.names != "" {
					env = append(env, store.names+"="+endpoint)
				}
				cmd := exec.CommandContext(t.Context(), world.stager, args...)
				cmd.Env = append(env, "STAGER_RETRY_FOR=1s")
				out, err := cmd.CombinedOutput()
				if got := cmd.ProcessState.ExitCode(); got != code {
					t.Errorf("%q ended with %d (%v), want %d:\n%s", args, got, err, code, out)
				}
				return string(out)
			}
			at := func(endpoint string) string { return strings.ReplaceAll(store.url, "ENDPOINT", endpoint) }

			if store.name != "http" && store.name != "hf" {
				dir := t.TempDir()
				live.PlantFile(t, filepath.Join(dir, "it"), []byte("content"), time.Now())
				run(0, to.endpoint, nil, "push", dir, at(to.endpoint))
			}
			name, host, path := "store.example.com", "store.example.com", server.Path
			switch store.name {
			case "az": // a name with dots is the account's own, which is not in the path
				account := strings.TrimPrefix(path, "/")
				name, host, path = account+".example.com", account+".example.com", ""
			case "oss": // the bucket is a part of the host
				name, host = "example.com", "test.example.com"
			}
			front, err := servers.NewTLS(strings.TrimSuffix(to.endpoint, server.Path))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(front.Close)
			authority := filepath.Join(t.TempDir(), "ca.pem")
			if err := os.WriteFile(authority, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: front.Certificate().Raw}), 0o600); err != nil {
				t.Fatal(err)
			}
			proxy := servers.NewForward(map[string]string{host + ":80": server.Host, host + ":443": front.Listener.Addr().String()})
			t.Cleanup(proxy.Close)
			plain, secure := "http://"+name+path, "https://"+name+path
			byProxy := []string{"HTTP_PROXY=" + proxy.URL, "HTTPS_PROXY=" + proxy.URL}

			for _, tt := range []struct {
				what, endpoint string
				query          string
				env            []string
			}{
				{"http", plain, "", nil},
				{"https, SSL_CERT_FILE", secure, "", []string{"SSL_CERT_FILE=" + authority}},
				{"https, ?ca-bundle=", secure, "?ca-bundle=" + authority, nil},
			} {
				proxy.Asked()
				if got := run(0, tt.endpoint, slices.Concat(byProxy, tt.env), "cat", at(tt.endpoint)+"it"+tt.query); len(got) != 7 {
					t.Errorf("%s: cat printed %q, want 7 bytes", tt.what, got)
				}
				if got := proxy.Asked(); len(got) != 1 || !strings.HasPrefix(got[0], host) {
					t.Errorf("%s: the proxy was asked for %q, want only %s", tt.what, got, host)
				}
			}

			for _, tt := range []struct {
				what, endpoint string
				env            []string
				code           int
				want           string
				asked          bool
			}{
				{"NO_PROXY", plain, append(byProxy, "NO_PROXY=.example.com"), 69, "no such host", false},
				{"NO_PROXY, https", secure, append(byProxy, "NO_PROXY="+host), 69, "no such host", false},
				{"no authority", secure, byProxy, 78, "certificate is not trusted", true},
			} {
				proxy.Asked()
				got := run(tt.code, tt.endpoint, tt.env, "ls", at(tt.endpoint))
				if !strings.Contains(got, tt.want) {
					t.Errorf("%s: got %q, want %q", tt.what, got, tt.want)
				}
				if asked := proxy.Asked(); (len(asked) > 0) != tt.asked {
					t.Errorf("%s: the proxy was asked for %q, want %v", tt.what, asked, tt.asked)
				}
			}

			proxy.Demand("worker", "open-sesame")
			known := strings.Replace(proxy.URL, "://", "://worker:open-sesame@", 1)
			wrong := strings.Replace(proxy.URL, "://", "://worker:wrong-password@", 1)
			for _, endpoint := range []string{plain, secure} {
				trusted := "SSL_CERT_FILE=" + authority
				run(0, endpoint, []string{"HTTP_PROXY=" + known, "HTTPS_PROXY=" + known, trusted}, "ls", at(endpoint))
				for _, refused := range []string{proxy.URL, wrong} {
					got := run(77, endpoint, []string{"HTTP_PROXY=" + refused, "HTTPS_PROXY=" + refused, trusted}, "ls", at(endpoint))
					if !strings.Contains(got, "proxy demands credentials") || strings.Count(got, "\n") != 1 || strings.Contains(got, "wrong-password") {
						t.Errorf("%s by a proxy that refuses: got %q, want one line that names the proxy, without the password", endpoint, got)
					}
				}
			}

			const nobody = "127.0.0.1:1"
			dead := "http://worker:open-sesame@" + nobody
			for _, endpoint := range []string{plain, secure} {
				got := run(69, endpoint, []string{"HTTP_PROXY=" + dead, "HTTPS_PROXY=" + dead}, "ls", at(endpoint))
				if !strings.Contains(got, nobody) || !strings.Contains(got, "proxy") || strings.Contains(got, "open-sesame") {
					t.Errorf("%s by a proxy that is not there: got %q, want its address, that it is the proxy, and no password", endpoint, got)
				}
			}
		})
	}
}
