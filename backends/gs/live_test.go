package gs

import (
	"fmt"
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

// need returns the server over HTTP or HTTPS, with more flags, or ends the test.
func need(t *testing.T, tls bool, more ...string) server {
	t.Helper()
	return server{live.Start(t, "gs", append([]string{fmt.Sprintf("-tls=%t", tls), "-bucket=test,other,public", "-public=public"}, more...)...)}
}

func (s server) control() live.Control { return live.Control("http://" + s.Env["GCE_METADATA_HOST"]) }

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

func TestReplacements(t *testing.T) {
	s := need(t, false)
	url := directory(t, "test")
	conformance.Replacements(t, s.open(t, url), s.open(t, url))
}
