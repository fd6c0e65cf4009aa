package servers

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/stager-dev/stager/e2e/servers/ports"
)

//go:embed s3proxy_pom.xml
var s3proxyPOM []byte

//go:embed s3mock_pom.xml
var s3mockPOM []byte

var (
	s3proxyJars = jars{name: "s3proxy", pom: s3proxyPOM, size: "60 MB"}
	s3mockJars  = jars{name: "s3mock", pom: s3mockPOM, size: "60 MB"}
)

// startForeignS3 starts an S3 server on a free port. ready makes the bucket, or looks
// whether the server answers.
func startForeignS3(ctx context.Context, name string, ready func(context.Context, *S3) error, configure func(f *Foreign) (*exec.Cmd, error)) (*Foreign, error) {
	return startForeign(ctx, name, func(f *Foreign) (*exec.Cmd, error) {
		s3 := s3At(f.Address)
		f.env = s3.Env()
		f.answers = func(ctx context.Context) error { return ready(ctx, &s3) }
		return configure(f)
	})
}

// s3At has the credentials that all servers here accept.
func s3At(address string) S3 {
	return S3{Endpoint: "http://" + address, AccessKey: "stager-test", SecretKey: "stager-test-secret", Region: "us-east-1"}
}

// makesBucket is how a server is ready that makes buckets when it is asked to.
func makesBucket(bucket string) func(context.Context, *S3) error {
	return func(ctx context.Context, s *S3) error {
		_, err := s.ask(ctx, http.MethodPut, "/"+bucket, nil, "")
		if err != nil && strings.Contains(err.Error(), "BucketAlready") { // it was started again
			return nil
		}
		return err
	}
}

// answersHTTP is how a server is ready that has its bucket.
func answersHTTP(ctx context.Context, s *S3) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.Endpoint+"/", nil)
	if err != nil {
		return err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	return res.Body.Close() // whatever it has
}

// bucketDir makes the directory that a server shows as a bucket.
func (f *Foreign) bucketDir(bucket string) (root string, err error) {
	root = filepath.Join(f.temp.path, "buckets")
	f.Dir = filepath.Join(root, bucket)
	return root, os.MkdirAll(f.Dir, 0o755)
}

// StartMoto starts moto, an S3 server in memory for tests, with a bucket. It forgets all
// when it is killed.
func StartMoto(ctx context.Context, bucket string) (*Foreign, error) {
	python, err := foreignWheels.trainer(foreign, foreignModules)
	if err != nil {
		return nil, err
	}
	return startForeignS3(ctx, "moto", makesBucket(bucket), func(f *Foreign) (*exec.Cmd, error) {
		host, port, err := net.SplitHostPort(f.Address)
		cmd := exec.Command(python.Python, "-m", "moto.server", "-H", host, "-p", port)
		cmd.Env = append(os.Environ(), "PYTHONPATH="+python.Path)
		return cmd, err
	})
}

// StartRclone starts "rclone serve s3" over a directory, with a bucket.
func StartRclone(ctx context.Context, bucket string) (*Foreign, error) {
	program, err := rcloneWheels.program(foreign, "rclone")
	if err != nil {
		return nil, err
	}
	return startForeignS3(ctx, "rclone", answersHTTP, func(f *Foreign) (*exec.Cmd, error) {
		root, err := f.bucketDir(bucket)
		cmd := exec.Command(program, "serve", "s3", "--addr", f.Address, "--auth-key", "stager-test,stager-test-secret",
			"--config", "", "--cache-dir", filepath.Join(f.temp.path, "cache"), root)
		return cmd, err
	})
}

// StartS3Proxy starts s3proxy over a directory, with a bucket.
func StartS3Proxy(ctx context.Context, bucket string) (*Foreign, error) {
	classpath, err := s3proxyJars.found(foreign)
	if err != nil {
		return nil, err
	}
	return startForeignS3(ctx, "s3proxy", answersHTTP, func(f *Foreign) (*exec.Cmd, error) {
		root, err := f.bucketDir(bucket)
		properties := filepath.Join(f.temp.path, "properties")
		text := fmt.Sprintf("s3proxy.endpoint=http://%s\ns3proxy.authorization=aws-v2-or-v4\ns3proxy.identity=stager-test\n"+
			"s3proxy.credential=stager-test-secret\njclouds.provider=filesystem-nio2\njclouds.identity=any\njclouds.credential=any\njclouds.filesystem.basedir=%s\n", f.Address, root)
		cmd := exec.Command(java(), "-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", classpath, "org.gaul.s3proxy.Main", "--properties", properties)
		return cmd, errors.Join(err, os.WriteFile(properties, []byte(text), 0o600))
	})
}

