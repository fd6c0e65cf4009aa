package bench

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/stager-dev/stager/e2e/servers"
)

// rclone makes commands of rclone that copy between a directory of a store and a local one. at
// returns the name that rclone has for a directory of the store.
func rclone(ctx context.Context, lab *Lab, at func(directory string) string, flags ...string) (get, put func(from, to string) *exec.Cmd, remove func(directory string) error, note string, err error) {
	client, err := servers.Rclone(ctx, lab.Log)
	if err != nil {
		return nil, nil, nil, "", err
	}
	run := func(args ...string) *exec.Cmd {
		return exec.Command(client, append(append(args, "--config=", "--transfers=16", "--checkers=16"), flags...)...) //nolint:noctx // measure runs it
	}
	get = func(from, to string) *exec.Cmd { return run("copy", at(from), to) }
	put = func(from, to string) *exec.Cmd { return run("copy", from, at(to)) }
	remove = func(directory string) error { return quietly(run("purge", at(directory))) }
	return get, put, remove, versionOf(client, "version"), nil
}

// gs is beside rclone, with an emulator that keeps all in memory.
func gs(ctx context.Context, lab *Lab) (rows []Row, note string, stop func() error, err error) {
	dir := filepath.Join(lab.Dir, "gs")
	for directory, from := range map[string]string{"one": lab.Data.One, "many": lab.Data.Many} {
		if err := os.CopyFS(filepath.Join(dir, "bench", directory), os.DirFS(from)); err != nil {
			return nil, "", nil, err
		}
	}
	server, err := servers.StartFakeGCS(ctx, servers.FakeGCSOptions{Dir: dir, Progress: lab.Log})
	if err != nil {
		return nil, "", nil, err
	}
	defer closeOn(&err, server.Close)
	s := site{lab: lab, name: "gs", url: "gs://bench/", env: server.Env(), peer: "rclone"}
	s.get, s.put, s.remove, note, err = rclone(ctx, lab, func(directory string) string { return ":gcs:bench/" + directory },
		"--gcs-endpoint="+server.Endpoint+"/storage/v1/", "--gcs-anonymous", "--gcs-no-check-bucket")
	if err != nil {
		return nil, "", nil, err
	}
	return s.rows(), "fake-gcs-server; " + note, func() error { return errors.Join(server.Close(), os.RemoveAll(dir)) }, nil
}

// az is beside rclone, with Azurite.
func az(ctx context.Context, lab *Lab) (rows []Row, note string, stop func() error, err error) {
	if err := servers.Install(ctx, "az", lab.Log); err != nil {
		return nil, "", nil, err
	}
	server, err := servers.StartAzurite(ctx, servers.AzuriteOptions{Containers: []string{"bench"}})
	if err != nil {
		return nil, "", nil, err
	}
	defer closeOn(&err, server.Close)
	s := site{lab: lab, name: "az", url: "az://bench/", env: server.Env(), peer: "rclone"}
	s.get, s.put, s.remove, note, err = rclone(ctx, lab, func(directory string) string { return ":azureblob:bench/" + directory },
		"--azureblob-endpoint="+server.Endpoint, "--azureblob-account="+server.Account, "--azureblob-key="+server.Key)
	if err != nil {
		return nil, "", nil, err
	}
	if err := s.load(); err != nil {
		return nil, "", nil, err
	}
	return s.rows(), "Azurite, which needs most of the time; " + note, server.Close, nil
}

// sftp is beside rclone and OpenSSH's own client.
func sftp(ctx context.Context, lab *Lab) (rows []Row, note string, stop func() error, err error) {
	if err := servers.Install(ctx, "sftp", lab.Log); err != nil {
		return nil, "", nil, err
	}
	client, err := servers.Client(ctx, "sftp", "openssh-client", lab.Log)
	if err != nil {
		return nil, "", nil, err
	}
	server, err := servers.StartSSHD(ctx, servers.SSHDOptions{})
	if err != nil {
		return nil, "", nil, err
	}
	defer closeOn(&err, server.Close)
	_, port, _ := net.SplitHostPort(server.Address) // it was made from them
	env := environment(server.Env())
	s := site{lab: lab, name: "sftp", url: "sftp://" + server.User + "@" + server.Address + server.Dir + "/", env: server.Env(), dir: server.Dir, peer: "rclone"}
	s.get, s.put, _, note, err = rclone(ctx, lab, func(directory string) string { return ":sftp:" + filepath.Join(server.Dir, directory) },
		"--sftp-host=127.0.0.1", "--sftp-port="+port, "--sftp-user="+server.User, "--sftp-key-file="+env["SSH_PRIVATE_KEY"], "--sftp-known-hosts-file="+env["SSH_KNOWN_HOSTS"])
	if err != nil {
		return nil, "", nil, err
	}
	if err := s.load(); err != nil {
		return nil, "", nil, err
	}
	rows = s.rows()
	openssh := s
	openssh.peer = "OpenSSH sftp"
	openssh.get = func(from, to string) *exec.Cmd {
		return exec.Command(client, "-q", "-r", "-P", port, "-i", env["SSH_PRIVATE_KEY"], "-o", "UserKnownHostsFile="+env["SSH_KNOWN_HOSTS"], //nolint:noctx // measure runs it
			fmt.Sprintf("%s@127.0.0.1:%s/*", server.User, filepath.Join(server.Dir, from)), to)
	}
	return append(rows, openssh.readings()...), "OpenSSH; " + note, server.Close, nil
}

