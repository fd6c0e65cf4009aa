package servers

import (
	"cmp"
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
	"strings"

	"golang.org/x/crypto/bcrypt"

	"github.com/stager-dev/stager/e2e/servers/ports"
)

// FTPKind is an FTP server of another project.
type FTPKind string

// The FTP servers, whose listings differ.
const (
	Vsftpd  FTPKind = "vsftpd"  // knows LIST alone; its logins are anonymous
	ProFTPD FTPKind = "proftpd" // knows MLSD; it has one user with a password
)

// FTPOptions describe the server to start. The zero value works.
type FTPOptions struct {
	Kind  FTPKind   // "": Vsftpd
	TLS   bool      // demand TLS, and one session for the control and the data connections
	Conns int       // how many connections it accepts; 0: as many as come
	Dir   string    // what it serves; "": a directory that Close removes
	Log   io.Writer // its output
}

// FTP is a running FTP server that serves a directory.
type FTP struct {
	Address  string // host:port
	User     string // "": logins are anonymous
	Password string
	CA       string // the file of its authority; "" without TLS
	Dir      string

	daemon
	opts FTPOptions
	root string // of the unpacked packages
	temp *temp
}

// ftpPackages are Debian's, unpacked and not installed: they would start services, and exclude each
// other.
var ftpPackages = map[FTPKind][]string{
	Vsftpd:  {"vsftpd"},
	ProFTPD: {"proftpd-core", "proftpd-mod-crypto"},
}

// StartFTP starts an FTP server on a free port of this machine and returns when it takes
// connections.
func StartFTP(ctx context.Context, opts FTPOptions) (f *FTP, err error) {
	if err := needsRoot("ftp"); err != nil { // for users of its own, and to confine them to the directory
		return nil, err
	}
	opts.Kind = cmp.Or(opts.Kind, Vsftpd)
	f = &FTP{Dir: opts.Dir, opts: opts}
	if f.root, err = unpackedAt(ftpPackages[opts.Kind]); err != nil {
		return nil, err
	}
	if !isUnpacked(f.root) {
		return nil, notHere("ftp", errors.New("there is no FTP server for tests on this machine"))
	}
	defer closeUnlessStarted(&f, &err)
	if f.temp, err = makeTemp("ftp"); err != nil {
		return f, err
	}
	if f.Dir == "" {
		f.Dir = f.path("files")
	}
	if f.Address, err = ports.Free(localhost); err != nil {
		return f, err
	}
	if err := f.prepare(); err != nil {
		return f, err
	}
	f.daemon = daemon{name: string(opts.Kind) + " at " + f.Address, command: f.command, answers: takesConnections(f.Address), log: opts.Log}
	return f, f.Start(ctx)
}

func (f *FTP) path(name string) string { return filepath.Join(f.temp.path, name) }

// prepare writes the files of the server.
func (f *FTP) prepare() error {
	if err := errors.Join(os.MkdirAll(f.Dir, 0o755), os.Mkdir(f.path("empty"), 0o755)); err != nil {
		return err
	}
	var cert, key string
	if f.opts.TLS {
		var err error
		if f.CA, cert, key, err = certificate(f.temp.path); err != nil {
			return err
		}
	}
	_, port, _ := net.SplitHostPort(f.Address) // from ports.Free
	var lines []string
	switch f.opts.Kind {
	case ProFTPD:
		f.User, f.Password = "stager", rand.Text()
		hash, err := bcrypt.GenerateFromPassword([]byte(f.Password), bcrypt.MinCost)
		if err != nil {
			return err
		}
		uid, gid := os.Getuid(), os.Getgid()
		if uid == 0 {
			uid, gid = nobody, nobody
		}
		passwd := fmt.Sprintf("%s:%s:%d:%d::%s:/bin/false\n", f.User, hash, uid, gid, f.Dir)
		if err := os.WriteFile(f.path("passwd"), []byte(passwd), 0o600); err != nil {
			return err
		}
		lines = f.proftpd(port, cert, key)
	case Vsftpd:
		lines = f.vsftpd(port, cert, key)
	}
	return os.WriteFile(f.config(), []byte(strings.Join(lines, "\n")+"\n"), 0o600)
}

