package sftp

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/conformance"
	"github.com/stager-dev/stager/backends/conformance/live"
)

func need(t *testing.T) *live.Server {
	t.Helper()
	return live.Start(t, "sftp")
}

// at returns the URL of a directory of the server. params are like "?conns=1".
func at(s *live.Server, path, params string) string {
	return "sftp://" + s.Env["SFTP_SERVER"] + s.Env["SFTP_DIR"] + "/" + path + params
}

// openLive opens a directory of the real server.
func openLive(t *testing.T, path, params string) *backends.Store {
	t.Helper()
	s := need(t)
	store, err := backends.NewRegistry(Scheme()).Open(t.Context(), at(s, path, params), backends.Options{Getenv: s.Getenv(), RetryFor: 20 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	return store
}

// A server without the extensions of OpenSSH takes writes, but does not promise all that one with them
// does: what is left out here is what its capabilities deny.
func TestContractWithoutExtensions(t *testing.T) {
	s := live.Start(t, "sftp", "-plain")
	t.Parallel()
	conformance.Run(t, func(t *testing.T) *backends.Store {
		t.Helper()
		store, err := backends.NewRegistry(Scheme()).Open(t.Context(), at(s, "contract-plain", ""), backends.Options{Getenv: s.Getenv(), RetryFor: 20 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { store.Close() })
		if c := store.Capabilities(); c.AtomicReplace || c.ConditionalCreate || c.Guard != backends.GuardNone {
			t.Fatalf("got the capabilities %+v, want those of a server without extensions", c)
		}
		return store
	}, conformance.Options{MaxSize: 25 << 20, Many: 50, Without: []string{conformance.AtOnce, conformance.OneWinner}})
}

func TestSweepsAfterKillsWithoutExtensions(t *testing.T) {
	s := live.Start(t, "sftp", "-plain")
	open := func() *backends.Store {
		store, err := backends.NewRegistry(Scheme()).Open(t.Context(), at(s, "sweeps", ""), backends.Options{Getenv: s.Getenv()})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { store.Close() })
		return store
	}
	conformance.Sweeps(t, open(), open())
}

func TestContract(t *testing.T) {
	for _, tt := range []struct {
		name, params string
		opts         conformance.Options
	}{
		{"four connections", "", conformance.Options{MaxSize: 25 << 20}},
		{"one connection", "?conns=1", conformance.Options{MaxSize: 1 << 20, Many: 50, Without: []string{conformance.AnyOrder}}},
	} {
		if testing.Short() && tt.params != "" {
			continue
		}
		t.Run(tt.name, func(t *testing.T) {
			need(t)
			t.Parallel()
			conformance.Run(t, func(t *testing.T) *backends.Store {
				return openLive(t, "contract-"+strings.ReplaceAll(tt.name, " ", "-"), tt.params)
			}, tt.opts)
		})
	}
}

func TestSweepsAfterKills(t *testing.T) {
	conformance.Sweeps(t, openLive(t, "sweeps", ""), openLive(t, "sweeps", ""))
}

func TestListNamesLinksToDirectoriesAbove(t *testing.T) {
	store := openLive(t, "above", "")
	if _, err := store.PutBytes(t.Context(), "a/b/k", nil, backends.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("..", filepath.Join(need(t).Env["SFTP_DIR"], "above", "a", "b", "up")); err != nil {
		t.Fatal(err)
	}
	var got []string
	ctx := backends.WithSkipped(t.Context(), func(s backends.Skipped) { got = append(got, s.Key+": "+s.What) })
	for obj, err := range store.List(ctx, "") {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, obj.Key)
	}
	if want := []string{"a/b/k", "a/b/up/: a link to a directory above it"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestReplacements(t *testing.T) {
	conformance.Replacements(t, openLive(t, "replaced", ""), openLive(t, "replaced", ""))
}
