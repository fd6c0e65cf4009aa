package trial

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// sourceScenes are works of stager whose source is the file system of which calls fail, and
// whose result lies on the machine's own disk.
var sourceScenes = []scene{
	{
		name: "prefetch of a failing source", prepare: sourceOnStage,
		run: func(s *stage) (int, error) {
			return s.run("prefetch", "--retry-for", "1s", "file://"+s.mnt+"/src/", s.dir+"/to")
		},
		judge: func(s *stage, _ []string, _ bool) error { return haveLocalBodies(s.dir+"/to", "") },
	},
	{
		name: "push of a failing source", prepare: sourceOnStage,
		run: func(s *stage) (int, error) {
			return s.run("push", "--retry-for", "1s", s.mnt+"/src", "file://"+s.dir+"/to/")
		},
		judge: func(s *stage, _ []string, _ bool) error { return haveLocalBodies(s.dir+"/to", "") },
	},
	{
		name: "copy of a failing source", prepare: sourceOnStage,
		run: func(s *stage) (int, error) {
			return s.run("copy", "--retry-for", "1s", "file://"+s.mnt+"/src/", "file://"+s.dir+"/to/")
		},
		judge: func(s *stage, _ []string, _ bool) error { return haveLocalBodies(s.dir+"/to", "") },
	},
	{
		name: "restore from a failing store",
		prepare: func(dir string, s *stage) error {
			return errors.Join(writeBodies(dir+"/step-2", "2"), s.expect("push", "--commit", dir+"/step-2", "file://"+s.mnt+"/store/"))
		},
		run: func(s *stage) (int, error) {
			return s.run("restore", "--retry-for", "1s", "file://"+s.mnt+"/store/", s.dir+"/ckpt")
		},
		judge: func(s *stage, _ []string, _ bool) error { return haveLocalBodies(s.dir+"/ckpt", "2") },
	},
	{
		name: "window of a failing source", run: readFailingSource, judge: judgeWindow,
		prepare: func(_ string, s *stage) error { return writeShards(s.mnt + "/src") },
	},
}

// readFailingSource reads a window on the machine's own disk.
func readFailingSource(s *stage) (int, error) {
	return readWindow(s, strings.NewReplacer("DIR/src", "MNT/src", "MNT/win", s.dir+"/win").Replace(windowSpec))
}

// sourceOnStage makes a source on the file system.
func sourceOnStage(_ string, s *stage) error { return writeBodies(s.mnt+"/src", "") }

// haveLocalBodies compares what lies below a directory of the machine's own disk.
func haveLocalBodies(dir, salt string) (errs error) {
	for name, body := range lossyBodies {
		got, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil || string(got) != salt+body {
			errs = errors.Join(errs, fmt.Errorf("%s/%s has %.24q… of %d bytes (%w), want %.24q… of %d", dir, name, got, len(got), err, salt+body, len(salt+body)))
		}
	}
	return errs
}
