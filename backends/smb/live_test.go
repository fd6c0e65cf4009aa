package smb

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/conformance"
	"github.com/stager-dev/stager/backends/conformance/live"
)

// need returns the server of a mode. The modes differ in what they require of clients.
func need(t *testing.T, mode string) *live.Server {
	t.Helper()
	return live.Start(t, "smb", "-mode="+mode)
}

// openLive opens a path of the server, such as "data/directory/?signing=off".
func openLive(t *testing.T, s *live.Server, path string, changed ...string) *backends.Store {
	t.Helper()
	store, err := backends.NewRegistry(Scheme()).Open(t.Context(), "smb://"+s.Env["SMB_SERVER"]+"/"+path,
		backends.Options{Getenv: s.Getenv(changed...), RetryFor: 20 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	return store
}

func TestContract(t *testing.T) {
	whole := conformance.Options{MaxSize: 25 << 20} // a little over three parts: signing is slow under the race detector
	short := conformance.Options{MaxSize: 1 << 20, Many: 50, Without: []string{conformance.AnyOrder}}
	for _, tt := range []struct {
		name, mode, params string
		opts               conformance.Options
	}{
		{"plain", "plain", "?signing=off", whole},
		{"signed", "signed", "", whole},
		{"encrypted", "encrypted", "", whole},
		{"names as they are", "plain", "?mapchars=off&signing=off", short},
	} {
		if testing.Short() && tt.mode == "signed" {
			continue // other tests sign, too
		}
		t.Run(tt.name, func(t *testing.T) {
			s := need(t, tt.mode)
			t.Parallel()
			mapped := !strings.Contains(tt.params, "mapchars=off")
			tt.opts.Unfit = func(key string) bool { return checkKey("create", key, mapped) != nil }
			conformance.Run(t, func(t *testing.T) *backends.Store {
				return openLive(t, s, fmt.Sprintf("data/%s/%s", strings.ReplaceAll(tt.name, " ", "-"), tt.params))
			}, tt.opts)
		})
	}
}

func TestSweepsAfterKills(t *testing.T) {
	for _, mode := range []string{"plain", "encrypted"} {
		s := need(t, mode)
		conformance.Sweeps(t, openLive(t, s, "data/sweeps/"), openLive(t, s, "data/sweeps/"))
	}
}

func TestReplacements(t *testing.T) {
	eachMode(t, func(t *testing.T, s *live.Server) {
		conformance.Replacements(t, openLive(t, s, "data/replaced/"), openLive(t, s, "data/replaced/"))
	})
}
