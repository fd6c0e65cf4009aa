package e2e

import (
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/stager-dev/stager/backends/conformance/live"
	"github.com/stager-dev/stager/e2e/room"
	"github.com/stager-dev/stager/e2e/servers"
)

// world is what all scripts share: the binary, and a server with and without TLS.
var world struct {
	stager        string // the binary
	plain, secure *servers.S3
	objects       string // the plain server's directory: each bucket is a directory in it
}

func TestMain(m *testing.M) {
	// Scripts wait more than they work.
	flag.Parse()
	if err := flag.Set("test.parallel", strconv.Itoa(max(6, runtime.GOMAXPROCS(0)))); err != nil {
		panic(err)
	}
	code, err := withWorld(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		code = 1
	}
	os.Exit(code)
}

// withWorld builds the binary, starts the servers and runs the tests.
func withWorld(m *testing.M) (code int, err error) {
	dir, err := os.MkdirTemp("", "stager-e2e-")
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := os.Chmod(dir, 0o755); err != nil { // other users run the binary
		return 0, err
	}
	world.stager = filepath.Join(dir, "bin", "stager")
	build := exec.Command("go", "build", "-o", world.stager, "./cmd/stager")
	build.Dir, build.Stderr = "..", os.Stderr
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if err := build.Run(); err != nil {
		return 0, fmt.Errorf("building stager: %w", err)
	}
	buckets, err := bucketNames()
	if err != nil {
		return 0, err
	}
	store := filepath.Join(dir, "s3")
	world.objects = filepath.Join(store, "objects")
	ctx := context.Background()
	if world.plain, err = servers.StartS3(ctx, servers.S3Options{Dir: store, Buckets: buckets}); err != nil {
		return 0, err
	}
	defer world.plain.Close()
	if world.secure, err = servers.StartS3(ctx, servers.S3Options{TLS: true, Buckets: buckets}); err != nil {
		return 0, err
	}
	defer world.secure.Close()
	defer func() { err = errors.Join(err, closeReal()) }()
	return room.Run(m), nil
}

const scripts = "testdata/script"

// bucketNames are one for each script, and for each way of the journey.
func bucketNames() (names []string, err error) {
	files, err := filepath.Glob(scripts + "/*.txtar")
	for _, f := range files {
		names = append(names, bucketOf(strings.TrimSuffix(filepath.Base(f), ".txtar")))
	}
	for _, over := range protocols {
		names = append(names, bucketOf("journey "+over))
	}
	return names, err
}

func bucketOf(script string) string {
	return "b-" + strings.NewReplacer("_", "-", " ", "-", ".", "-").Replace(script)
}

// TestScripts types commands and reads what they say. A script has a bucket of its
// own, whose URL is $S3 and whose objects lie in the directory $OBJECTS, and the product's files in $PRODUCT; commands_test.go
// has the commands beyond testscript's.
func TestScripts(t *testing.T) {
	t.Parallel()
	p := params()
	p.Dir = scripts
	testscript.Run(t, p)
}

// params are what all scripts have.
func params() testscript.Params {
	return testscript.Params{
		RequireUniqueNames: true,
		Setup:              setup,
		Condition:          condition,
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"stager":   stagerCmd,
			"nobody":   nobodyCmd,
			"start":    startCmd,
			"signal":   signalCmd,
			"ended":    endedCmd,
			"until":    untilCmd,
			"shards":   shardsCmd,
			"expand":   expandCmd,
			"https":    httpsCmd,
			"proxy":    proxyCmd,
			"fake":     fakeCmd,
			"tinydisk": tinydiskCmd,
			"oss":      ossCmd,
			"gs":       gsCmd,
			"az":       azCmd,
			"web":      webCmd,
			"ceph":     cephCmd,
			"sftp":     sftpCmd,
			"ftp":      ftpCmd,
			"git":      gitCmd,
			"smb":      smbCmd,
			"nfs":      nfsCmd,
			"hdfs":     hdfsCmd,
			"silent":   silentCmd,
			"store":    storeCmd,
			"archives": archivesCmd,
		},
	}
}

func setup(env *testscript.Env) error {
	bucket := bucketOf(strings.TrimSpace(strings.TrimPrefix(filepath.Base(env.WorkDir), "script-") + " " + env.Getenv("OVER")))
	objects := filepath.Join(world.objects, bucket)
	if err := errors.Join(os.RemoveAll(objects), os.Mkdir(objects, 0o755)); err != nil { // with -count
		return err
	}
	// For users other than this one, as nobody is.
	for _, dir := range []string{filepath.Dir(env.WorkDir), env.WorkDir} {
		if err := os.Chmod(dir, 0o755); err != nil {
			return err
		}
	}
	s := &script{started: make(map[string]*daemon), directory: strings.ToLower(rand.Text()[:8]), taken: make(map[any]bool)}
	env.Values[scriptKey{}] = s
	product, err := filepath.Abs("..")
	if err != nil {
		return err
	}
	env.Vars = append(env.Vars, world.plain.Env()...)
	env.Vars = append(env.Vars,
		"PATH="+filepath.Dir(world.stager)+string(os.PathListSeparator)+os.Getenv("PATH"),
		"AWS_EC2_METADATA_DISABLED=true",
		"STAGER_SOCKET="+filepath.Join(env.WorkDir, "sock"),
		"STAGER="+world.stager,
		"S3=s3://"+bucket, "BUCKET="+bucket,
		"S3_SERVER="+strings.TrimPrefix(world.plain.Endpoint, "http://"),
		"OBJECTS="+objects,
		"DIR="+s.directory,
		"PRODUCT="+product,
	)
	t := env.T()
	env.Defer(func() { s.close(t.Log) })
	return nil
}

// condition is [have:WHAT]: a program, root, or one of the real servers. What
// STAGER_TEST_REQUIRE lists must be there; without the rest a script says what it could
// not show.
func condition(cond string) (bool, error) {
	what, ok := strings.CutPrefix(cond, "have:")
	if !ok {
		return false, fmt.Errorf("unknown condition %q", cond)
	}
	server, err := whyNot(what)
	switch {
	case server:
	case what != "root":
		_, err = exec.LookPath(what)
	case os.Getuid() != 0:
		err = errors.New("these tests do not run as root")
	}
	if err != nil {
		return false, live.Insist(what, err)
	}
	return true, nil
}
