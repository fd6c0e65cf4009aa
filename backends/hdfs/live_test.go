package hdfs

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/conformance"
	"github.com/stager-dev/stager/backends/conformance/live"
)

func need(t *testing.T) *live.Server {
	t.Helper()
	return live.Start(t, "hdfs", "-keys=stager")
}

// shell runs a class of the Hadoop command line, such as that of "hdfs dfs", and returns its
// output.
func shell(t *testing.T, s *live.Server, class string, args ...string) string {
	t.Helper()
	return s.Run(t, "java", append([]string{"-Xmx256m", "-cp", s.Env["HADOOP_CLASSPATH"], class}, args...)...)
}

const fsShell = "org.apache.hadoop.fs.FsShell"

// openLive opens a directory of the real server with a changed environment and short timeouts.
func openLive(t *testing.T, path string, changed ...string) *backends.Store {
	t.Helper()
	return openAt(t, need(t), path, changed...)
}

func openAt(t *testing.T, server *live.Server, path string, changed ...string) *backends.Store {
	t.Helper()
	s, err := backends.NewRegistry(Scheme()).Open(t.Context(), "hdfs://"+path, backends.Options{
		RetryFor: 10 * time.Second,
		Getenv:   server.Getenv(changed...),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// directory returns a directory for this test alone.
func directory(t *testing.T) string {
	return fmt.Sprintf("/%s-%d/", strings.NewReplacer("/", "_", ":", "_").Replace(t.Name()), time.Now().UnixNano())
}

// noParts: HDFS writes a file only sequentially.
var noParts = []string{conformance.AnyOrder}

func unfit(key string) bool { return strings.Contains(key, ":") }

func TestContract(t *testing.T) {
	need(t)
	conformance.Run(t, func(t *testing.T) *backends.Store {
		return openLive(t, directory(t))
	}, conformance.Options{Unfit: unfit, Without: noParts})
}

func TestSweepsAfterKills(t *testing.T) {
	need(t)
	path := directory(t)
	conformance.Sweeps(t, openLive(t, path), openLive(t, path))
}

// A session of a listing renewed a lease every second, which loads the NameNode.
func TestSessionRenewsLeasesForDataOnly(t *testing.T) {
	s := openLive(t, directory(t))
	clients := func() (n int) {
		b := inner(s)
		b.pool.mu.Lock()
		defer b.pool.mu.Unlock()
		for _, idle := range b.pool.idle {
			if idle.client != nil {
				n++
			}
		}
		return n
	}
	if got := keys(t, s); len(got) > 0 {
		t.Fatalf("list = %q, want nothing", got)
	}
	if err := s.Delete(t.Context(), "missing"); err != nil {
		t.Fatal(err)
	}
	if n := clients(); n > 0 {
		t.Errorf("%d sessions have a client of the library, want none", n)
	}
	if _, err := s.PutBytes(t.Context(), "k", []byte("x"), backends.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if n := clients(); n == 0 {
		t.Error("no session has a client of the library after a write")
	}
}

func TestReplacements(t *testing.T) {
	need(t)
	path := directory(t)
	conformance.Replacements(t, openLive(t, path), openLive(t, path))
}
