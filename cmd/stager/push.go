package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/stager/checkpoint"
)

type pushCmd struct {
	rehearsing
	storing
	shape
	Src         string `arg:"" help:"Local file or directory." type:"path"`
	Dst         string `arg:"" help:"Destination in a store, such as s3://bucket/runs/7/."`
	Commit      bool   `help:"Publish SRC atomically as a checkpoint in DST."`
	Step        int64  `help:"Step number. Default: the number at the end of SRC's name." default:"-1"`
	SamplesSeen int64  `help:"Samples that the trainer had consumed since the job began, recorded in the checkpoint." placeholder:"N"`
	Conflict    string `help:"If DST has this step with different content: fail, overwrite or attempt-suffix." enum:"fail,overwrite,attempt-suffix" default:"fail"`
}

// Help returns the detailed help.
func (pushCmd) Help() string {
	return `Skips files that the store already has. With --commit, the directory becomes visible atomically as a checkpoint.

Saves regular files of any name, and symbolic links to files within SRC as the files. Skips stager's own files (.stager/ and .stager-tmp-*). Files that cannot be saved are listed, and the exit code is 75: names that are not UTF-8, not allowed in DST, or equal to another in DST (case, Unicode form); links that leave SRC; files removed during the push. Sockets, FIFOs, devices, empty directories and dangling links have no content and are only listed.

    stager push results/ s3://runs/today/ --dry-run
    stager push results/ s3://runs/today/
    stager push --commit step-500/ s3://runs/today/ckpt/`
}

func (c pushCmd) Run(ctx context.Context, log *slog.Logger, to *console) error {
	spareTime()
	store, err := c.openToWrite(ctx, c.Dst, log)
	if err != nil {
		return err
	}
	defer store.Close() // all writes are committed
	show := newDisplay(to, log)
	progress := func(done, total int64) { show.update(moving{Phase: "sending", Bytes: done, BytesTotal: total}) }
	if c.Commit {
		cfg := checkpoint.PushCheckpointConfig{
			Store: store, Path: c.Src, Step: c.Step, SamplesSeen: c.SamplesSeen, Conflict: c.Conflict,
			Stager: version, Log: log, Progress: progress,
		}
		if c.DryRun {
			return c.rehearseCommit(ctx, cfg)
		}
		commit, err := checkpoint.PushCheckpoint(ctx, cfg)
		show.close()
		switch {
		case c.structured() && pushed(err):
			return errors.Join(err, c.line(commit))
		case err == nil:
			log.Info("checkpoint committed", "step", commit.Step, "files", len(commit.Files), "destination", store.Name())
		}
		return err
	}
	if c.DryRun {
		return c.rehearse(ctx, checkpoint.PushConfig{Store: store, Path: c.Src})
	}
	summary, err := checkpoint.Push(ctx, checkpoint.PushConfig{Store: store, Path: c.Src, Progress: progress, Memory: pushMemory(), Log: log})
	show.close()
	switch {
	case c.structured() && pushed(err):
		return errors.Join(err, c.line(summary))
	case err == nil:
		log.Info("complete", "sent", summary.Files, "bytes", backends.Size(summary.Bytes), "there_already", summary.Unchanged, "destination", store.Name())
	}
	return err
}

// rehearse prints what push would send.
func (c pushCmd) rehearse(ctx context.Context, cfg checkpoint.PushConfig) error {
	summary, err := checkpoint.RehearsePush(ctx, cfg)
	if !pushed(err) {
		return err
	}
	if c.structured() {
		return errors.Join(err, c.line(summary))
	}
	fmt.Printf("would send %s, %s, to %s; %d there already\n", files(summary.Files), size(summary.Bytes), cfg.Store.Name(), summary.Unchanged)
	return err
}

// rehearseCommit prints which step push --commit would commit.
func (c pushCmd) rehearseCommit(ctx context.Context, cfg checkpoint.PushCheckpointConfig) error {
	commit, dir, there, err := checkpoint.RehearsePushCheckpoint(ctx, cfg)
	switch at := cfg.Store.Sub(dir).Name(); {
	case err != nil:
		return err
	case c.structured():
		return c.line(commit)
	case there:
		_, err = fmt.Printf("would commit nothing: %s has step %d already\n", at, commit.Step)
	default:
		_, err = fmt.Printf("would commit step %d (%s, %s) to %s\n", commit.Step, files(len(commit.Files)), size(commit.Bytes), at)
	}
	return err
}

// pushed reports whether all files are in the store that can be saved.
func pushed(err error) bool {
	return err == nil || errors.As(err, new(*checkpoint.OmittedError))
}

// pushMemory returns where push records what it sent: in the user's cache directory, if there is
// one.
func pushMemory() string {
	dir, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	return filepath.Join(dir, "stager", "push")
}
