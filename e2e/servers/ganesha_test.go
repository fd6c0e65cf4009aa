package servers

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stager-dev/stager/backends/conformance/live"
)

func TestGaneshaComesBackAndEnds(t *testing.T) {
	g, err := StartGanesha(t.Context(), GaneshaOptions{})
	live.Require(t, "nfs", err)
	if err := os.WriteFile(filepath.Join(g.Dir, "x"), nil, 0o600); err != nil {
		t.Error(err)
	}
	first := g.process.cmd.Process.Pid
	if err := g.Kill(); err != nil {
		t.Error(err)
	}
	if conn, err := net.Dial("tcp", g.Address); err == nil {
		conn.Close()
		t.Error("somebody answers after the server was killed")
	}
	if err := g.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	pids := []int{first, g.process.cmd.Process.Pid}
	if err := g.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	for _, pid := range pids {
		if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
			t.Errorf("process %d is still there: %v", pid, err)
		}
	}
	if _, err := os.Stat(g.Dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("its directory is still there: %v", err)
	}
}
