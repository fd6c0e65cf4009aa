package trial

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stager-dev/stager/backends/conformance/hub"
	"github.com/stager-dev/stager/backends/conformance/live"
	"github.com/stager-dev/stager/e2e/servers"
)

// sources are servers of the schemes beside the first five protocols. start serves the shards of a
// directory, unless they are pushed to the server.
var sources = []struct {
	name, needs string
	size        int // of a shard
	pushed      bool
	start       func(t *testing.T, packed string, away time.Duration) (store, error)
}{
	{name: "http with ranges", needs: "http", size: 256 << 10, start: serveWeb(servers.Nginx)},
	{name: "http without ranges", needs: "http", size: 256 << 10, start: serveWeb(servers.PythonWeb)},
	{name: "hf", needs: "hf", size: 256 << 10, start: serveHub},
	{name: "hf with large files", needs: "hf", size: 1 << 20, start: serveHub}, // from another host
	{name: "gs", needs: "gs", size: 256 << 10, pushed: true, start: empty(startGS)},
	{name: "az", needs: "az", size: 256 << 10, pushed: true, start: empty(startAzurite)},
	{name: "sftp", needs: "sftp", size: 256 << 10, pushed: true, start: empty(startSSHD)},
	{name: "ftp", needs: "ftp", size: 256 << 10, start: serveFTP(servers.FTPOptions{Kind: servers.Vsftpd})},
	{name: "ftp with TLS", needs: "ftp", size: 256 << 10, start: serveFTP(servers.FTPOptions{Kind: servers.ProFTPD, TLS: true})},
	{name: "git", needs: "git", size: 256 << 10, start: serveGit},
}

// Two readers take 40 shards through a window over a server of each scheme. It is killed when half
// of them are taken, and comes back at its address: each shard is acknowledged once.
func TestWindowLosesNothingOverEachScheme(t *testing.T) {
	binary, how := build(t), theOutage()
	for _, source := range sources {
		t.Run(source.name, func(t *testing.T) {
			t.Parallel()
			const count = 40
			packed := t.TempDir()
			digests, err := PackNoise(packed, count, source.size)
			if err != nil {
				t.Fatal(err)
			}
			s, err := source.start(t, packed, how.away)
			live.Require(t, source.needs, err)
			t.Cleanup(func() {
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			})
			if source.pushed {
				s.push(t, binary, packed, "noise")
			}
			_, log := s.window(t, binary, "noise", shards{count, source.size, digests}, Config{
				Readers: 2, Pace: 20 * time.Millisecond,
				Halfway: s.dies(t.Context(), how.away),
			})
			wasAway(t, log)
		})
	}
}

// empty starts a store that shards are pushed to.
func empty(start func(*testing.T) (store, error)) func(*testing.T, string, time.Duration) (store, error) {
	return func(t *testing.T, _ string, _ time.Duration) (store, error) { return start(t) }
}

func serveWeb(kind servers.WebKind) func(*testing.T, string, time.Duration) (store, error) {
	return func(t *testing.T, packed string, _ time.Duration) (store, error) {
		w, err := servers.StartWeb(t.Context(), servers.WebOptions{Kind: kind, Dir: packed})
		if err != nil {
			return store{}, err
		}
		return store{Server: w, url: func(string) string { return w.URL + "/" }}, nil
	}
}

func serveFTP(opts servers.FTPOptions) func(*testing.T, string, time.Duration) (store, error) {
	return func(t *testing.T, packed string, _ time.Duration) (store, error) {
		f, err := servers.StartFTP(t.Context(), opts)
		if err != nil {
			return store{}, err
		}
		return store{Server: f, url: func(dir string) string { return f.URL(dir + "/") }}, os.CopyFS(filepath.Join(f.Dir, "noise"), os.DirFS(packed))
	}
}

// serveGit starts a server that dies a first time while it sends the commit.
func serveGit(t *testing.T, packed string, away time.Duration) (store, error) {
	g, err := servers.StartGit(t.Context(), servers.GitOptions{TLS: true, Dies: 8 << 10, Away: away})
	if err != nil {
		return store{}, err
	}
	repo := filepath.Join(g.Dir, "shards")
	err = os.CopyFS(repo, os.DirFS(packed))
	if err == nil {
		_, err = servers.MakeGit(t.Context(), repo)
	}
	return store{Server: g, url: func(string) string { return g.URL("shards@main") + "?ca-bundle=" + g.CA }}, err
}

// hubServer is the fake of the Hub as a server that can be killed.
type hubServer struct{ *hub.Hub }

var _ servers.Server = hubServer{}

// Env are the variables by which stager finds it.
func (s hubServer) Env() []string { return []string{"HF_ENDPOINT=" + s.URL, "HF_TOKEN=" + hub.Token} }

// Start starts it again.
func (s hubServer) Start(ctx context.Context) error { return s.Restart(ctx) }

// Freeze is not possible.
func (hubServer) Freeze() error { return errors.ErrUnsupported }

// Thaw is not possible.
func (hubServer) Thaw() error { return errors.ErrUnsupported }

// Close does nothing: the fake ends with its test.
func (hubServer) Close() error { return nil }

func serveHub(t *testing.T, packed string, _ time.Duration) (store, error) {
	h := hub.Start(t, make(map[string]int64))
	entries, err := os.ReadDir(packed)
	for _, e := range entries {
		text, rerr := os.ReadFile(filepath.Join(packed, e.Name()))
		h.Add(e.Name(), string(text))
		err = errors.Join(err, rerr)
	}
	return store{Server: hubServer{h}, url: func(string) string { return "hf://datasets/org/name@main/" }}, err
}