func (f *FTP) config() string { return f.path("ftp.conf") }

func (f *FTP) vsftpd(port, cert, key string) []string {
	lines := []string{
		"listen=YES",
		"listen_address=" + localhost,
		"listen_port=" + port,
		"background=NO",
		"anonymous_enable=YES",
		"local_enable=NO",
		"anon_root=" + f.Dir,
		"allow_writeable_chroot=YES",
		"secure_chroot_dir=" + f.path("empty"),
		"seccomp_sandbox=NO",
		"isolate=NO",
		"isolate_network=NO",
		"tcp_wrappers=NO",
		fmt.Sprintf("max_clients=%d", f.opts.Conns),
	}
	if os.Geteuid() == 0 {
		lines = append(lines, "ftp_username=daemon", "nopriv_user=nobody") // the home of the first must exist
	} else {
		lines = append(lines, "run_as_launching_user=YES")
	}
	if f.CA == "" {
		return lines
	}
	return append(lines,
		"ssl_enable=YES",
		"allow_anon_ssl=YES",
		"force_anon_logins_ssl=YES",
		"force_anon_data_ssl=YES",
		"require_ssl_reuse=YES",
		"ssl_ciphers=HIGH",
		"rsa_cert_file="+cert,
		"rsa_private_key_file="+key)
}

func (f *FTP) proftpd(port, cert, key string) []string {
	lines := []string{
		"ServerType standalone",
		"DefaultAddress " + localhost,
		"Port " + port,
		"UseIPv6 off",
		"UseReverseDNS off",
		"PidFile " + f.path("pid"),
		"ScoreboardFile " + f.path("scoreboard"),
		"DelayEngine off",
		"WtmpLog off",
		"SystemLog none",
		"RequireValidShell off",
		"AuthOrder mod_auth_file.c",
		"AuthUserFile " + f.path("passwd"),
		"ModulePath " + filepath.Join(f.root, "usr/lib/proftpd"),
	}
	if os.Geteuid() == 0 {
		lines = append(lines, fmt.Sprintf("User %s", "nobody"), "Group nogroup", "DefaultRoot ~")
	} else if me, err := user.Current(); err == nil {
		lines = append(lines, "User "+me.Username, "Group #"+me.Gid)
	}
	if f.opts.Conns > 0 {
		lines = append(lines, fmt.Sprintf("MaxClients %d", f.opts.Conns))
	}
	if f.CA == "" {
		return lines
	}
	return append(lines,
		"LoadModule mod_tls.c",
		"TLSEngine on",
		"TLSRequired on",
		"TLSLog "+f.path("tls.log"),
		"TLSECCertificateFile "+cert,
		"TLSECCertificateKeyFile "+key)
}

func (f *FTP) command() *exec.Cmd {
	var cmd *exec.Cmd
	switch f.opts.Kind {
	case Vsftpd:
		cmd = exec.Command(filepath.Join(f.root, "usr/sbin/vsftpd"), f.config())
	case ProFTPD:
		cmd = exec.Command(filepath.Join(f.root, "usr/sbin/proftpd"), "--nodaemon", "--config", f.config())
	}
	cmd.Dir = f.temp.path
	cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+strings.Join(libraries(f.root), ":"))
	return cmd
}

// URL is the URL of a directory of the server.
func (f *FTP) URL(dir string) string {
	if f.CA == "" {
		return "ftp://" + f.Address + "/" + dir
	}
	return "ftps://" + f.Address + "/" + dir + "?ca-bundle=" + f.CA
}

// Env are the variables by which stager and tests find the server.
func (f *FTP) Env() []string {
	return []string{
		"FTP_SERVER=" + f.Address,
		"FTP_DIR=" + f.Dir,
		"FTP_CA=" + f.CA,
		"FTP_USERNAME=" + f.User,
		"FTP_PASSWORD=" + f.Password,
	}
}

// Close ends the server.
func (f *FTP) Close() error { return errors.Join(f.Kill(), f.temp.remove()) }
