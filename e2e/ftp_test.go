package e2e

import (
	"context"
	"path/filepath"

	"github.com/rogpeppe/go-internal/testscript"
)

// ftp is a ProFTPD that demands TLS: $FTP is the URL of a directory of the script's own, up to its
// parameters, $CA those, and $FTP_FILES where it lies.
//
//	ftp down 2s    it is killed, and there again after so long
func ftpCmd(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, !neg && (len(args) == 0 || len(args) == 2 && args[0] == "down"), "ftp [down TIME]")
	s := real.ftp.take(ts)
	if len(args) == 2 {
		away(ts, args[1], s.Kill, func() error { return s.Start(context.Background()) })
		return
	}
	setenv(ts, s.Env())
	ts.Setenv("FTP", "ftps://"+s.Address+"/"+of(ts).directory)
	ts.Setenv("CA", "?ca-bundle="+s.CA)
	ts.Setenv("FTP_FILES", filepath.Join(s.Dir, of(ts).directory))
}
