package servers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// Unpack fetches packages of Debian and unpacks them into a directory of the user's
// cache, with the libraries that they need and that this machine has not. Nothing is
// installed: it takes no root, no service starts, and the machine stays as it is.
func Unpack(ctx context.Context, progress io.Writer, packages ...string) (string, error) {
	dir, err := unpackedAt(packages)
	if err != nil || isUnpacked(dir) {
		return dir, err
	}
	names := strings.Join(packages, " ")
	apt, err := find("apt-get")
	if err != nil {
		return "", fmt.Errorf("%w; on Debian %s would be fetched", err, names)
	}
	fmt.Fprintln(progress, "fetching Debian's", names, "to be unpacked and not installed, once")
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return "", err
	}
	next, err := os.MkdirTemp(filepath.Dir(dir), "deb-next-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(next) // what it had is in its place
	if fetchPackages(ctx, apt, next, packages) != nil {
		refreshed := refresh(ctx, apt)
		if err := fetchPackages(ctx, apt, next, packages); err != nil {
			return "", errors.Join(refreshed, err)
		}
	}
	files, _ := filepath.Glob(filepath.Join(next, "*.deb")) // the pattern is good
	root := filepath.Join(next, "root")
	for _, file := range files {
		if _, err := outputIn(ctx, next, "dpkg", "-x", file, root); err != nil {
			return "", err
		}
	}
	// Two at once each fetch theirs; the first rename wins, and both are good.
	if err := os.Rename(root, dir); err != nil && !isUnpacked(dir) {
		return "", err
	}
	return dir, nil
}

// refresh fetches the lists of packages.
func refresh(ctx context.Context, apt string) error {
	defer exclusive("dpkg")()
	return aptGet(ctx, apt, "update")
}

// unpackedAt is where packages lie once they are unpacked.
func unpackedAt(packages []string) (string, error) {
	cache, err := os.UserCacheDir()
	return filepath.Join(cache, "stager-test-servers", "deb-"+strings.Join(packages, "+")), err
}

func isUnpacked(dir string) bool {
	info, err := os.Stat(dir)
	return err == nil && info.IsDir()
}

// fetchPackages puts packages and the libraries they lack into dir. What else they
// would have installed, such as tools for disks and Python, stays away.
func fetchPackages(ctx context.Context, apt, dir string, packages []string) error {
	// It prints a line for each file that the cache of packages has not: its URL, its name, its
	// size and its sum. The cache is an empty one, so that no file is left out.
	plan := append([]string{"-qq", "-o", "Debug::NoLocking=true", "-o", "Dir::Cache::archives=" + dir, "--print-uris", "--no-install-recommends", "install"}, packages...)
	lines, err := outputIn(ctx, dir, apt, plan...)
	if err != nil {
		return err
	}
	names := packages
	for line := range strings.Lines(lines) {
		if fields := strings.Fields(line); len(fields) > 1 && strings.HasPrefix(line, "'") {
			name, _, _ := strings.Cut(fields[1], "_")
			if strings.HasPrefix(name, "lib") && !slices.Contains(names, name) {
				names = append(names[:len(names):len(names)], name)
			}
		}
	}
	_, err = outputIn(ctx, dir, apt, append([]string{"-qq", "download"}, names...)...)
	return err
}

// outputIn runs a command in a directory and returns what it prints.
func outputIn(ctx context.Context, dir, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("%s %s: %w\n%s", filepath.Base(name), strings.Join(args, " "), err, said.String())
	}
	return string(out), err
}
