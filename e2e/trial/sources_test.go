package trial

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stager-dev/stager/backends/conformance/live"
	"github.com/stager-dev/stager/e2e/servers"
)

// Two readers take 40 shards through a window over each server that is only read. The server is
// killed, and comes back.
func TestWindowLosesNothingOverFTP(t *testing.T) {
	binary, how := build(t), theOutage()
	for name, opts := range map[string]servers.FTPOptions{
		"vsftpd": {Kind: servers.Vsftpd}, "proftpd-tls": {Kind: servers.ProFTPD, TLS: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, err := servers.StartFTP(t.Context(), opts)
			live.Require(t, "ftp", err)
			t.Cleanup(func() {
				if err := f.Close(); err != nil {
					t.Error(err)
				}
			})
			const count, size = 40, 256 << 10
			digests, err := PackNoise(f.Dir, count, size)
			if err != nil {
				t.Fatal(err)
			}
			diesHalfway(t, binary, store{Server: f, url: f.URL}, shards{count, size, digests}, how.away)
		})
	}
}

// The same over web servers: one with ranges, and one that sends every file as a whole.
func TestWindowLosesNothingOverHTTP(t *testing.T) {
	binary, how := build(t), theOutage()
	for _, kind := range []servers.WebKind{servers.Nginx, servers.PythonWeb} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			const count, size = 40, 256 << 10
			digests, err := PackNoise(dir, count, size)
			if err != nil {
				t.Fatal(err)
			}
			w, err := servers.StartWeb(t.Context(), servers.WebOptions{Kind: kind, Dir: dir})
			live.Require(t, "http", err)
			t.Cleanup(func() {
				if err := w.Close(); err != nil {
					t.Error(err)
				}
			})
			url := func(string) string { return w.URL + "/" }
			diesHalfway(t, binary, store{Server: w, url: url}, shards{count, size, digests}, how.away)
		})
	}
}

// Two readers take 40 shards through a window over a Git server. It is killed while it sends the
// commit, and again when half of the shards are taken.
func TestWindowLosesNothingOverGit(t *testing.T) {
	binary, how := build(t), theOutage()
	g, err := servers.StartGit(t.Context(), servers.GitOptions{TLS: true, Dies: 8 << 10, Away: how.away})
	live.Require(t, "git", err)
	t.Cleanup(func() {
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	})
	const count, size = 40, 256 << 10
	repo := filepath.Join(g.Dir, "shards")
	if err := os.Mkdir(repo, 0o755); err != nil {
		t.Fatal(err)
	}
	digests, err := PackNoise(repo, count, size)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := servers.MakeGit(t.Context(), repo); err != nil {
		t.Fatal(err)
	}
	url := func(string) string { return g.URL("shards@main") + "?ca-bundle=" + g.CA }
	diesHalfway(t, binary, store{Server: g, url: url}, shards{count, size, digests}, how.away)
}

// diesHalfway takes the shards of a server by two readers through a window, and kills it when half of
// them are taken, for so long.
func diesHalfway(t *testing.T, binary string, s store, all shards, away time.Duration) {
	t.Helper()
	_, log := s.window(t, binary, "", all, Config{
		Readers: 2, Pace: 20 * time.Millisecond,
		Halfway: s.dies(t.Context(), away),
	})
	wasAway(t, log)
}
