package servers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/stager-dev/stager/e2e/servers/ports"
)

// foreignWheels are servers that others wrote in Python, moto and impacket, and what these
// import. Each keeps less to its protocol than those that stager is tested with otherwise.
var foreignWheels = wheels{
	"moto==5.1.4", "impacket==0.12.0",
	"blinker==1.9.0", "boto3==1.44.8", "botocore==1.44.8", "certifi==2026.10.19.post1", "cffi==2.1.1", "charset-normalizer==3.5.2", "click==8.5.1",
	"cryptography==42.0.8", "dnspython==2.9.2", "Flask==3.1.3", "flask-cors==6.0.5", "idna==3.20", "itsdangerous==2.2.0", "Jinja2==3.1.6", "jmespath==1.1.0",
	"ldap3==2.9.1", "ldapdomaindump==0.10.0", "MarkupSafe==3.0.4", "py-partiql-parser==0.6.1", "pyasn1==0.6.5", "pyasn1_modules==0.4.2", "pycparser==3.12",
	"pycryptodomex==3.24.2", "pyOpenSSL==24.0.0", "python-dateutil==2.9.0.post0", "PyYAML==6.0.4", "requests==2.34.2", "responses==0.26.3",
	"s3transfer==0.19.3", "six==1.17.0", "urllib3==2.8.0", "Werkzeug==3.1.9", "xmltodict==1.0.4",
}

// foreignModules is what installs them.
var foreignModules = modules{"pip"}

// Foreign is a running server of another project.
type Foreign struct {
	Address string // host and port
	Dir     string // where the files of a share lie; "" for one that has no files

	daemon
	env  []string
	temp *temp
}

// Env are the variables by which stager finds the server and its credentials.
func (f *Foreign) Env() []string { return f.env }

// Close ends the server.
func (f *Foreign) Close() error { return errors.Join(f.stop(), f.temp.remove()) }

var _ Server = (*Foreign)(nil)

// StartMoto starts moto, an S3 server in memory for tests, with a bucket. It forgets all
// when it is killed.
func StartMoto(ctx context.Context, bucket string) (*Foreign, error) {
	return startForeign(ctx, func(f *Foreign, python string) ([]string, error) {
		host, port, err := net.SplitHostPort(f.Address)
		endpoint := "http://" + f.Address
		f.env = []string{"AWS_ENDPOINT_URL_S3=" + endpoint, "AWS_REGION=us-east-1", "AWS_ACCESS_KEY_ID=stager-test", "AWS_SECRET_ACCESS_KEY=stager-test"}
		f.answers = func(ctx context.Context) error {
			req, err := http.NewRequestWithContext(ctx, http.MethodPut, endpoint+"/"+bucket, nil)
			if err != nil {
				return err
			}
			res, err := http.DefaultClient.Do(req)
			if err != nil {
				return err
			}
			defer res.Body.Close() // its status says all
			if res.StatusCode != http.StatusOK {
				return errors.New(res.Status)
			}
			return nil
		}
		return []string{python, "-m", "moto.server", "-H", host, "-p", port}, err
	})
}

// StartImpacket starts impacket's SMB server with the share "data".
func StartImpacket(ctx context.Context) (*Foreign, error) {
	return startForeign(ctx, func(f *Foreign, python string) ([]string, error) {
		host, port, err := net.SplitHostPort(f.Address)
		f.env = []string{"SMB_USERNAME=trainer", "SMB_PASSWORD=stager-test"}
		f.Dir = filepath.Join(f.temp.path, "data")
		f.answers = takesConnections(f.Address)
		path, ferr := foreignWheels.folder()
		return []string{
			python, filepath.Join(path, "bin", "smbserver.py"), "-smb2support", "-ip", host, "-port", port,
			"-username", "trainer", "-password", "stager-test", "data", f.Dir,
		}, errors.Join(err, ferr, os.Mkdir(f.Dir, 0o755))
	})
}

// startForeign starts a server on a free port, whose command and other particulars
// configure knows.
func startForeign(ctx context.Context, configure func(f *Foreign, python string) ([]string, error)) (f *Foreign, err error) {
	python, err := foreignWheels.trainer("foreign", foreignModules)
	if err != nil {
		return nil, err
	}
	f = new(Foreign)
	defer closeUnlessStarted(&f, &err)
	if f.temp, err = makeTemp("foreign"); err != nil {
		return f, err
	}
	if f.Address, err = ports.Free(localhost); err != nil {
		return f, err
	}
	f.daemon = daemon{log: io.Discard}
	line, err := configure(f, python.Python)
	if err != nil {
		return f, err
	}
	f.name = fmt.Sprintf("%s at %s", filepath.Base(line[1]), f.Address)
	f.command = func() *exec.Cmd {
		cmd := exec.Command(line[0], line[1:]...)
		cmd.Dir = f.temp.path
		cmd.Env = append(os.Environ(), "PYTHONPATH="+python.Path)
		return cmd
	}
	return f, f.Start(ctx)
}
