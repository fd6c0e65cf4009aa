package servers

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strings"

	"golang.org/x/crypto/bcrypt"
	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"

	"github.com/stager-dev/stager/e2e/servers/ports"
)

// SSHDOptions describe the server to start. The zero value works.
type SSHDOptions struct {
	Dir   string    // the directory for files; "": one that Close removes
	Plain bool      // it offers version 3 of SFTP without extensions
	Log   io.Writer // its output
}

// SSHD is a running OpenSSH server. As root, where mount namespaces can be made, it has one user of
// its own with a password and a key, and a small disk. Elsewhere its user is the one that runs it,
// with a key alone.
type SSHD struct {
	Address  string // host:port
	User     string
	Password string // "" if passwords cannot be checked here
	Dir      string // for files
	Full     string // a directory of 4 MiB, or ""

	daemon
	plain bool
	root  string // of the unpacked packages
	temp  *temp
}

// sshdPackages are Debian's, unpacked and not installed: they would start a service.
var sshdPackages = []string{"openssh-server", "openssh-sftp-server"}

// StartSSHD starts sshd on a free port of this machine, with keys and a configuration of its own,
// and returns when it takes connections.
func StartSSHD(ctx context.Context, opts SSHDOptions) (s *SSHD, err error) {
	s = &SSHD{Dir: opts.Dir, plain: opts.Plain}
	if s.root, err = unpackedAt(sshdPackages); err != nil {
		return nil, err
	}
	if !isUnpacked(s.root) {
		return nil, notHere("sftp", errors.New("there is no sshd for tests on this machine"))
	}
	defer closeUnlessStarted(&s, &err)
	if s.temp, err = makeTemp("sftp"); err != nil {
		return s, err
	}
	if s.Address, err = ports.Free(localhost); err != nil {
		return s, err
	}
	if err := s.prepare(ctx); err != nil {
		return s, err
	}
	s.daemon = daemon{name: "sshd at " + s.Address, command: s.command, answers: takesConnections(s.Address), log: opts.Log}
	return s, s.Start(ctx)
}

func (s *SSHD) path(name string) string { return filepath.Join(s.temp.path, name) }

// nobody is the numeric user and group of the server's own user.
const nobody = 65534

// prepare writes the files of the server.
func (s *SSHD) prepare(ctx context.Context) error {
	own := os.Geteuid() == 0 && exec.CommandContext(ctx, "unshare", "--mount", "true").Run() == nil
	unix, err := user.Current()
	if err != nil {
		return err
	}
	s.User = unix.Username
	if s.Dir == "" {
		s.Dir = s.path("data")
	}
	if err := os.MkdirAll(s.Dir, 0o755); err != nil {
		return err
	}
	if own {
		s.User, s.Password, s.Full = "stager", rand.Text(), s.path("full")
		hash, err := bcrypt.GenerateFromPassword([]byte(s.Password), bcrypt.MinCost)
		if err != nil {
			return err
		}
		passwd := fmt.Sprintf("root:x:0:0::/root:/bin/sh\nsshd:x:100:%[1]d::/run/sshd:/bin/false\nstager:x:%[1]d:%[1]d::%[2]s:/bin/sh\n", nobody, s.Dir)
		shadow := fmt.Sprintf("root:*:19000:0:99999:7:::\nsshd:*:19000:0:99999:7:::\nstager:%s:19000:0:99999:7:::\n", hash)
		err = errors.Join(
			os.WriteFile(s.path("passwd"), []byte(passwd), 0o644),
			os.WriteFile(s.path("shadow"), []byte(shadow), 0o600),
			os.Mkdir(s.Full, 0o755),
			os.Chown(s.Dir, nobody, nobody),
		)
		if err != nil {
			return err
		}
	}
	host, err := writeKey(s.path("host"), "")
	if err != nil {
		return err
	}
	login, err := writeKey(s.path("key"), "")
	if err != nil {
		return err
	}
	locked, err := writeKey(s.path("locked-key"), passphrase)
	if err != nil {
		return err
	}
	authorized := append(ssh.MarshalAuthorizedKey(login), ssh.MarshalAuthorizedKey(locked)...)
	return errors.Join(
		os.WriteFile(s.path("authorized_keys"), authorized, 0o644),
		os.WriteFile(s.path("known_hosts"), []byte(knownhosts.Line([]string{s.Address}, host)+"\n"), 0o644),
		os.WriteFile(s.path("sshd_config"), []byte(s.configuration()), 0o600),
	)
}