// web is beside curl and aria2c, which are given all names; stager reads the index page.
func web(ctx context.Context, lab *Lab) (rows []Row, note string, stop func() error, err error) {
	if err := servers.Install(ctx, "http", lab.Log); err != nil {
		return nil, "", nil, err
	}
	curl, err := servers.Client(ctx, "curl", "curl", lab.Log)
	if err != nil {
		return nil, "", nil, err
	}
	aria, err := servers.Client(ctx, "aria2c", "aria2", lab.Log)
	if err != nil {
		return nil, "", nil, err
	}
	server, err := servers.StartWeb(ctx, servers.WebOptions{Dir: filepath.Dir(lab.Data.One)})
	if err != nil {
		return nil, "", nil, err
	}
	defer closeOn(&err, server.Close)
	s := site{lab: lab, name: "http", url: server.URL + "/", peer: "curl --parallel"}
	s.get = func(from, to string) *exec.Cmd {
		names := "one.bin"
		if from == "many" {
			names = fmt.Sprintf("[00000-%05d].bin", lab.Data.Files-1)
		}
		cmd := exec.Command(curl, "--silent", "--fail", "--parallel", "--parallel-max", "16", "--remote-name", server.URL+"/"+from+"/"+names) //nolint:noctx // measure runs it
		cmd.Dir = to
		return cmd
	}
	split := s
	split.peer = "aria2c"
	lists := map[string]string{"one": filepath.Join(lab.Dir, "one.urls"), "many": filepath.Join(lab.Dir, "many.urls")}
	for directory, list := range lists {
		if err := writeURLs(list, server.URL+"/"+directory+"/", filepath.Join(server.Dir, directory)); err != nil {
			return nil, "", nil, err
		}
	}
	split.get = func(from, to string) *exec.Cmd {
		return exec.Command(aria, "--quiet", "--max-concurrent-downloads=16", "--split=16", "--max-connection-per-server=16", "--file-allocation=none", "--dir="+to, "--input-file="+lists[from]) //nolint:noctx // measure runs it
	}
	return append(s.readings(), split.readings()...), "nginx; " + versionOf(curl, "--version") + "; " + versionOf(aria, "--version"), server.Close, nil
}

// ftp is beside lftp.
func ftp(ctx context.Context, lab *Lab) (rows []Row, note string, stop func() error, err error) {
	if err := servers.Install(ctx, "ftp", lab.Log); err != nil {
		return nil, "", nil, err
	}
	lftp, err := servers.Client(ctx, "lftp", "lftp", lab.Log)
	if err != nil {
		return nil, "", nil, err
	}
	server, err := servers.StartFTP(ctx, servers.FTPOptions{})
	if err != nil {
		return nil, "", nil, err
	}
	defer closeOn(&err, server.Close)
	for directory, from := range map[string]string{"one": lab.Data.One, "many": lab.Data.Many} {
		if err := os.CopyFS(filepath.Join(server.Dir, directory), os.DirFS(from)); err != nil {
			return nil, "", nil, err
		}
	}
	s := site{lab: lab, name: "ftp", url: server.URL(""), env: server.Env(), peer: "lftp"}
	s.get = func(from, to string) *exec.Cmd {
		script := fmt.Sprintf("mirror --parallel=16 --use-pget-n=8 /%s/ %s", from, to)
		return exec.Command(lftp, "-e", script+"; quit", "ftp://"+server.Address) //nolint:noctx // measure runs it
	}
	return s.readings(), "vsftpd; " + versionOf(lftp, "--version"), server.Close, nil
}

// git is beside a clone of one commit, which keeps the objects as well.
func git(ctx context.Context, lab *Lab) (rows []Row, note string, stop func() error, err error) {
	if err := servers.Install(ctx, "git", lab.Log); err != nil {
		return nil, "", nil, err
	}
	client, err := servers.Client(ctx, "git", "git", lab.Log)
	if err != nil {
		return nil, "", nil, err
	}
	server, err := servers.StartGit(ctx, servers.GitOptions{Dir: filepath.Join(lab.Dir, "git")})
	if err != nil {
		return nil, "", nil, err
	}
	defer closeOn(&err, server.Close)
	repository := filepath.Join(server.Dir, "many")
	if err := os.CopyFS(repository, os.DirFS(lab.Data.Many)); err != nil {
		return nil, "", nil, err
	}
	if _, err := servers.MakeGit(ctx, repository); err != nil {
		return nil, "", nil, err
	}
	s := site{lab: lab, name: "git", url: server.URL(""), env: server.Env(), peer: "git clone --depth 1"}
	s.get = func(from, to string) *exec.Cmd {
		return exec.Command(client, "clone", "--quiet", "--depth=1", "http://"+server.Address+"/"+from, to) //nolint:noctx // measure runs it
	}
	return []Row{s.reading(lab.Data.many())}, "git http-backend; " + versionOf(client, "--version"),
		func() error { return errors.Join(server.Close(), os.RemoveAll(server.Dir)) }, nil
}

// writeURLs writes a file of the URLs of a directory's files, one on a line.
func writeURLs(list, url, dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	var text strings.Builder
	for _, e := range entries {
		text.WriteString(url + e.Name() + "\n")
	}
	return os.WriteFile(list, []byte(text.String()), 0o644)
}

// environment are variables by name.
func environment(env []string) map[string]string {
	all := make(map[string]string)
	for _, one := range env {
		name, value, _ := strings.Cut(one, "=")
		all[name] = value
	}
	return all
}

// closeOn ends a server if its suite could not start.
func closeOn(err *error, stop func() error) {
	if *err != nil {
		*err = errors.Join(*err, stop())
	}
}
