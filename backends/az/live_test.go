package az

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/conformance"
	"github.com/stager-dev/stager/backends/conformance/live"
	"github.com/stager-dev/stager/backends/internal/objectstore"
)

// server is an Azurite.
type server struct{ *live.Server }

// need returns the server over HTTP or HTTPS, or ends the test.
func need(t *testing.T, tls bool) server {
	t.Helper()
	return server{live.Start(t, "az", fmt.Sprintf("-tls=%t", tls), "-container=test,other,public", "-public=public")}
}

// directory returns a URL that no other test uses.
func directory(t *testing.T, container string) string {
	return fmt.Sprintf("az://%s/%s-%d/", container, strings.ReplaceAll(t.Name(), "/", "_"), time.Now().UnixNano())
}

func (s server) open(t *testing.T, url string, changed ...string) *backends.Store {
	t.Helper()
	return openWith(t, url, backends.Options{Getenv: s.Getenv(changed...)})
}

func openWith(t *testing.T, url string, opts backends.Options) *backends.Store {
	t.Helper()
	if opts.RetryFor == 0 {
		opts.RetryFor = time.Minute
	}
	store, err := backends.NewRegistry(Schemes()...).Open(t.Context(), url, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	return store
}

// unfit reports the keys that Azure would change.
func unfit(key string) bool { return (&store{}).CheckKey(key) != nil }

func TestContract(t *testing.T) {
	short := conformance.Options{Unfit: unfit, MaxSize: 1 << 20, Without: []string{conformance.AnyOrder}}
	for _, tt := range []struct {
		name string
		tls  bool
		sas  bool
		opts conformance.Options
	}{
		{"key", false, false, conformance.Options{Unfit: unfit, MaxSize: 3*partSize + 1<<20}},
		{"token over https", true, true, short},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := need(t, tt.tls)
			t.Parallel()
			var changed []string
			if tt.sas {
				changed = []string{"AZURE_STORAGE_KEY=", "AZURE_STORAGE_SAS_TOKEN=" + s.Env["AZURITE_SAS"]}
			}
			conformance.Run(t, func(t *testing.T) *backends.Store { return s.open(t, directory(t, "test"), changed...) }, tt.opts)
		})
	}
}

func TestSweepsAndResumesAfterKills(t *testing.T) {
	s := need(t, false)
	url := directory(t, "test")
	conformance.Sweeps(t, s.open(t, url), s.open(t, url))
	conformance.Resumes(t, s.open(t, url), s.open(t, url))
}

func TestFaults(t *testing.T) {
	s := need(t, false)
	conformance.Faulty[*testing.T]{
		Open: func(t *testing.T, opts backends.Options) *backends.Store {
			opts.Getenv = s.Getenv()
			return openWith(t, directory(t, "test"), opts)
		},
		Restart: func(t *testing.T) {
			s.Order(t, "kill")
			s.Order(t, "start")
		},
		Large: objectstore.SmallObject + 1<<20,
	}.Run(t)
}

func TestReplacements(t *testing.T) {
	s := need(t, false)
	url := directory(t, "test")
	conformance.Replacements(t, s.open(t, url), s.open(t, url))
}
