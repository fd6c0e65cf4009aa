package e2e

import (
	"context"

	"github.com/rogpeppe/go-internal/testscript"
)

// az is an Azurite: $AZ is the URL of a directory of the script's own.
//
//	az down 2s    it is stopped, and there again after so long
func azCmd(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, !neg && (len(args) == 0 || len(args) == 2 && args[0] == "down"), "az [down TIME]")
	s := real.az.take(ts)
	if len(args) == 2 {
		away(ts, args[1], s.Kill, func() error { return s.Start(context.Background()) })
		return
	}
	setenv(ts, s.Env())
	ts.Setenv("AZ", "az://test/"+of(ts).directory)
}