// passphrase is that of the key in the file locked-key.
const passphrase = "a passphrase for tests"

// writeKey makes a key, encrypted if there is a phrase, and returns its public half.
func writeKey(path, phrase string) (ssh.PublicKey, error) {
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		return nil, err
	}
	var block *pem.Block
	if phrase == "" {
		block, err = ssh.MarshalPrivateKey(private, "")
	} else {
		block, err = ssh.MarshalPrivateKeyWithPassphrase(private, "", []byte(phrase))
	}
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
		return nil, err
	}
	return ssh.NewPublicKey(public)
}

// sftpExtensions are the requests of OpenSSH beyond version 3 of SFTP that stager uses, as "sftp-server
// -Q requests" names them. A server that denies them does not offer them.
const sftpExtensions = "posix-rename,hardlink,fsync,statvfs"

func (s *SSHD) configuration() string {
	_, port, _ := net.SplitHostPort(s.Address) // from ports.Free
	sftp := "internal-sftp"
	if s.plain {
		sftp += " -P " + sftpExtensions
	}
	lines := []string{
		"ListenAddress " + localhost,
		"Port " + port,
		"HostKey " + s.path("host"),
		"AuthorizedKeysFile " + s.path("authorized_keys"),
		"PidFile none",
		"StrictModes no",
		"UsePAM no",
		"UseDNS no",
		"KbdInteractiveAuthentication no",
		"MaxStartups 200",
		"Subsystem sftp " + sftp,
	}
	if s.Password == "" {
		lines = append(lines, "PasswordAuthentication no")
	}
	// Since 9.8 sshd consists of several programs, and blocks clients whose logins fail.
	if session := filepath.Join(s.root, "usr/lib/openssh/sshd-session"); exists(session) {
		lines = append(lines, "SshdSessionPath "+session, "PerSourcePenalties no")
	}
	if auth := filepath.Join(s.root, "usr/lib/openssh/sshd-auth"); exists(auth) {
		lines = append(lines, "SshdAuthPath "+auth)
	}
	return strings.Join(lines, "\n") + "\n"
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// privateFiles gives the server its own users, directory of pids and small disk, which no other
// process sees and which end with it.
const privateFiles = `mount --bind "$0/passwd" /etc/passwd && mount --bind "$0/shadow" /etc/shadow &&
mount -t tmpfs -o size=1m,mode=755 tmpfs /run && mkdir -p /run/sshd &&
mount -t tmpfs -o size=4m,mode=777 tmpfs "$0/full" && exec "$@"`

func (s *SSHD) command() *exec.Cmd {
	args := []string{filepath.Join(s.root, "usr/sbin/sshd"), "-D", "-e", "-f", s.path("sshd_config")}
	if s.Password != "" {
		args = append([]string{"unshare", "--mount", "sh", "-c", privateFiles, s.temp.path}, args...)
	}
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+strings.Join(libraries(s.root), ":"))
	return cmd
}

// Env are the variables by which stager and tests find the server.
func (s *SSHD) Env() []string {
	env := []string{
		"SFTP_SERVER=" + s.Address,
		"SFTP_DIR=" + s.Dir,
		"SFTP_FULL=" + s.Full,
		"SFTP_USERNAME=" + s.User,
		"SFTP_LOCKED_KEY=" + s.path("locked-key"),
		"SFTP_PASSPHRASE=" + passphrase,
		"SSH_PRIVATE_KEY=" + s.path("key"),
		"SSH_KNOWN_HOSTS=" + s.path("known_hosts"),
	}
	if s.Password != "" {
		env = append(env, "SFTP_TEST_PASSWORD="+s.Password)
	}
	return env
}

// Close ends the server.
func (s *SSHD) Close() error { return errors.Join(s.Kill(), s.temp.remove()) }
