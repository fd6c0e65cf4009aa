package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stager-dev/stager/backends/conformance/live"
	"github.com/stager-dev/stager/e2e/release"
	"github.com/stager-dev/stager/e2e/room"
	"github.com/stager-dev/stager/e2e/servers"
)

// inside is the variable that tells the test that it runs in namespaces of its own,
// and in which directory.
const inside = "STAGER_TEST_CLUSTER_DIR"

// What a test may ask for, by its name in STAGER_TEST_REQUIRE.
const (
	apiServer = "apiserver" // an API server, which runs nothing
	oneNode   = "cluster"   // and a node, for jobs
)

// under is the cluster of all tests; nil when nobody asked for one.
var under *cluster

func wanted(name string) bool {
	return slices.Contains(strings.Split(os.Getenv("STAGER_TEST_REQUIRE"), ","), name)
}

func TestMain(m *testing.M) {
	if !wanted(apiServer) && !wanted(oneNode) {
		os.Exit(m.Run())
	}
	run := outside
	if os.Getenv(inside) != "" {
		run = func() (int, error) { return withControl(m) }
	}
	code, err := run()
	if err != nil {
		fmt.Fprintln(os.Stderr, "cluster:", err)
		code = 1
	}
	os.Exit(code)
}

// outside builds what needs the internet and starts this test again in namespaces.
func outside() (code int, err error) {
	if err := Possible(); err != nil {
		return 0, err
	}
	dir, err := os.MkdirTemp("", "stager-cluster-")
	if err != nil {
		return 0, err
	}
	defer func() {
		if code != 0 {
			fmt.Fprintf(os.Stderr, "cluster: what its parts said is in %s\n", dir)
			err = errors.Join(err, keepLogs(dir))
		} else {
			err = errors.Join(err, os.RemoveAll(dir))
		}
	}()
	bin := filepath.Join(dir, "bin")
	if err := os.Mkdir(bin, 0o755); err != nil {
		return 0, err
	}
	ctx := context.Background()
	if err := build(ctx, bin, wanted(oneNode), os.Stderr); err != nil {
		return 0, err
	}
	if wanted(oneNode) {
		if err := servers.Install(ctx, "s3", os.Stderr); err != nil {
			return 0, err
		}
		if _, err := servers.BuildProgram(ctx, "helm-4", os.Stderr); err != nil {
			return 0, err
		}
		if err := makeRelease(ctx, filepath.Join(dir, releaseDir)); err != nil {
			return 0, err
		}
	}
	return isolated(dir, []string{inside + "=" + dir}, os.Args...)
}

// A release for the node, whose chart installs its image without a value.
const (
	releaseDir     = "release"
	releaseVersion = "0.1.0"
	releaseImage   = "localhost/stager-release"
)

func makeRelease(ctx context.Context, dir string) error {
	return release.Make(ctx, release.Options{
		Source: "../..", Out: dir, Version: releaseVersion, Date: time.Unix(1780000000, 0), Repository: releaseImage,
		Platforms: []release.Platform{{System: "linux", Arch: runtime.GOARCH}},
	})
}

// withControl starts the API server and runs the tests.
func withControl(m *testing.M) (int, error) {
	dir := os.Getenv(inside)
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	var err error
	if under, err = startControl(ctx, dir, filepath.Join(dir, "bin")); err != nil {
		return 0, err
	}
	return room.Run(m), nil
}

// keepLogs removes all but what the parts of the cluster said.
func keepLogs(dir string) error {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		if filepath.Ext(e.Name()) != ".log" {
			err = errors.Join(err, os.RemoveAll(filepath.Join(dir, e.Name())))
		}
	}
	return err
}

// asked gives a test the cluster there is, with what it asks for; where nobody asked
// for that it is skipped.
func asked(t *testing.T, what string) *cluster {
	t.Helper()
	if under == nil || what == oneNode && !wanted(oneNode) {
		live.Require(t, what, errors.New("it builds Kubernetes; make test and make test-cluster ask for it, as root"))
	}
	return under
}
