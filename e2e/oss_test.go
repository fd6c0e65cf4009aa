package e2e

import (
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/stager-dev/stager/e2e/servers"
	"github.com/stager-dev/stager/e2e/servers/fake"
)

// ossCmd starts the script's own double of OSS, whose bucket is oss://test and that
// verifies signatures, and has it go wrong: the next N times that METHOD is used,
// or for a while.
func ossCmd(ts *testscript.TestScript, neg bool, args []string) {
	s := of(ts)
	if s.oss == nil {
		server, err := servers.StartOSS(servers.OSSOptions{Dir: ts.MkAbs("oss"), Buckets: []string{"test", "versions", "public"}, Versions: []string{"versions"}, Public: []string{"public"}})
		ts.Check(err)
		s.oss = server
		ts.Defer(func() { server.Close() })
		setenv(ts, server.Env())
	}
	if len(args) == 0 {
		return
	}
	if args[0] == "down" && len(args) == 2 {
		d, err := time.ParseDuration(args[1])
		ts.Check(err)
		ts.Check(s.oss.Down(d))
		return
	}
	usage(ts, !neg && (len(args) == 3 || len(args) == 4), "oss [down TIME | FAULT METHOD N [BYTES]]")
	f := fake.Fault{Kind: fake.FaultKind(args[0]), Method: args[1], Times: number(ts, args[2])}
	if len(args) == 4 {
		f.Bytes = int64(number(ts, args[3]))
	}
	s.oss.Fail(f)
}
