package servers

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"

	"github.com/stager-dev/stager/e2e/servers/ports"
)

// FakeGCSOptions describe the server to start. The zero value works.
type FakeGCSOptions struct {
	Dir      string    // whose directories are the buckets at the start; "": the bucket "test" alone
	JSON     bool      // it serves objects by the JSON API alone, as it does unless it knows its address
	Progress io.Writer // what builds it; nil: it must have been installed
}

// FakeGCS is a running fake-gcs-server, the emulator of Google Cloud Storage that many tests use. It has
// no XML API for writing, keeps objects in memory, and forgets them when it is killed.
type FakeGCS struct {
	Endpoint string

	daemon
	temp *temp
}

var _ Server = (*FakeGCS)(nil)

func buildFakeGCS(ctx context.Context, progress io.Writer) (string, error) {
	_, here, _, _ := runtime.Caller(0)
	return Build(ctx, filepath.Join(filepath.Dir(here), "fakegcs"), "github.com/fsouza/fake-gcs-server", progress)
}

// StartFakeGCS starts it on a free port of this machine.
func StartFakeGCS(ctx context.Context, opts FakeGCSOptions) (f *FakeGCS, err error) {
	bin, err := buildFakeGCS(ctx, opts.Progress)
	if err != nil {
		return nil, notHere(foreign, err)
	}
	address, err := ports.Free(localhost)
	if err != nil {
		return nil, err
	}
	f = &FakeGCS{Endpoint: "http://" + address}
	defer closeUnlessStarted(&f, &err)
	if opts.Dir == "" {
		if f.temp, err = makeTemp("gcs"); err != nil {
			return f, err
		}
		opts.Dir = f.temp.path
		if err := os.Mkdir(filepath.Join(opts.Dir, "test"), 0o755); err != nil {
			return f, err
		}
	}
	host, port, _ := net.SplitHostPort(address) // from ports.Free
	args := []string{"-scheme=http", "-host=" + host, "-port=" + port, "-backend=memory", "-log-level=error", "-data=" + opts.Dir}
	if !opts.JSON {
		args = append(args, "-public-host="+address)
	}
	f.daemon = daemon{name: "fake-gcs-server at " + address, log: io.Discard, answers: takesConnections(address), command: func() *exec.Cmd {
		cmd := exec.Command(bin, args...)
		cmd.Env = os.Environ()
		return cmd
	}}
	return f, f.Start(ctx)
}

// Env are the variables by which clients find the server.
func (f *FakeGCS) Env() []string { return []string{"STORAGE_EMULATOR_HOST=" + f.Endpoint} }

// Close ends the server.
func (f *FakeGCS) Close() error { return errors.Join(f.Kill(), f.temp.remove()) }
