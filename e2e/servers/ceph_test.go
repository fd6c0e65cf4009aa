package servers

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stager-dev/stager/backends/conformance/live"
)

func TestCephKeepsObjectsUntilItIsClosed(t *testing.T) {
	c, err := StartCeph(t.Context(), CephOptions{TLS: true, Buckets: []string{"one"}, Versions: []string{"two"}})
	live.Require(t, "s3", err)
	for _, key := range []string{"/one/it is 100% #1", "/two/k"} {
		if _, err := c.ask(t.Context(), http.MethodPut, key, nil, "kept"); err != nil {
			t.Error(err)
		}
	}
	pids := []int{c.process.cmd.Process.Pid}
	if err := errors.Join(c.Kill(), c.Start(t.Context())); err != nil {
		t.Errorf("a gateway that is killed and started: %v", err)
	}
	to := t.TempDir()
	if err := c.Download(t.Context(), "one", "it ", to); err != nil {
		t.Error(err)
	}
	if got, err := os.ReadFile(filepath.Join(to, "is 100% #1")); string(got) != "kept" {
		t.Errorf("the object has %q, %v; want it as it was", got, err)
	}
	for _, p := range append(c.behind, c.process) {
		pids = append(pids, p.cmd.Process.Pid)
	}
	if err := c.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	for _, pid := range pids {
		if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
			t.Errorf("process %d is still there: %v", pid, err)
		}
	}
	if _, err := os.Stat(c.temp.path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("its directory is left: %v", err)
	}
}
