package gs

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/conformance"
	"github.com/stager-dev/stager/backends/conformance/live"
)

// server is the fake, which checks every token, precondition and checksum.
type server struct{ *live.Server }

// need returns the server over HTTP or HTTPS, or ends the test.
func need(t *testing.T, tls bool) server {
	t.Helper()
	return server{live.Start(t, "gs", fmt.Sprintf("-tls=%t", tls), "-bucket=test,other,public", "-public=public")}
}

// control sends a request to the control API of the server and parses the response into out, if not
// nil.
func (s server) control(t *testing.T, method, path string, out any) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, "http://"+s.Env["GCE_METADATA_HOST"]+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		t.Fatalf("%s %s: %s", method, path, res.Status)
	}
	if out != nil {
		if err := json.NewDecoder(res.Body).Decode(out); err != nil {
			t.Fatal(err)
		}
	}
}

// fail makes n requests for keys that contain key fail.
func (s server) fail(t *testing.T, kind, key string, n int, more ...string) {
	t.Helper()
	q := url.Values{"kind": {kind}, "key": {key}, "times": {fmt.Sprint(n)}}
	for i := 0; i < len(more); i += 2 {
		q.Set(more[i], more[i+1])
	}
	s.control(t, http.MethodPost, "/faults?"+q.Encode(), nil)
}

// directory returns a URL that no other test uses.
func directory(t *testing.T, bucket string) string {
	return fmt.Sprintf("gs://%s/%s-%d/", bucket, strings.ReplaceAll(t.Name(), "/", "_"), time.Now().UnixNano())
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

// unfit reports keys that Google does not allow.
func unfit(key string) bool { return !utf8.ValidString(key) || strings.ContainsAny(key, "\r\n") }

func TestContract(t *testing.T) {
	short := conformance.Options{MaxSize: 1 << 20, Without: []string{conformance.AnyOrder}, Unfit: unfit}
	identity := "GOOGLE_APPLICATION_CREDENTIALS=identity"
	for _, tt := range []struct {
		name    string
		tls     bool
		changed []string
		opts    conformance.Options
	}{
		{"service account", false, nil, conformance.Options{MaxSize: 3*partSize + 1<<20, Unfit: unfit}},
		{"workload identity over https", true, []string{identity}, short},
		{"metadata server", false, []string{"GOOGLE_APPLICATION_CREDENTIALS="}, short},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := need(t, tt.tls)
			t.Parallel()
			for i, c := range tt.changed {
				if c == identity {
					tt.changed[i] = "GOOGLE_APPLICATION_CREDENTIALS=" + s.Env["STAGER_TEST_GS_IDENTITY"]
				}
			}
			conformance.Run(t, func(t *testing.T) *backends.Store {
				return s.open(t, directory(t, "test"), tt.changed...)
			}, tt.opts)
		})
	}
}

func TestSweepsAndResumesAfterKills(t *testing.T) {
	s := need(t, false)
	url := directory(t, "test")
	conformance.Sweeps(t, s.open(t, url), s.open(t, url))
	conformance.Resumes(t, s.open(t, url), s.open(t, url))
}
