package servers

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Programs are those of other projects that tests run, each with the package that it is built from.
var Programs = map[string]string{
	"kustomize-5.5": "sigs.k8s.io/kustomize/kustomize/v5@v5.5.0",
	"kustomize":     "sigs.k8s.io/kustomize/kustomize/v5@v5.8.2",
	"helm-3":        "helm.sh/helm/v3/cmd/helm@v3.22.0",
	"helm-4":        "helm.sh/helm/v4/cmd/helm@v4.3.1",
	"krew":          "sigs.k8s.io/krew/cmd/krew@v0.4.3",
}

// Program returns the path of a program that was built.
func Program(name string) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	dir := programDir(cache, name)
	if built, err := filepath.Glob(filepath.Join(dir, "*")); err == nil && len(built) == 1 {
		return built[0], nil
	}
	return "", fmt.Errorf("%s is not built", name)
}

func programDir(cache, name string) string {
	return filepath.Join(cache, "stager-test-servers", "tools", strings.ReplaceAll(Programs[name], "/", "+"))
}

// BuildProgram builds a program, once, and returns its path.
func BuildProgram(ctx context.Context, name string, progress io.Writer) (string, error) {
	if path, err := Program(name); err == nil {
		return path, nil
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	fmt.Fprintf(progress, "building %s, some minutes at most, once\n", Programs[name])
	cmd := exec.CommandContext(ctx, "go", "install", "-trimpath", "-ldflags", "-s -w", Programs[name])
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOBIN="+programDir(cache, name), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building %s: %w\n%s", Programs[name], err, out)
	}
	return Program(name)
}
