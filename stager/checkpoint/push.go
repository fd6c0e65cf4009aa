package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"github.com/stager-dev/stager/backends"
)

// PushCheckpointConfig configures PushCheckpoint.
type PushCheckpointConfig struct {
	Store       *backends.Store         // the destination, as for an Uploader
	Path        string                  // a directory or a file
	Step        int64                   // -1: the number at the end of its name
	SamplesSeen int64                   // recorded in the COMMIT
	Conflict    string                  // ConflictFail when empty
	Attempt     int                     // fencing token
	Stager      string                  // version, for the record
	Log         *slog.Logger            // nil: silent
	Progress    func(done, total int64) // receives byte counts, never concurrently; may be nil
}

// PushCheckpoint saves one complete checkpoint and returns its COMMIT. It reads the files in
// place. If one changes meanwhile, the error is of kind Changed and nothing is committed. If the
// step exists with other content, the error is of kind Exist.
func PushCheckpoint(ctx context.Context, cfg PushCheckpointConfig) (Commit, error) {
	s, c, err := cfg.job()
	if err != nil {
		return Commit{}, err
	}
	defer c.tree.close()
	commit, _, err := s.ship(ctx, c)
	return commit, err
}

// job returns the upload of the checkpoint. The caller closes its tree.
func (cfg PushCheckpointConfig) job() (s *shipper, c uploadJob, err error) {
	if err := checkConflict(cfg.Conflict); err != nil {
		return nil, c, backends.Errorf(backends.Invalid, "commit", cfg.Path, "%w", err)
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	root, only, err := openPath(cfg.Path)
	if err != nil {
		return nil, c, err
	}
	t := tree{root: root, only: only}
	defer func() {
		if err != nil {
			t.close()
		}
	}()
	files, _, err := t.files()
	if err != nil {
		return nil, c, err
	}
	if len(files) == 0 {
		return nil, c, backends.Errorf(backends.Invalid, "commit", cfg.Path, "it contains no files")
	}
	logOmitted(cfg.Log, nil, t.contentless())
	if cfg.Step < 0 {
		name, err := filepath.Abs(cfg.Path)
		if err != nil {
			return nil, c, err
		}
		step, ok := stepOf(filepath.ToSlash(name), only == "")
		if !ok {
			return nil, c, backends.Errorf(backends.Invalid, "commit", cfg.Path, "its name does not end in a number: set the step with --step")
		}
		cfg.Step = step
	}
	progress := newProgress(cfg.Progress, totalSize(files))
	s = &shipper{
		store: cfg.Store, conflict: cfg.Conflict, attempt: cfg.Attempt, stager: cfg.Stager, log: cfg.Log, moved: progress.add,
	}
	return s, uploadJob{
		id: newID(), step: cfg.Step, samples: cfg.SamplesSeen, tree: t, files: files, because: commitEvidence, completed: now(),
	}, nil
}

// openPath opens a directory, or the directory of a file. only is then the name of the file.
func openPath(path string) (root *os.Root, only string, err error) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, "", &backends.Error{Op: "push", Store: path, Kind: backends.NotExist, Err: syscall.ENOENT}
	case err != nil:
		return nil, "", err
	}
	switch {
	case info.IsDir():
		root, err = os.OpenRoot(path)
	case info.Mode().IsRegular():
		only = filepath.Base(path)
		root, err = os.OpenRoot(filepath.Dir(path))
	default:
		err = fmt.Errorf("%s is neither a directory nor a regular file (%s)", path, info.Mode().Type())
	}
	return root, only, err
}

// progress counts bytes and reports them, one call at a time.
type progress struct {
	mu          sync.Mutex // guards done; held during report
	done, total int64
	report      func(done, total int64)
}

func newProgress(tell func(done, total int64), total int64) *progress {
	p := &progress{total: total, report: tell}
	p.add(0) // report the total at once
	return p
}

func (p *progress) add(n int64) {
	if p.report == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done += n
	p.report(p.done, p.total)
}
