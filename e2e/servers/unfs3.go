package servers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/stager-dev/stager/e2e/servers/ports"
)

const unfs3Program = "unfsd"

// Unfs3 is UNFS3, an NFS server of version 3 in user space that has no READDIRPLUS. It exports
// the directory Dir by its path.
type Unfs3 struct {
	*Foreign

	MountPort string // of the mount service
}

// unfs3Missing is nil where the server is. Debian has no package of it any more, so that
// nothing here can install it.
func unfs3Missing() error {
	if _, err := find(unfs3Program); err != nil {
		return fmt.Errorf("%w: build UNFS3 from its source and put %s in the PATH", err, unfs3Program)
	}
	return nil
}

// StartUnfs3 starts UNFS3 on free ports, without a port mapper.
func StartUnfs3(ctx context.Context) (*Unfs3, error) {
	if err := errors.Join(unfs3Missing(), needsRoot("nfs")); err != nil { // it becomes the user of each call
		return nil, err
	}
	program, err := find(unfs3Program)
	if err != nil {
		return nil, err
	}
	mount, err := ports.Free(localhost)
	if err != nil {
		return nil, err
	}
	u := new(Unfs3)
	_, u.MountPort, _ = net.SplitHostPort(mount)
	u.Foreign, err = startForeign(ctx, "UNFS3", func(f *Foreign) (*exec.Cmd, error) {
		f.Dir = filepath.Join(f.temp.path, "data")
		f.answers = takesConnections(f.Address)
		exports := filepath.Join(f.temp.path, "exports")
		text := fmt.Sprintf("%s %s(rw,no_root_squash)\n", f.Dir, localhost)
		_, port, _ := net.SplitHostPort(f.Address)
		cmd := exec.Command(program, "-d", "-p", "-t", "-l", localhost, "-n", port, "-m", u.MountPort, "-e", exports, "-i", filepath.Join(f.temp.path, "pid"))
		return cmd, errors.Join(os.Mkdir(f.Dir, 0o755), os.WriteFile(exports, []byte(text), 0o600))
	})
	return u, err
}
