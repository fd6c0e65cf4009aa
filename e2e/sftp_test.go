package e2e

import (
	"context"
	"path/filepath"

	"github.com/rogpeppe/go-internal/testscript"
)

// sftp is an OpenSSH server: $SFTP is the URL of a directory of the script's own, and $SFTP_FILES
// where it lies.
//
//	sftp down 2s    it is killed, and there again after so long
func sftpCmd(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, !neg && (len(args) == 0 || len(args) == 2 && args[0] == "down"), "sftp [down TIME]")
	s := real.sftp.take(ts)
	if len(args) == 2 {
		away(ts, args[1], s.Kill, func() error { return s.Start(context.Background()) })
		return
	}
	setenv(ts, s.Env())
	files := filepath.Join(s.Dir, of(ts).directory)
	ts.Setenv("SFTP", "sftp://"+s.Address+files)
	ts.Setenv("SFTP_FILES", files)
	ts.Setenv("SFTP_READONLY", "sftp://"+s.Address+"/etc")
}
