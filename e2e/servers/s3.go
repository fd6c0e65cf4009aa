package servers

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"

	"github.com/stager-dev/stager/e2e/servers/ports"
)

// S3Options say what server is wanted. The zero value works.
type S3Options struct {
	TLS     bool
	Host    string    // the address where it listens; "": 127.0.0.1
	Dir     string    // where its objects lie; "": a directory that Close removes
	Buckets []string  // made before it starts; none: one named "test"
	Log     io.Writer // what it says, and what is being built; nil: the latter on stderr
}

// S3 is a running server.
type S3 struct {
	Endpoint  string // its URL
	AccessKey string
	SecretKey string
	Region    string
	CAFile    string   // the authority to trust; "" without TLS
	Buckets   []string //

	daemon
	temp *temp
}

// buildGateway makes the server, whose module lies beside this file.
func buildGateway(ctx context.Context, progress io.Writer) (string, error) {
	_, here, _, _ := runtime.Caller(0)
	return Build(ctx, filepath.Join(filepath.Dir(here), "versitygw"), ".", progress)
}

// StartS3 starts versitygw over a directory, on a free port of this machine, and
// returns when it answers. Its metadata are extended attributes, or files beside the
// objects on a file system without. A read while an object is replaced can mix the two
// versions; who must not see that asks for [StartCeph].
func StartS3(ctx context.Context, opts S3Options) (s *S3, err error) {
	progress, log := opts.Log, opts.Log
	if opts.Log == nil {
		progress, log = os.Stderr, io.Discard
	}
	bin, err := buildGateway(ctx, progress)
	if err != nil {
		return nil, err
	}
	s = &S3{AccessKey: "stager-test", SecretKey: rand.Text(), Region: "us-east-1", Buckets: opts.Buckets}
	if len(s.Buckets) == 0 {
		s.Buckets = []string{"test"}
	}
	defer closeUnlessStarted(&s, &err)
	dir := opts.Dir
	if dir == "" {
		if s.temp, err = makeTemp("s3"); err != nil {
			return s, err
		}
		dir = s.temp.path
	}
	objects, metadata := filepath.Join(dir, "objects"), filepath.Join(dir, "metadata")
	for _, d := range []string{objects, metadata} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return s, err
		}
	}
	for _, b := range s.Buckets { // a bucket is a directory
		if err := os.MkdirAll(filepath.Join(objects, b), 0o755); err != nil {
			return s, err
		}
	}
	address, err := ports.Free(cmp.Or(opts.Host, localhost))
	if err != nil {
		return s, err
	}
	s.Endpoint = "http://" + address
	args := []string{"-address", address, "-region", s.Region}
	if opts.TLS {
		ca, cert, key, err := certificate(dir)
		if err != nil {
			return s, err
		}
		s.Endpoint, s.CAFile = "https://"+address, ca
		args = append(args, "-cert", cert, "-key", key)
	}
	if syscall.Setxattr(objects, "user.stager", nil, 0) != nil {
		args = append(args, "-sidecar", metadata)
	}
	args = append(args, objects)
	s.daemon = daemon{name: "the S3 server at " + s.Endpoint, log: log, answers: s.answersAt("/health"), command: func() *exec.Cmd {
		cmd := exec.Command(bin, args...)
		cmd.Env = append(os.Environ(), "ROOT_ACCESS_KEY="+s.AccessKey, "ROOT_SECRET_KEY="+s.SecretKey)
		return cmd
	}}
	return s, s.Start(ctx)
}

// answersAt tells whether the server is well, by a path that it answers without a key.
func (s *S3) answersAt(path string) func(context.Context) error {
	return func(ctx context.Context) error {
		transport, err := s.transport()
		if err != nil {
			return err
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.Endpoint+path, nil)
		if err != nil {
			return err
		}
		res, err := transport.RoundTrip(req)
		if err != nil {
			return err
		}
		defer res.Body.Close() // only that it answers counts
		if res.StatusCode != http.StatusOK {
			return errors.New(res.Status)
		}
		return nil
	}
}

// transport trusts the server's authority, and keeps no connections.
func (s *S3) transport() (*http.Transport, error) {
	transport := &http.Transport{DisableKeepAlives: true}
	if s.CAFile == "" {
		return transport, nil
	}
	pem, err := os.ReadFile(s.CAFile)
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(pem)
	transport.TLSClientConfig = &tls.Config{RootCAs: pool}
	return transport, err
}

// Env are the variables by which AWS tools and stager find the server.
func (s *S3) Env() []string {
	env := []string{
		"AWS_ENDPOINT_URL_S3=" + s.Endpoint, "AWS_REGION=" + s.Region,
		"AWS_ACCESS_KEY_ID=" + s.AccessKey, "AWS_SECRET_ACCESS_KEY=" + s.SecretKey,
	}
	if s.CAFile != "" {
		env = append(env, "AWS_CA_BUNDLE="+s.CAFile)
	}
	return env
}

// Close ends the server.
func (s *S3) Close() error {
	return errors.Join(s.stop(), s.temp.remove())
}
