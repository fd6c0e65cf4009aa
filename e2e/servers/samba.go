package servers

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// SambaMode is what the server demands of those who connect.
type SambaMode string

// The three that differ for a client.
const (
	SambaPlain     SambaMode = "plain"     // signs if asked to
	SambaSigned    SambaMode = "signed"    // server signing = mandatory
	SambaEncrypted SambaMode = "encrypted" // server smb encrypt = required, SMB 3 or nothing
)

// SambaOptions say what server is wanted. The zero value works.
type SambaOptions struct {
	Mode SambaMode // "": SambaPlain
	Log  io.Writer // what it says, and what is being installed; nil: the latter on stderr
}

// Samba is a running file server with three shares over one folder: "data",
// "readonly", and "full", which holds 4 MiB where such a thing can be made.
type Samba struct {
	Address  string // host:port
	User     string
	Password string
	Dir      string // what the shares show
	Full     bool   // whether there is a share "full"

	conf    string
	log     io.Writer
	process *process
	temp    string
}

// StartSamba starts smbd on a free port of this machine, with a configuration, a
// user and a folder for its state of its own, and returns when it takes connections.
// It needs root, as smbd does. On Debian it installs what is missing.
func StartSamba(ctx context.Context, opts SambaOptions) (s *Samba, err error) {
	progress, log := opts.Log, opts.Log
	if opts.Log == nil {
		progress, log = os.Stderr, io.Discard
	}
	if os.Getuid() != 0 {
		return nil, errors.New("smbd runs as root only")
	}
	if err := needSamba(ctx, progress); err != nil {
		return nil, err
	}
	// An account that every Linux has; the shares' files are its own.
	unix, err := user.Lookup("nobody")
	if err != nil {
		return nil, err
	}
	s = &Samba{User: unix.Username, Password: rand.Text(), log: log}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
			s = nil
		}
	}()
	if s.temp, err = os.MkdirTemp("", "stager-smb-"); err != nil {
		return s, err
	}
	if err := os.Chmod(s.temp, 0o755); err != nil { // the user must get through
		return s, err
	}
	s.Dir = filepath.Join(s.temp, "data")
	uid, _ := strconv.Atoi(unix.Uid) // numbers, on Linux
	gid, _ := strconv.Atoi(unix.Gid)
	for _, dir := range []string{"data", "full", "private", "lock", "state", "cache", "pid", "rpc"} {
		dir = filepath.Join(s.temp, dir)
		if err := errors.Join(os.Mkdir(dir, 0o755), os.Chown(dir, uid, gid)); err != nil {
			return s, err
		}
	}
	s.Full = exec.CommandContext(ctx, "unshare", "--mount", "true").Run() == nil
	if s.Address, err = freeAddress(); err != nil {
		return s, err
	}
	s.conf = filepath.Join(s.temp, "smb.conf")
	if err := os.WriteFile(s.conf, []byte(s.configuration(opts.Mode)), 0o600); err != nil {
		return s, err
	}
	add := exec.CommandContext(ctx, "pdbedit", "--configfile="+s.conf, "--create", "--password-from-stdin", "--user="+s.User)
	add.Stdin = strings.NewReader(s.Password + "\n" + s.Password + "\n")
	if out, err := add.CombinedOutput(); err != nil {
		return s, fmt.Errorf("making the server's user: %w\n%s", err, out)
	}
	return s, s.Start(ctx)
}

func (s *Samba) configuration(mode SambaMode) string {
	_, port, _ := net.SplitHostPort(s.Address) // from freeAddress
	var b bytes.Buffer
	set := func(name, value string) { fmt.Fprintf(&b, "\t%s = %s\n", name, value) }
	b.WriteString("[global]\n")
	set("server role", "standalone server")
	set("interfaces", "lo")
	set("bind interfaces only", "yes")
	set("smb ports", port)
	set("disable netbios", "yes")
	set("load printers", "no")
	set("disable spoolss", "yes")
	set("map to guest", "never")
	set("server min protocol", "SMB2")
	for name, dir := range map[string]string{
		"private dir": "private", "lock directory": "lock", "state directory": "state",
		"cache directory": "cache", "pid directory": "pid", "ncalrpc dir": "rpc",
	} {
		set(name, filepath.Join(s.temp, dir))
	}
	set("passdb backend", "tdbsam:"+filepath.Join(s.temp, "private", "passdb.tdb"))
	set("log level", "0")
	// Keys that differ only in case are different keys, and names that Windows could
	// not hold are shown as they are.
	set("case sensitive", "yes")
	set("mangled names", "no")
	switch mode {
	case SambaSigned:
		set("server signing", "mandatory")
	case SambaEncrypted:
		set("server min protocol", "SMB3")
		set("server smb encrypt", "required")
	case SambaPlain, "":
	}
	share := func(name, dir, readOnly string) {
		fmt.Fprintf(&b, "[%s]\n", name)
		set("path", dir)
		set("read only", readOnly)
		set("force user", s.User)
	}
	share("data", s.Dir, "no")
	share("readonly", s.Dir, "yes")
	if s.Full {
		share("full", filepath.Join(s.temp, "full"), "no")
	}
	return b.String()
}

