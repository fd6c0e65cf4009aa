package main

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/stager/checkpoint"
)

type pushCmd struct {
	storing
	Src         string `arg:"" help:"A local file or folder." type:"path"`
	Dst         string `arg:"" help:"The folder of a store that it goes to, such as s3://bucket/runs/7/."`
	Commit      bool   `help:"Save SRC as a checkpoint of DST: it exists whole or not at all."`
	Step        int64  `help:"The checkpoint's step; without it the number at the end of SRC's name." default:"-1"`
	SamplesSeen int64  `help:"How many samples the trainer had used since the job began, for the record." placeholder:"N"`
	Conflict    string `help:"When DST has this step with other contents: fail, overwrite or attempt-suffix." enum:"fail,overwrite,attempt-suffix" default:"fail"`
	JSON        bool   `help:"Print a summary as JSON on standard output."`
}

// Help shows what is typed.
func (pushCmd) Help() string {
	return `Files that the store has already are not sent again.

Regular files of any name are saved, and symbolic links to files within SRC as these files. Stager's own are left out: directories named .stager, and names that begin with .stager-tmp-. What cannot be saved is named, and the exit code is 75 although everything else is saved: names that are not UTF-8, that DST has not, or that DST keeps as one with another (by case, or forms of characters); links that lead out of SRC; files that are removed meanwhile. Sockets, FIFOs, devices, empty directories and links that lead nowhere hold nothing to save, and are named.

    stager push results/ s3://runs/today/
    stager push --commit step-500/ s3://runs/today/ckpt/`
}

func (c pushCmd) Run(ctx context.Context, log *slog.Logger, to *console) error {
	spareTime()
	store, err := c.open(ctx, c.Dst, log)
	if err != nil {
		return err
	}
	defer store.Close() // what was written is committed
	show := newDisplay(to, log)
	progress := func(done, total int64) { show.update(moving{Phase: "sending", Bytes: done, BytesTotal: total}) }
	var summary any
	if c.Commit {
		var commit checkpoint.Commit
		commit, err = checkpoint.PushCheckpoint(ctx, checkpoint.PushCheckpointConfig{
			Store: store, Path: c.Src, Step: c.Step, SamplesSeen: c.SamplesSeen, Conflict: c.Conflict,
			Stager: version, Log: log, Progress: progress,
		})
		summary = commit
	} else {
		var pushed checkpoint.PushSummary
		pushed, err = checkpoint.Push(ctx, checkpoint.PushConfig{Store: store, Path: c.Src, Progress: progress, Memory: pushMemory(), Log: log})
		summary = pushed
	}
	show.close()
	if c.JSON && (err == nil || errors.As(err, new(*checkpoint.OmittedError))) {
		return errors.Join(err, json.NewEncoder(os.Stdout).Encode(summary))
	}
	if err != nil {
		return err
	}
	switch s := summary.(type) {
	case checkpoint.Commit:
		log.Info("the checkpoint is committed", "step", s.Step, "files", len(s.Files), "destination", store.Name())
	case checkpoint.PushSummary:
		log.Info("everything is there", "sent", s.Files, "bytes", backends.Size(s.Bytes), "there_already", s.Unchanged, "destination", store.Name())
	}
	return nil
}

// pushMemory is where push remembers what it sent: in the user's cache, if there is one.
func pushMemory() string {
	dir, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	return filepath.Join(dir, "stager", "push")
}
