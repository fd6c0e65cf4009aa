package servers

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
)

// Build makes the command pkg of the module in the directory dir, which says its versions and may have files of its own,
// with flags of go build, and returns the binary. It is kept in the user's cache, under
// a name made of all that goes into it. With no progress it is an error if it is not there.
func Build(ctx context.Context, dir, pkg string, progress io.Writer, flags ...string) (string, error) {
	module := filepath.Base(dir)
	key := sha256.New()
	fmt.Fprintf(key, "%s %s %q", runtime.Version(), pkg, flags)
	source, err := os.ReadDir(dir)
	if err != nil {
		return "", fmt.Errorf("the source of %s is needed to build it: %w", module, err)
	}
	for _, f := range source {
		content, err := os.ReadFile(filepath.Join(dir, f.Name()))
		if err != nil {
			return "", err
		}
		fmt.Fprintf(key, " %s %q", f.Name(), content)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	cache = filepath.Join(cache, "stager-test-servers")
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return "", err
	}
	bin := filepath.Join(cache, fmt.Sprintf("%s-%x", module, key.Sum(nil)[:6]))
	if _, err := os.Stat(bin); err == nil {
		return bin, nil
	}
	if progress == nil {
		return "", fmt.Errorf("%s is not built", module)
	}
	fmt.Fprintf(progress, "building %s, some minutes at most, once\n", module)
	// Two builders at once each make one; the last rename wins, and both are good.
	next := fmt.Sprintf("%s.%d", bin, os.Getpid())
	cmd := exec.CommandContext(ctx, "go", append(append([]string{"build", "-o", next}, flags...), pkg)...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=readonly", "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", errors.Join(fmt.Errorf("building %s: %w\n%s", module, err, out), ignoreMissing(os.Remove(next)))
	}
	return bin, os.Rename(next, bin)
}

func ignoreMissing(err error) error {
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}
