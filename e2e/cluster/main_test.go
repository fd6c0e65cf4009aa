package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stager-dev/stager/backends/backendtest/live"
	"github.com/stager-dev/stager/e2e/servers"
)

// inside is the variable that tells the test that it runs in namespaces of its own,
// and in which folder.
const inside = "STAGER_TEST_CLUSTER_DIR"

// under is the cluster of all tests; nil when nobody asked for one.
var under *cluster

func TestMain(m *testing.M) {
	if !slices.Contains(strings.Split(os.Getenv("STAGER_TEST_REQUIRE"), ","), "cluster") {
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
	if os.Geteuid() != 0 {
		return 0, errors.New("a node needs root: namespaces, mounts, control groups")
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
	if err := buildAll(ctx, bin, os.Stderr); err != nil {
		return 0, err
	}
	if err := servers.Install(ctx, "s3", os.Stderr); err != nil {
		return 0, err
	}
	return isolated(dir, []string{inside + "=" + dir}, os.Args...)
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
	return m.Run(), nil
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

// asked gives a test the cluster there is; where nobody asked for one it is skipped.
func asked(t *testing.T) *cluster {
	t.Helper()
	if under == nil {
		live.Require(t, "cluster", errors.New("it builds Kubernetes and needs root; make test-cluster asks for it"))
	}
	return under
}
