package servers

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
)

// installXFS installs what makes file systems of xfs, for tests that mount one of their own.
func installXFS(ctx context.Context, progress io.Writer) error {
	if err := needsRoot("xfs"); err != nil {
		return err
	}
	missing := func() error {
		_, err := find("mkfs.xfs")
		return err
	}
	if err := install(ctx, progress, missing, "xfsprogs"); err != nil {
		return err
	}
	if kernelHasXFS() || exec.CommandContext(ctx, "modprobe", "xfs").Run() == nil && kernelHasXFS() {
		return nil
	}
	return errors.New("the kernel of this machine has no xfs")
}

func kernelHasXFS() bool {
	known, err := os.ReadFile("/proc/filesystems")
	return err == nil && strings.Contains(string(known), "\txfs\n")
}
