package trial

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/stager-dev/stager/e2e/lossyfs"
)

// vanishScenes send a directory of which entries are removed meanwhile.
var vanishScenes = []scene{
	{
		name: "push", prepare: sourceOnStage,
		run: func(s *stage) (int, error) {
			return s.run("push", "--retry-for", "1s", s.mnt+"/src", "file://"+s.dir+"/to/")
		},
		judge: func(s *stage, _ []string, _ bool) error { return haveLocalBodies(s.dir+"/to", "") },
	},
	{
		name: "push --commit", prepare: sourceOnStage,
		run: func(s *stage) (int, error) {
			return s.run("push", "--retry-for", "1s", "--commit", "--step", "1", s.mnt+"/src", "file://"+s.dir+"/to/")
		},
		judge: func(s *stage, _ []string, _ bool) error {
			if err := s.expect("restore", "file://"+s.dir+"/to/", s.dir+"/back"); err != nil {
				return err
			}
			return haveLocalBodies(s.dir+"/back", "")
		},
	},
}

// TestEntriesThatVanishAreNamed has an entry of the directory that is sent be gone from each call
// on: all that was listed is sent, or the command fails and names it. A name that was read from
// the directory and could not be looked up any more was left out, with exit code 0.
func TestEntriesThatVanishAreNamed(t *testing.T) {
	binary := build(t)
	for _, sc := range vanishScenes {
		t.Run(sc.name, func(t *testing.T) {
			dir := t.TempDir()
			ready := prepared(t, binary, dir, sc)
			for n := range countCalls(t, binary, dir, sc, ready) {
				if gone, err := vanish(binary, dir, sc, ready, n+1); err != nil {
					t.Errorf("call %d, %+v: %v", n+1, gone, err)
				}
			}
		})
	}
}

// vanish runs a scene in which the entry that the nth call is about is gone from then on.
func vanish(binary, dir string, sc scene, ready *lossyfs.FS, n int) (gone lossyfs.Call, err error) {
	s, err := mountStage(binary, dir, ready.Clone())
	if err != nil {
		return gone, err
	}
	s.fs.Inject(func(c lossyfs.Call) syscall.Errno {
		if c.N == n && strings.HasPrefix(c.Path, "src/") {
			gone = c
		}
		if gone.N > 0 && (c.Path == gone.Path || strings.HasPrefix(c.Path, gone.Path+"/")) {
			return syscall.ENOENT
		}
		return 0
	})
	code, err := sc.run(s)
	s.fs.Inject(nil)
	switch {
	case err != nil:
	case code == 0:
		err = sc.judge(s, nil, false)
	case !slices.Contains(foreseen, code):
		err = fmt.Errorf("exit code %d", code)
	case !names(s.said(), []lossyfs.Call{gone}, s):
		err = fmt.Errorf("exit code %d, and no sentence that names it", code)
	}
	if err != nil {
		err = fmt.Errorf("%w\nstager said:\n%s", err, s.said())
	}
	return gone, errors.Join(err, s.close())
}
