package servers

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/stager-dev/stager/e2e/servers/ports"
)

// GaneshaOptions say what NFS server is wanted. The zero value works.
type GaneshaOptions struct {
	Dir string    // where its files lie; "": a directory that Close removes
	Log io.Writer // what it says

	// Lease is how long a client of version 4.1 may be silent; 0: a minute.
	Lease time.Duration
	// Grace is how long a server that was started lets none but its former clients
	// open files; 0: not at all.
	Grace time.Duration
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

	daemon
	config string
	mapper *portMapper
	temp   *temp
}

// ganeshaConfig is the server's configuration: it keeps what it must remember over a
// restart in a directory of its own, and makes clients wait after one if that is wanted.
const ganeshaConfig = `
NFS_CORE_PARAM { NFS_Port = %s; MNT_Port = %s; Bind_addr = 127.0.0.1; Protocols = 3, 4;
  Enable_NLM = false; Enable_RQUOTA = false; Enable_UDP = false; mount_path_pseudo = true; }
NFSv4 { RecoveryBackend = fs; RecoveryRoot = "%s"; Minor_Versions = 1; Lease_Lifetime = %d; %s }
EXPORT_DEFAULTS { Squash = No_Root_Squash; SecType = sys; Protocols = 3, 4; Transports = TCP; }
EXPORT { Export_Id = 1; Path = "%[6]s"; Pseudo = /data; Access_Type = RW; FSAL { Name = VFS; } }
EXPORT { Export_Id = 2; Path = "%[6]s"; Pseudo = /readonly; Tag = ro; Access_Type = RO; FSAL { Name = VFS; } }
EXPORT { Export_Id = 3; Path = "%[6]s"; Pseudo = /secure; Tag = sec; Access_Type = RW; PrivilegedPort = true; FSAL { Name = VFS; } }
EXPORT { Export_Id = 4; Path = "%[6]s"; Pseudo = /old; Tag = old; Access_Type = RW; Protocols = 3; FSAL { Name = VFS; } }
LOG { Default_Log_Level = EVENT; }
`

// StartGanesha starts NFS-Ganesha on free ports of this machine and returns when it
// answers. It needs root, and what [Install] installs.
func StartGanesha(ctx context.Context, opts GaneshaOptions) (g *Ganesha, err error) {
	if err := ganeshaMissing(); err != nil {
		return nil, notHere("nfs", err)
	}
	if err := needsRoot("nfs"); err != nil { // it opens files by their handles
		return nil, err
	}
	g = &Ganesha{Dir: opts.Dir}
	defer closeUnlessStarted(&g, &err)
	if g.temp, err = makeTemp("nfs"); err != nil {
		return g, err
	}
	if g.Dir == "" {
		g.Dir = filepath.Join(g.temp.path, "files")
	}
	if err := os.MkdirAll(filepath.Join(g.temp.path, "recovery"), 0o755); err != nil {
		return g, err
	}
	if err := os.MkdirAll(g.Dir, 0o755); err != nil {
		return g, err
	}
	if g.Address, err = ports.Free(localhost); err != nil {
		return g, err
	}
	mount, err := ports.Free(localhost)
	if err != nil {
		return g, err
	}
	_, port, _ := net.SplitHostPort(g.Address)
	_, g.MountPort, _ = net.SplitHostPort(mount)
	g.config = filepath.Join(g.temp.path, "ganesha.conf")
	grace := "Graceless = true;"
	if opts.Grace > 0 {
		grace = fmt.Sprintf("Grace_Period = %d;", int(opts.Grace.Seconds()))
	}
	lease := int(cmp.Or(opts.Lease, time.Minute).Seconds())
	text := fmt.Sprintf(ganeshaConfig, port, g.MountPort, filepath.Join(g.temp.path, "recovery"), lease, grace, g.Dir)
	if err := os.WriteFile(g.config, []byte(text), 0o600); err != nil {
		return g, err
	}
	g.daemon = daemon{name: "NFS-Ganesha at " + g.Address, command: g.command, answers: g.answers, log: opts.Log}
	return g, g.Start(ctx)
}

// Start starts the server as daemon does. There is a port mapper until the server has registered
// version 3, or else it would end at once.
func (g *Ganesha) Start(ctx context.Context) (err error) {
	unlock, err := lockPortMapper()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unlock()) }()
	if g.mapper == nil || len(g.mapper.listeners) == 0 { // that of another process may have ended
		if g.mapper, err = startPortMapper(); err != nil {
			return err
		}
	}
	return g.daemon.Start(ctx)
}

// answers is nil when the server has answered a call that does nothing. It takes connections before it
// registers, and calls after that.
func (g *Ganesha) answers(ctx context.Context) error {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", g.Address)
	if err != nil {
		return err
	}
	defer conn.Close() // nothing more is asked
	if err := conn.SetDeadline(time.Now().Add(time.Second)); err != nil {
		return err
	}
	var call []byte
	for _, word := range []uint32{1<<31 | 40, 1, 0, 2, nfsProgram, nfsVersion3, 0, 0, 0, 0, 0} { // no credential, no verifier
		call = binary.BigEndian.AppendUint32(call, word)
	}
	if _, err := conn.Write(call); err != nil {
		return err
	}
	_, err = readRecord(conn)
	return err
}

func (g *Ganesha) command() *exec.Cmd {
	ganesha, _ := find(ganeshaProgram) // ganeshaMissing found it
	cmd := exec.Command(ganesha, "-F", "-L", "STDOUT", "-f", g.config,
		"-p", filepath.Join(g.temp.path, "pid"), "-N", "NIV_EVENT")
	cmd.Dir = g.temp.path
	return cmd
}

const ganeshaProgram = "ganesha.nfsd"

// ganeshaMissing is nil when all is there that a server needs.
func ganeshaMissing() error {
	if _, err := find(ganeshaProgram); err != nil {
		return err
	}
	if plugin, _ := filepath.Glob("/usr/lib/*/ganesha/libfsalvfs.so"); len(plugin) == 0 { // the pattern is good
		return errors.New("there is no VFS plugin of NFS-Ganesha on this machine")
	}
	return nil
}

// Env are the variables by which tests find the server.
func (g *Ganesha) Env() []string {
	return []string{"NFS_SERVER=" + g.Address, "NFS_MOUNT_PORT=" + g.MountPort, "NFS_DIR=" + g.Dir}
}

// Close ends the server.
func (g *Ganesha) Close() error {
	errs := []error{g.stop()}
	if g.mapper != nil {
		errs = append(errs, g.mapper.close())
	}
	return errors.Join(append(errs, g.temp.remove())...)
}
