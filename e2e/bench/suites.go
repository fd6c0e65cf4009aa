package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/stager-dev/stager/e2e/servers"
)

// Suites are all there are, in the order of the table.
var Suites = []Suite{
	{Name: "goals", Start: goals},
	{Name: "https", Start: secure},
	{Name: "quick", Start: quick, Named: true, Patience: quickPatience},
	{Name: "disks", Start: disks, Named: true},
	{Name: "smb", Start: smb},
	{Name: "nfs", Start: nfs},
	{Name: "hdfs", Start: hdfs},
	{Name: "oss", Start: oss},
	{Name: "gs", Start: gs, Named: true},
	{Name: "az", Start: az, Named: true},
	{Name: "sftp", Start: sftp, Named: true},
	{Name: "http", Start: web, Named: true},
	{Name: "ftp", Start: ftp, Named: true},
	{Name: "git", Start: git, Named: true},
	{Name: "hf", Start: hf, Named: true},
	{Name: "s3", Start: s3},
	{Name: "minio", Start: minio, Named: true},
	{Name: "s3-late", Start: s3Late, Named: true},
	{Name: "checkpoint", Start: checkpoints, Named: true},
	{Name: "checkpoint-quick", Start: checkpointsQuick, Named: true},
	{Name: "window", Start: window},
	{Name: "listings", Listings: listings, Named: true},
	{Name: "loaders", Start: loaders, Named: true},
	{Name: "training", Start: training, Named: true},
}

// quickNote is on rows of the server that costs little.
const quickNote = "a server of files, small ones from memory and large ones by sendfile, in the process that measures"

// stops ends servers, the last first.
type stops []func() error

func (s stops) all() error {
	var errs []error
	for i := len(s) - 1; i >= 0; i-- {
		errs = append(errs, s[i]())
	}
	return errors.Join(errs...)
}

// smb is beside smbclient, with three servers.
func smb(ctx context.Context, lab *Lab) (rows []Row, note string, stop func() error, err error) {
	var end stops
	defer func() {
		if err != nil {
			err = errors.Join(err, end.all())
		}
	}()
	if err := servers.Install(ctx, "smb", lab.Log); err != nil {
		return nil, "", nil, err
	}
	client, err := servers.Client(ctx, "smbclient", "smbclient", lab.Log)
	if err != nil {
		return nil, "", nil, err
	}
	near, stopNear, err := nearFloor(lab)
	if err != nil {
		return nil, "", nil, err
	}
	end = append(end, stopNear)
	for _, mode := range []servers.SambaMode{servers.SambaPlain, servers.SambaSigned, servers.SambaEncrypted} {
		server, err := servers.StartSamba(ctx, servers.SambaOptions{Mode: mode})
		if err != nil {
			return nil, "", nil, err
		}
		end = append(end, server.Close)
		login := filepath.Join(lab.Dir, "login-"+string(mode))
		if err := os.WriteFile(login, fmt.Appendf(nil, "username=%s\npassword=%s\n", server.User, server.Password), 0o600); err != nil {
			return nil, "", nil, err
		}
		_, port, _ := net.SplitHostPort(server.Address) // it was made from them
		smbclient := func(script string) *exec.Cmd {
			return exec.Command(client, "//127.0.0.1/data", "--port="+port, "--authentication-file="+login, "--command="+script) //nolint:noctx // measure runs it
		}
		s := site{
			lab: lab, name: "smb, " + string(mode), url: "smb://" + server.Address + "/data/", env: server.Env(), dir: server.Dir, peer: "smbclient",
			get: func(from, to string) *exec.Cmd {
				return smbclient(fmt.Sprintf("cd %s; lcd %s; recurse; prompt; mget *", from, to))
			},
			put: func(from, to string) *exec.Cmd {
				return smbclient(fmt.Sprintf("mkdir %s; cd %s; lcd %s; recurse; prompt; mput *", to, to, from))
			},
		}
		if mode == servers.SambaPlain {
			s.query = "?signing=off"
		}
		if err := s.load(); err != nil {
			return nil, "", nil, err
		}
		all := s.rows()
		s.floor = near
		all[0] = s.reading(lab.Data.one())
		all[0].Goal = Goal{Ratio: 1.2}
		rows = append(rows, all...)
	}
	return rows, versionOf(client, "--version"), end.all, nil
}

// roundTrip is what is added to NFS, as a server in another zone has it.
const roundTrip = 2 * time.Millisecond