// StartSeaweedFS starts SeaweedFS, all of its daemons in one process, with a bucket.
func StartSeaweedFS(ctx context.Context, bucket string) (*Foreign, error) {
	program, err := seaweedWheels.program(foreignMore, "weed")
	if err != nil {
		return nil, err
	}
	return startForeignS3(ctx, "SeaweedFS", makesBucket(bucket), func(f *Foreign) (*exec.Cmd, error) {
		host, port, err := net.SplitHostPort(f.Address)
		data := filepath.Join(f.temp.path, "volumes")
		keys := filepath.Join(f.temp.path, "s3.json")
		const text = `{"identities": [{"name": "stager", "actions": ["Admin", "Read", "Write", "List", "Tagging"],
			"credentials": [{"accessKey": "stager-test", "secretKey": "stager-test-secret"}]}]}`
		args := []string{
			"server", "-s3", "-ip=" + host, "-ip.bind=" + host, "-dir=" + data, "-s3.config=" + keys, "-s3.port=" + port,
			"-master.volumeSizeLimitMB=256", "-volume.max=16",
		}
		for _, daemon := range []string{"master.port", "master.port.grpc", "volume.port", "volume.port.grpc", "filer.port", "filer.port.grpc", "s3.port.grpc"} {
			address, perr := ports.Free(localhost)
			if perr != nil {
				return nil, perr
			}
			_, free, _ := net.SplitHostPort(address)
			args = append(args, "-"+daemon+"="+free)
		}
		return exec.Command(program, args...), errors.Join(err, os.Mkdir(data, 0o755), os.WriteFile(keys, []byte(text), 0o600))
	})
}

// buildMinIO makes MinIO, whose module lies beside this file.
func buildMinIO(ctx context.Context, progress io.Writer) (string, error) {
	_, here, _, _ := runtime.Caller(0)
	return Build(ctx, filepath.Join(filepath.Dir(here), "minio"), "github.com/minio/minio", progress)
}

// StartMinIO starts MinIO over a directory, with a bucket. It stores objects in a form of its
// own.
func StartMinIO(ctx context.Context, bucket string) (*Foreign, error) {
	program, err := buildMinIO(ctx, os.Stderr)
	if err != nil {
		return nil, err
	}
	return startForeignS3(ctx, "MinIO", makesBucket(bucket), func(f *Foreign) (*exec.Cmd, error) {
		cmd := exec.Command(program, "server", "--quiet", "--address", f.Address, "--console-address", localhost+":0", filepath.Join(f.temp.path, "drive"))
		cmd.Env = append(os.Environ(), "MINIO_ROOT_USER=stager-test", "MINIO_ROOT_PASSWORD=stager-test-secret", "MINIO_BROWSER=off", "MINIO_UPDATE=off",
			"MINIO_CONFIG_ENV_FILE=", "HOME="+f.temp.path)
		return cmd, nil
	})
}

// OpenToAll lets requests without a signature get and put the objects of a bucket of MinIO.
func (f *Foreign) OpenToAll(ctx context.Context, bucket string) error {
	const allow = `{"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Principal": "*", "Action": ["s3:GetObject", "s3:PutObject"], "Resource": "arn:aws:s3:::%s/*"}]}`
	s3 := s3At(f.Address)
	_, err := s3.ask(ctx, http.MethodPut, "/"+bucket, url.Values{policy: nil}, fmt.Sprintf(allow, bucket))
	return err
}

// StartS3Mock starts Adobe's S3Mock with a bucket, which it keeps over a kill. It listens on
// every address, so it gets a network of its own.
func StartS3Mock(ctx context.Context, bucket string) (*Foreign, error) {
	classpath, err := s3mockJars.found(foreignMore)
	if err == nil {
		err = needsRoot("S3Mock")
	}
	if err != nil {
		return nil, err
	}
	return startForeignS3(ctx, "S3Mock", makesBucket(bucket), func(f *Foreign) (*exec.Cmd, error) {
		_, port, err := net.SplitHostPort(f.Address)
		root := filepath.Join(f.temp.path, "buckets")
		cmd := alone(java(), "-Xmx512m", "-XX:TieredStopAtLevel=1", "-cp", classpath, "com.adobe.testing.s3mock.S3MockApplication",
			"--server.address=127.0.0.1", "--server.port=0", "--com.adobe.testing.s3mock.httpPort="+port,
			"--com.adobe.testing.s3mock.store.root="+root, "--com.adobe.testing.s3mock.store.retain-files-on-exit=true")
		if err = errors.Join(err, os.Mkdir(root, 0o755)); err != nil {
			return nil, err
		}
		f.before, err = forward(f.Address, func() int64 { return f.pid.Load() })
		return cmd, err
	})
}
