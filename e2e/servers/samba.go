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
	"slices"
	"strconv"
	"strings"

	"github.com/stager-dev/stager/e2e/servers/ports"
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
	// IgnoreCase has names that differ only in case be one name, as on Windows.
	IgnoreCase bool
	Kerberos   *KDC      // whose tickets for cifs/localhost it takes, beside passwords; nil: none
	Log        io.Writer // what it says
}

// Samba is a running file server with three shares over one directory: "data",
// "readonly", and "full", which holds 4 MiB where such a thing can be made.
type Samba struct {
	Address  string // host:port
	User     string
	Password string
	Dir      string // what the shares show
	Full     bool   // whether there is a share "full"

	daemon
	conf      string
	temp      *temp
	variables []string // for Kerberos
}

// StartSamba starts smbd on a free port of this machine, with a configuration, a
// user and a directory for its state of its own, and returns when it takes connections.
// It needs root, as smbd does, and what [Install] installs.
func StartSamba(ctx context.Context, opts SambaOptions) (s *Samba, err error) {
	if err := sambaMissing(); err != nil {
		return nil, notHere("smb", err)
	}
	if err := needsRoot("smb"); err != nil {
		return nil, err
	}
	// An account that every Linux has; the shares' files are its own.
	unix, err := user.Lookup("nobody")
	if err != nil {
		return nil, err
	}
	s = &Samba{User: unix.Username, Password: rand.Text()}
	defer closeUnlessStarted(&s, &err)
	if s.temp, err = makeTemp("smb"); err != nil {
		return s, err
	}
	s.Dir = filepath.Join(s.temp.path, "data")
	uid, _ := strconv.Atoi(unix.Uid) // numbers, on Linux
	gid, _ := strconv.Atoi(unix.Gid)
	for _, dir := range []string{"data", "full", "private", "lock", "state", "cache", "pid", "rpc"} {
		dir = filepath.Join(s.temp.path, dir)
		if err := errors.Join(os.Mkdir(dir, 0o755), os.Chown(dir, uid, gid)); err != nil {
			return s, err
		}
	}
	s.Full = exec.CommandContext(ctx, "unshare", "--mount", "true").Run() == nil
	if s.Address, err = ports.Free(localhost); err != nil {
		return s, err
	}
	s.conf = filepath.Join(s.temp.path, "smb.conf")
	keys := ""
	if k := opts.Kerberos; k != nil {
		if keys, err = k.Keytab(ctx, "cifs/localhost"); err != nil {
			return s, err
		}
		own, err := k.Keytab(ctx, s.User)
		if err != nil {
			return s, err
		}
		s.variables = append(k.Env(), "KRB5_CLIENT_KTNAME="+own)
	}
	if err := os.WriteFile(s.conf, []byte(s.configuration(opts, keys)), 0o600); err != nil {
		return s, err
	}
	add := exec.CommandContext(ctx, "pdbedit", "--configfile="+s.conf, "--create", "--password-from-stdin", "--user="+s.User)
	add.Stdin = strings.NewReader(s.Password + "\n" + s.Password + "\n")
	if out, err := add.CombinedOutput(); err != nil {
		return s, fmt.Errorf("making the server's user: %w\n%s", err, out)
	}
	s.daemon = daemon{name: "smbd at " + s.Address, command: s.command, answers: takesConnections(s.Address), log: opts.Log}
	return s, s.Start(ctx)
}

func (s *Samba) configuration(opts SambaOptions, keytab string) string {
	_, port, _ := net.SplitHostPort(s.Address) // from ports.Free
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
		set(name, filepath.Join(s.temp.path, dir))
	}
	set("passdb backend", "tdbsam:"+filepath.Join(s.temp.path, "private", "passdb.tdb"))
	set("log level", "0")
	// Keys that differ only in case are different keys, unless that is not wanted, and
	// names that Windows could not hold are shown as they are.
	set("case sensitive", map[bool]string{false: "yes", true: "no"}[opts.IgnoreCase])
	set("mangled names", "no")
	switch opts.Mode {
	case SambaSigned:
		set("server signing", "mandatory")
	case SambaEncrypted:
		set("server min protocol", "SMB3")
		set("server smb encrypt", "required")
	case SambaPlain, "":
	}
	if keytab != "" {
		// A server that is in no domain takes tickets as long as they bear no list of
		// Windows groups (PAC).
		set("realm", Realm)
		set("kerberos method", "dedicated keytab")
		set("dedicated keytab file", "FILE:"+keytab)
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
		share("full", filepath.Join(s.temp.path, "full"), "no")
	}
	return b.String()
}

func (s *Samba) command() *exec.Cmd {
	smbd, _ := find("smbd") // sambaMissing found it
	args := []string{smbd, "--foreground", "--no-process-group", "--debug-stdout", "--configfile=" + s.conf}
	if s.Full {
		// The small disk is mounted where only the server sees it, and goes with it.
		script := fmt.Sprintf("mount -t tmpfs -o size=4m,mode=777 tmpfs '%s' && exec \"$@\"", filepath.Join(s.temp.path, "full"))
		args = append([]string{"unshare", "--mount", "sh", "-c", script, "sh"}, args...)
	}
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = append(os.Environ(), s.variables...)
	return cmd
}

// Env are the variables by which stager and tests find the server.
func (s *Samba) Env() []string {
	env := append(slices.Clone(s.variables), "SMB_USERNAME="+s.User, "SMB_PASSWORD="+s.Password, "SMB_SERVER="+s.Address, "SMB_DIR="+s.Dir)
	if s.Full {
		env = append(env, "SMB_FULL_SHARE=full")
	}
	return env
}

// Close ends the server.
func (s *Samba) Close() error {
	return errors.Join(s.Kill(), s.temp.remove())
}

// sambaMissing is nil when all is there that a server needs.
func sambaMissing() error {
	_, smbd := find("smbd")
	_, pdbedit := find("pdbedit")
	return errors.Join(smbd, pdbedit)
}
