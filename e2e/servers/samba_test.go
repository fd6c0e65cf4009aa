package servers

import (
	"net"
	"os"
	"strings"
	"testing"

	"github.com/stager-dev/stager/backends/conformance/live"
)

func TestSambaEndsWhenItIsClosed(t *testing.T) {
	s, err := StartSamba(t.Context(), SambaOptions{Mode: SambaEncrypted})
	live.Require(t, "smb", err)
	if got := strings.Join(s.Env(), " "); !strings.Contains(got, "SMB_SERVER=127.0.0.1:") || !strings.Contains(got, "SMB_PASSWORD=") {
		t.Errorf("Env = %s, want an address and a password", got)
	}
	reach := func() error {
		conn, err := net.Dial("tcp", s.Address)
		if err == nil {
			err = conn.Close()
		}
		return err
	}
	if err := s.Kill(); err != nil {
		t.Errorf("Kill: %v", err)
	}
	if reach() == nil {
		t.Error("it takes connections after Kill")
	}
	if err := s.Start(t.Context()); err != nil {
		t.Fatalf("starting it again: %v", err)
	}
	if err := reach(); err != nil {
		t.Errorf("started again at the same address: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	if reach() == nil {
		t.Error("it takes connections after Close")
	}
	if _, err := os.Stat(s.temp.path); err == nil {
		t.Errorf("%s is left", s.temp.path)
	}
}
