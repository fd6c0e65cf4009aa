package e2e

import (
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/stager-dev/stager/e2e/servers"
	"github.com/stager-dev/stager/e2e/servers/fake"
)

// gsCmd starts the script's own fake of Google Cloud Storage, whose bucket is gs://test, and injects
// faults: the next N times that METHOD is used, or for a while. "gs expire TIME" makes all tokens
// invalid, and new ones last that long.
func gsCmd(ts *testscript.TestScript, neg bool, args []string) {
	s := of(ts)
	if s.gs == nil {
		server, err := servers.StartGS(servers.GSOptions{Buckets: []string{"test", "public"}, Public: []string{"public"}})
		ts.Check(err)
		s.gs = server
		ts.Defer(func() { server.Close() })
		setenv(ts, server.Env())
		ts.Setenv("GS_IDENTITY", server.Identity)
	}
	if len(args) == 0 {
		return
	}
	if len(args) == 2 && (args[0] == "down" || args[0] == "expire") {
		d, err := time.ParseDuration(args[1])
		ts.Check(err)
		if args[0] == "expire" {
			s.gs.SetTTL(d)
			return
		}
		ts.Check(s.gs.Down(d))
		return
	}
	usage(ts, !neg && (len(args) == 3 || len(args) == 4), "gs [down TIME | expire TIME | FAULT METHOD N [BYTES]]")
	f := fake.Fault{Kind: fake.FaultKind(args[0]), Method: args[1], Times: number(ts, args[2])}
	if len(args) == 4 {
		f.Bytes = int64(number(ts, args[3]))
	}
	s.gs.Fail(f)
}