// nfs is beside cp in the server's own directory, and from afar beside itself with one
// stream.
func nfs(ctx context.Context, lab *Lab) (rows []Row, note string, stop func() error, err error) {
	if err := servers.Install(ctx, "nfs", lab.Log); err != nil {
		return nil, "", nil, err
	}
	server, err := servers.StartGanesha(ctx, servers.GaneshaOptions{})
	if err != nil {
		return nil, "", nil, err
	}
	end := stops{server.Close}
	defer func() {
		if err != nil {
			err = errors.Join(err, end.all())
		}
	}()
	cp := func(from, to string) *exec.Cmd { return exec.Command("cp", "-r", "-T", from, to) } //nolint:noctx // measure runs it
	near := site{
		lab: lab, name: "nfs", url: "nfs://" + server.Address + "/data/", dir: server.Dir, peer: "cp beside the server",
		get: func(from, to string) *exec.Cmd { return cp(filepath.Join(server.Dir, from), to) },
		put: func(from, to string) *exec.Cmd { return cp(from, filepath.Join(server.Dir, to)) },
		remove: func(directory string) error {
			directory = filepath.Join(server.Dir, directory)
			return firstOf(empty(directory), os.RemoveAll(directory))
		},
	}
	if err := near.load(); err != nil {
		return nil, "", nil, err
	}
	delay, err := servers.StartDelay(server.Address, roundTrip)
	if err != nil {
		return nil, "", nil, err
	}
	end = append(end, delay.Close)
	far := near
	far.name, far.url, far.query = fmt.Sprintf("nfs, %v away", roundTrip), "nfs://"+delay.Address+"/data/", "?vers=4.1"
	far.peer = "stager, one stream"
	const one = "&slots=1&conns=1"
	far.get = func(from, to string) *exec.Cmd {
		return far.stager("prefetch", "--quiet", "--connections=1", far.at(from)+one, to)
	}
	far.put = func(from, to string) *exec.Cmd {
		return far.stager("push", "--quiet", "--connections=1", from, far.at(to)+one)
	}
	rows = near.rows()
	var stopFloor func() error
	if near.floor, stopFloor, err = nearFloor(lab); err != nil {
		return nil, "", nil, err
	}
	end = append(end, stopFloor)
	rows[0] = near.reading(lab.Data.one())
	rows[0].Goal = Goal{Ratio: 0.8}
	return append(rows, far.rows()...), "NFS-Ganesha, version 4.1", end.all, nil
}

// empty takes the bytes of the files in dir. NFS-Ganesha keeps files open that were written
// through it, removed or not, and all that a suite writes is more than the memory.
func empty(dir string) error {
	return filepath.WalkDir(dir, func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		return os.Truncate(name, 0)
	})
}

// hdfs is beside Hadoop's own shell.
func hdfs(ctx context.Context, lab *Lab) (rows []Row, note string, stop func() error, err error) {
	if err := servers.Install(ctx, "hdfs", lab.Log); err != nil {
		return nil, "", nil, err
	}
	server, err := servers.StartHDFS(ctx, servers.HDFSOptions{BlockSize: 128 << 20})
	if err != nil {
		return nil, "", nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, server.Close())
		}
	}()
	shell := func(args ...string) *exec.Cmd { return server.FsShell(ctx, args...) }
	s := site{
		lab: lab, name: "hdfs", url: "hdfs://" + server.Address + "/", env: server.Env(), peer: "hdfs dfs",
		get:    func(from, to string) *exec.Cmd { return shell("-get", "-f", "-t", "8", "/"+from+"/*", to) },
		put:    func(from, to string) *exec.Cmd { return shell("-put", "-t", "8", from, "/"+to) },
		remove: func(directory string) error { return quietly(shell("-rm", "-r", "-skipTrash", "/"+directory)) },
	}
	if err := s.load(); err != nil {
		return nil, "", nil, err
	}
	alone, err := measure(shell("-ls", "/one"))
	if err != nil {
		return nil, "", nil, err
	}
	note = fmt.Sprintf("of each run of hdfs dfs, which has eight threads, %.1f s are the start of the JVM and one request", alone.Wall.Seconds())
	return s.rows(), note, server.Close, nil
}

