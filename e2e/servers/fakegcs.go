package servers

import (
	"context"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"

	"github.com/stager-dev/stager/e2e/servers/ports"
)

// FakeGCS is a running fake-gcs-server, the emulator of Google Cloud Storage that many tests use. It
// has no XML API for writing, so stager can only read from it.
type FakeGCS struct {
	Endpoint string

	daemon
}

// StartFakeGCS starts it with the objects of a directory, in which each directory is a bucket.
func StartFakeGCS(ctx context.Context, dir string, progress io.Writer) (*FakeGCS, error) {
	_, here, _, _ := runtime.Caller(0)
	bin, err := Build(ctx, filepath.Join(filepath.Dir(here), "fakegcs"), "github.com/fsouza/fake-gcs-server", progress)
	if err != nil {
		return nil, err
	}
	address, err := ports.Free(localhost)
	if err != nil {
		return nil, err
	}
	host, port, _ := net.SplitHostPort(address) // from ports.Free
	f := &FakeGCS{Endpoint: "http://" + address}
	f.daemon = daemon{name: "fake-gcs-server at " + address, log: io.Discard, answers: takesConnections(address), command: func() *exec.Cmd {
		cmd := exec.Command(bin, "-scheme=http", "-host="+host, "-port="+port, "-public-host="+address, "-backend=memory", "-log-level=error", "-data="+dir)
		cmd.Env = os.Environ()
		return cmd
	}}
	return f, f.Start(ctx)
}

// Env are the variables by which clients find the server.
func (f *FakeGCS) Env() []string { return []string{"STORAGE_EMULATOR_HOST=" + f.Endpoint} }

// Close ends the server.
func (f *FakeGCS) Close() error { return f.Kill() }
