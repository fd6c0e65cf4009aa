package e2e

import (
	"context"
	"path/filepath"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/stager-dev/stager/e2e/servers"
)

// git is a Git server with TLS: $GIT is the URL of a repository, up to its revision, $CA its
// parameters, and $GIT_FILES where its files lie.
//
//	git            a directory for the repository
//	git commit     its files are committed; $COMMIT is the commit
//	git down 2s    the server is killed, and there again after so long
//	git private    a repository that demands credentials
func gitCmd(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, !neg && (len(args) == 0 || len(args) == 1 && (args[0] == "commit" || args[0] == "private") || len(args) == 2 && args[0] == "down"), "git [commit|private|down TIME]")
	s := real.git.take(ts)
	repo := of(ts).directory
	switch {
	case len(args) == 2:
		away(ts, args[1], s.Kill, func() error { return s.Start(context.Background()) })
		return
	case len(args) == 1 && args[0] == "commit":
		commit, err := servers.MakeGit(context.Background(), ts.Getenv("GIT_FILES"))
		ts.Check(err)
		ts.Setenv("COMMIT", commit)
		return
	case len(args) == 1:
		repo = "private/" + repo
	}
	setenv(ts, s.Env())
	ts.Setenv("GIT", s.URL(repo))
	ts.Setenv("CA", "?ca-bundle="+s.CA)
	ts.Setenv("GIT_FILES", filepath.Join(s.Dir, repo))
}