// oss is beside Alibaba's own client; the server is a double.
func oss(ctx context.Context, lab *Lab) (rows []Row, note string, stop func() error, err error) {
	client, err := peer(ctx, "ossutil", "github.com/aliyun/ossutil", lab.Log)
	if err != nil {
		return nil, "", nil, err
	}
	server, err := servers.StartOSS(servers.OSSOptions{Buckets: []string{"bench"}})
	if err != nil {
		return nil, "", nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, server.Close())
		}
	}()
	conf := filepath.Join(lab.Dir, "ossutil.conf")
	text := fmt.Sprintf("[Credentials]\nlanguage=EN\nendpoint=%s\naccessKeyID=%s\naccessKeySecret=%s\n", server.Endpoint, server.AccessKey, server.SecretKey)
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		return nil, "", nil, err
	}
	cp := func(from, to string) *exec.Cmd {
		cmd := exec.Command(client, "cp", "--recursive", "--force", "--config-file="+conf, from, to) //nolint:noctx // measure runs it
		cmd.Dir = lab.Dir
		return cmd
	}
	s := site{
		lab: lab, name: "oss", url: "oss://bench/", env: server.Env(), peer: "ossutil",
		get:    func(from, to string) *exec.Cmd { return cp("oss://bench/"+from+"/", to+"/") },
		put:    func(from, to string) *exec.Cmd { return cp(from+"/", "oss://bench/"+to+"/") },
		remove: func(directory string) error { server.Drop("bench", directory+"/"); return nil },
	}
	if err := s.load(); err != nil {
		return nil, "", nil, err
	}
	return s.rows(), "a double of OSS that verifies signatures, in the process that measures; " + versionOf(client, "--version"), server.Close, nil
}

// s3 is beside s5cmd.
func s3(ctx context.Context, lab *Lab) (rows []Row, note string, stop func() error, err error) {
	client, err := peer(ctx, "s5cmd", "github.com/peak/s5cmd/v2", lab.Log)
	if err != nil {
		return nil, "", nil, err
	}
	files := filepath.Join(lab.Dir, "s3")
	server, err := servers.StartS3(ctx, servers.S3Options{Buckets: []string{"bench"}, Dir: files})
	if err != nil {
		return nil, "", nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, server.Close())
		}
	}()
	s5cmd := copier(client, server.Endpoint, server.Env())
	s := site{
		lab: lab, name: "s3", url: "s3://bench/", env: server.Env(), dir: filepath.Join(files, "objects", "bench"), peer: "s5cmd",
		get: func(from, to string) *exec.Cmd { return s5cmd("s3://bench/"+from+"/*", to+"/") },
		put: func(from, to string) *exec.Cmd { return s5cmd(from+"/", "s3://bench/"+to+"/") },
	}
	if err := s.load(); err != nil {
		return nil, "", nil, err
	}
	return s.rows(), "versitygw; s5cmd 2.3.0", func() error { return errors.Join(server.Close(), os.RemoveAll(files)) }, nil
}

// copier makes commands of s5cmd that copy.
func copier(client, endpoint string, env []string) func(from, to string) *exec.Cmd {
	return func(from, to string) *exec.Cmd {
		cmd := exec.Command(client, "--log=error", "cp", from, to) //nolint:noctx // measure runs it
		cmd.Env = append(append(os.Environ(), env...), "S3_ENDPOINT_URL="+endpoint)
		return cmd
	}
}

// One answer of so many comes so late where a store has a server that is busy.
const (
	lateOneOf = 50
	lateBy    = time.Second
)

// s3Late gets from a server of which some answers are late, beside itself when it asks
// for nothing twice.
func s3Late(_ context.Context, lab *Lab) (rows []Row, note string, stop func() error, err error) {
	late, err := servers.StartLate(filepath.Dir(lab.Data.One), "bench", lateOneOf, lateBy)
	if err != nil {
		return nil, "", nil, err
	}
	s := site{
		lab: lab, name: fmt.Sprintf("s3, quick, one answer of %d %v late", lateOneOf, lateBy), url: "s3://bench/", env: late.Env(), peer: "stager --no-hedge",
	}
	s.get = func(from, to string) *exec.Cmd { return s.stager("prefetch", "--quiet", "--no-hedge", s.at(from), to) }
	return []Row{s.reading(lab.Data.many())}, quickNote, late.Close, nil
}

// peer builds another client from the module beside this file that says its version.
func peer(ctx context.Context, name, pkg string, progress io.Writer) (string, error) {
	return servers.Build(ctx, beside(filepath.Join("peers", name)), pkg, progress)
}
