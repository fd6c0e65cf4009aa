package servers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"
)

// GaneshaOptions say what NFS server is wanted. The zero value works.
type GaneshaOptions struct {
	Dir string    // where its files lie; "": a folder that Close removes
	Log io.Writer // what it says, and what is being installed; nil: the latter on stderr
}

// Ganesha is an NFS server in user space, with versions 4.1 and 3. It exports
//
//   - /data: read and write, root is not squashed
//   - /readonly: the same files, to read
//   - /secure: the same files, for callers from ports below 1024
//   - /old: the same files, by version 3 alone
type Ganesha struct {
	Address   string // host and port of NFS
	MountPort string // of version 3's mount service
	Dir       string // where the files lie

	config  string
	log     io.Writer
	mapper  *portMapper
	process *process
	temp    string // removed by Close
}

// ganeshaConfig is the server's configuration: it keeps what it must remember over a
// restart in a folder of its own, and does not make clients wait after one.
const ganeshaConfig = `
NFS_CORE_PARAM { NFS_Port = %s; MNT_Port = %s; Bind_addr = 127.0.0.1; Protocols = 3, 4;
  Enable_NLM = false; Enable_RQUOTA = false; Enable_UDP = false; mount_path_pseudo = true; }
NFSv4 { Graceless = true; RecoveryBackend = fs; RecoveryRoot = "%s"; Minor_Versions = 1; Lease_Lifetime = 60; }
EXPORT_DEFAULTS { Squash = No_Root_Squash; SecType = sys; Protocols = 3, 4; Transports = TCP; }
EXPORT { Export_Id = 1; Path = "%[4]s/files"; Pseudo = /data; Access_Type = RW; FSAL { Name = VFS; } }
EXPORT { Export_Id = 2; Path = "%[4]s/files"; Pseudo = /readonly; Tag = ro; Access_Type = RO; FSAL { Name = VFS; } }
EXPORT { Export_Id = 3; Path = "%[4]s/files"; Pseudo = /secure; Tag = sec; Access_Type = RW; PrivilegedPort = true; FSAL { Name = VFS; } }
EXPORT { Export_Id = 4; Path = "%[4]s/files"; Pseudo = /old; Tag = old; Access_Type = RW; Protocols = 3; FSAL { Name = VFS; } }
LOG { Default_Log_Level = EVENT; }
`

// StartGanesha starts NFS-Ganesha on free ports of this machine and returns when it
// answers. It needs root, and installs Debian's packages if they are missing.
func StartGanesha(ctx context.Context, opts GaneshaOptions) (g *Ganesha, err error) {
	progress, log := opts.Log, opts.Log
	if opts.Log == nil {
		progress, log = os.Stderr, io.Discard
	}
	if os.Getuid() != 0 {
		return nil, errors.New("NFS-Ganesha opens files by their handles, which root alone may")
	}
	if err := installGanesha(ctx, progress); err != nil {
		return nil, err
	}
	g = &Ganesha{log: log, Dir: opts.Dir}
	defer func() {
		if err != nil {
			err = errors.Join(err, g.Close())
			g = nil
		}
	}()
	if g.temp, err = os.MkdirTemp("", "stager-nfs-"); err != nil {
		return g, err
	}
	if g.Dir == "" {
		g.Dir = filepath.Join(g.temp, "files")
	}
	if err := os.MkdirAll(filepath.Join(g.temp, "recovery"), 0o755); err != nil {
		return g, err
	}
	if err := os.MkdirAll(g.Dir, 0o755); err != nil {
		return g, err
	}
	if opts.Dir != "" {
		if err := os.Symlink(opts.Dir, filepath.Join(g.temp, "files")); err != nil {
			return g, err
		}
	}
	if g.Address, err = freeAddress(); err != nil {
		return g, err
	}
	mount, err := freeAddress()
	if err != nil {
		return g, err
	}
	_, port, _ := net.SplitHostPort(g.Address)
	_, g.MountPort, _ = net.SplitHostPort(mount)
	g.config = filepath.Join(g.temp, "ganesha.conf")
	text := fmt.Sprintf(ganeshaConfig, port, g.MountPort, filepath.Join(g.temp, "recovery"), g.temp)
	if err := os.WriteFile(g.config, []byte(text), 0o600); err != nil {
		return g, err
	}
	return g, g.Start(ctx)
}

// Start starts the server again after Kill.
func (g *Ganesha) Start(ctx context.Context) error {
	// It ends at once when it cannot register version 3.
	if err := g.register(); err != nil {
		return err
	}
	cmd := exec.Command(ganeshaBinary, "-F", "-L", "STDOUT", "-f", g.config,
		"-p", filepath.Join(g.temp, "pid"), "-N", "NIV_EVENT")
	cmd.Dir = g.temp
	var err error
	if g.process, err = start(cmd, g.log); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, startWithin)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		var d net.Dialer
		conn, err := d.DialContext(ctx, "tcp", g.Address)
		if err == nil {
			return conn.Close()
		}
		select {
		case <-g.process.done:
			return fmt.Errorf("NFS-Ganesha ended at once: %w", g.process.err)
		case <-ctx.Done():
			return fmt.Errorf("NFS-Ganesha at %s does not answer: %w", g.Address, err)
		case <-tick.C:
		}
	}
}

// register makes sure that there is a port mapper.
func (g *Ganesha) register() error {
	if g.mapper != nil {
		return nil
	}
	var err error
	g.mapper, err = startPortMapper()
	return err
}

// Kill ends the server as a crash would.
func (g *Ganesha) Kill() error {
	if err := g.process.cmd.Process.Kill(); err != nil {
		return err
	}
	<-g.process.done
	return nil
}

const ganeshaBinary = "/usr/bin/ganesha.nfsd"

// installGanesha installs Debian's packages if they are missing, and says so.
func installGanesha(ctx context.Context, progress io.Writer) error {
	plugin, _ := filepath.Glob("/usr/lib/*/ganesha/libfsalvfs.so") // the pattern is good
	if _, err := os.Stat(ganeshaBinary); err == nil && len(plugin) > 0 {
		return nil
	}
	if _, err := exec.LookPath("apt-get"); err != nil {
		return errors.New("NFS-Ganesha is not installed, and this is no Debian to install it on")
	}
	fmt.Fprintln(progress, "installing nfs-ganesha and nfs-ganesha-vfs by apt-get")
	install := []string{"install", "-y", "-qq", "--no-install-recommends", "nfs-ganesha", "nfs-ganesha-vfs"}
	var err error
	for _, args := range [][]string{install, {"update", "-qq"}, install} {
		cmd := exec.CommandContext(ctx, "apt-get", args...)
		cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
		var out []byte
		if out, err = cmd.CombinedOutput(); err != nil {
			err = fmt.Errorf("apt-get %v: %w\n%s", args, err, out)
		} else if args[0] == "install" {
			return nil
		}
	}
	return err
}

// Env are the variables by which tests find the server.
func (g *Ganesha) Env() []string {
	return []string{
		"NFS_SERVER=" + g.Address, "NFS_MOUNT_PORT=" + g.MountPort, "NFS_DIR=" + g.Dir,
		"NFS_PID=" + strconv.Itoa(g.process.cmd.Process.Pid),
	}
}

// Close ends the server.
func (g *Ganesha) Close() error {
	var errs []error
	if g.process != nil {
		errs = append(errs, g.process.stop())
	}
	if g.mapper != nil {
		errs = append(errs, g.mapper.close())
	}
	if g.temp != "" {
		errs = append(errs, os.RemoveAll(g.temp))
	}
	return errors.Join(errs...)
}
