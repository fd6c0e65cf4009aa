package stager

import (
	"bytes"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stager-dev/stager/stager/plan"
)

// A daemon that serves nobody any more reports that at error, ends, and ends with the error.
func TestServeFailureIsReported(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	socket, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	if err := socket.Close(); err != nil { // it accepts nothing
		t.Fatal(err)
	}
	var log bytes.Buffer
	d := New(Config{Plan: &plan.StagePlan{}, Socket: path, Log: slog.New(slog.NewTextHandler(&log, nil))})
	s, err := d.serve(socket)
	if err != nil {
		t.Fatal(err)
	}
	<-d.drain
	if err := s.close(); err == nil || !strings.Contains(err.Error(), "closed") {
		t.Errorf("got %v of the API server, want the error of its listener", err)
	}
	if words := `level=ERROR msg="API server failed, exiting"`; !strings.Contains(log.String(), words) {
		t.Errorf("got the log %q, want %s", log.String(), words)
	}
}