// Start starts the server again after Stop, at the same address.
func (s *Samba) Start(ctx context.Context) (err error) {
	args := []string{smbd(), "--foreground", "--no-process-group", "--debug-stdout", "--configfile=" + s.conf}
	cmd := exec.Command(args[0], args[1:]...) //nolint:noctx // Stop ends it
	if s.Full {
		// The small disk is mounted where only the server sees it, and goes with it.
		script := fmt.Sprintf("mount -t tmpfs -o size=4m,mode=777 tmpfs '%s' && exec \"$@\"", filepath.Join(s.temp, "full"))
		cmd = exec.Command("unshare", append([]string{"--mount", "sh", "-c", script, "sh"}, args...)...) //nolint:noctx // Stop ends it
	}
	if s.process, err = start(cmd, s.log); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, startWithin)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		var d net.Dialer
		conn, err := d.DialContext(ctx, "tcp", s.Address)
		if err == nil {
			return conn.Close()
		}
		select {
		case <-s.process.done:
			return fmt.Errorf("smbd ended at once: %w", s.process.err)
		case <-ctx.Done():
			return fmt.Errorf("smbd at %s takes no connections: %w", s.Address, err)
		case <-tick.C:
		}
	}
}

// Stop kills the server as a power cut would, with all its connections.
func (s *Samba) Stop() error {
	if s.process == nil {
		return nil
	}
	err := syscall.Kill(-s.process.cmd.Process.Pid, syscall.SIGKILL)
	if err != nil && !errors.Is(err, syscall.ESRCH) {
		return err
	}
	<-s.process.done
	s.process = nil
	return nil
}

// Env are the variables by which stager and tests find the server.
func (s *Samba) Env() []string {
	env := []string{"SMB_USERNAME=" + s.User, "SMB_PASSWORD=" + s.Password, "SMB_SERVER=" + s.Address, "SMB_DIR=" + s.Dir}
	if s.Full {
		env = append(env, "SMB_FULL_SHARE=full")
	}
	return env
}

// Close ends the server.
func (s *Samba) Close() error {
	err := s.Stop()
	if s.temp != "" {
		err = errors.Join(err, os.RemoveAll(s.temp))
	}
	return err
}

// smbd is the server's binary, which Debian puts where only root looks.
func smbd() string {
	if path, err := exec.LookPath("smbd"); err == nil {
		return path
	}
	return "/usr/sbin/smbd"
}

// needSamba installs what is missing, where it can.
func needSamba(ctx context.Context, progress io.Writer) error {
	missing := func() error {
		_, err1 := exec.LookPath(smbd())
		_, err2 := exec.LookPath("pdbedit")
		return errors.Join(err1, err2)
	}
	if missing() == nil {
		return nil
	}
	if _, err := exec.LookPath("apt-get"); err != nil {
		return fmt.Errorf("install samba: %w", missing())
	}
	fmt.Fprintln(progress, "installing the Debian package samba, for its file server")
	install := []string{"apt-get", "install", "-y", "-qq", "--no-install-recommends", "samba"}
	for _, args := range [][]string{install, {"apt-get", "update", "-qq"}, install} {
		cmd := exec.CommandContext(ctx, args[0], args[1:]...)
		cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
		if out, err := cmd.CombinedOutput(); err != nil && args[1] == "install" && missing() != nil {
			fmt.Fprintf(progress, "%s", out)
		}
		if missing() == nil {
			return nil
		}
	}
	return fmt.Errorf("samba could not be installed: %w", missing())
}
