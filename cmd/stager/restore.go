package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/stager/checkpoint"
	"github.com/stager-dev/stager/stager/plan"
	"github.com/stager-dev/stager/window"
	"github.com/stager-dev/stager/window/disk"
)

type restoreCmd struct {
	rehearsing
	storing
	shape
	socket
	patient
	Src         string `arg:"" help:"Checkpoint location, such as s3://bucket/runs/7/."`
	Dst         string `arg:"" help:"Local directory for the checkpoint's files; created if missing." type:"path"`
	Step        int64  `help:"Restore only this step. Default: the newest valid one." default:"-1" env:"STAGER_RESTORE_STEP"`
	Optional    bool   `help:"Exit with 0 if there is no committed checkpoint yet. Other problems are still errors." env:"STAGER_RESTORE_OPTIONAL"`
	Node        int    `help:"Prefer this node's files if several nodes saved different files with the same name." default:"-1" env:"STAGER_RESTORE_NODE"`
	Write       string `help:"How to write large files: direct (O_DIRECT), buffered (page cache), or auto (measured on ext4 and xfs)." enum:"auto,direct,buffered" default:"auto" env:"STAGER_RESTORE_WRITE"`
	Overwrite   bool   `help:"Replace and remove files in DST that were changed or not written by a restore." env:"STAGER_RESTORE_OVERWRITE"`
	Provisional bool   `name:"allow-provisional" help:"Also restore a provisional step, whose completeness was inferred from a quiet period only." env:"STAGER_RESTORE_ALLOW_PROVISIONAL"`
	Alone       bool   `help:"Restore the newest valid step without agreeing with the other nodes of the job." env:"STAGER_RESTORE_ALONE"`
	Rewind      bool   `help:"Rewind the inputs of the stager on --socket to their position at the checkpoint." env:"STAGER_RESTORE_REWIND"`
}

// Help returns the detailed help.
func (restoreCmd) Help() string {
	return `Restores the newest committed checkpoint whose bytes are all valid; skips invalid ones with a warning. DST receives all of it or nothing; RESTORED.json names the step. Files in DST that were changed or not written by a restore are never replaced without --overwrite (exit code 78). A concurrent restore into DST exits with 75.

In a job of several nodes, all nodes restore the same step, even if another is committed meanwhile. The job is identified by STAGER_JOB_UID, SLURM_JOB_ID or AWS_BATCH_JOB_ID, the node by STAGER_INDEX and STAGER_COUNT or its launcher's variables. The agreement is a record below nodes/ in SRC; without write permission, an existing agreement is followed.

--dry-run chooses the step without reading its files, looking at DST or agreeing with other nodes.

    stager restore s3://runs/today/ckpt/ ./ckpt
    stager restore --optional --rewind s3://runs/$JOB/ckpt/ /newest && exec ./train --resume /newest`
}

func (c restoreCmd) Run(ctx context.Context, log *slog.Logger, to *console) error {
	if c.Optional && c.Step >= 0 {
		return &usageError{errors.New("--step and --optional are mutually exclusive")}
	}
	if c.Secrets == "" {
		c.Secrets = os.Getenv("STAGER_RESTORE_SECRETS")
	}
	store, err := c.open(ctx, c.Src, log)
	if err != nil {
		return err
	}
	defer store.Close() // all writes are complete
	restored, err := c.restore(ctx, checkpoint.RestoreConfig{
		Store: store, Dir: c.Dst, Step: c.Step, Node: c.Node, Overwrite: c.Overwrite, AllowProvisional: c.Provisional, Write: disk.Write(c.Write), Log: log,
	}, to)
	if c.Optional && backends.Empty(err) {
		log.Info("nothing to restore", "why", strings.ReplaceAll(err.Error(), "\n", "; "))
		if c.structured() {
			return c.line(nil)
		}
		return nil
	}
	if err != nil {
		return err
	}
	if c.Rewind && !c.DryRun {
		if err := c.rewind(ctx, restored, log); err != nil {
			return err
		}
	}
	if c.structured() {
		return c.line(restored)
	}
	if c.DryRun {
		_, err := fmt.Printf("would restore step %d (%s, %s) to %s\n", restored.Step, files(len(restored.Files)), size(restored.Bytes), printable(c.Dst))
		return err
	}
	log.Info("restored", "step", restored.Step, "files", len(restored.Files), "bytes", backends.Size(restored.Bytes), "to", c.Dst)
	return nil
}

// restore restores, or with --dry-run returns what would be restored.
func (c restoreCmd) restore(ctx context.Context, cfg checkpoint.RestoreConfig, to *console) (checkpoint.Restored, error) {
	if c.DryRun {
		return checkpoint.RehearseRestore(ctx, cfg)
	}
	show := newDisplay(to, cfg.Log)
	defer show.close()
	cfg.Among = c.among(cfg.Store.Name(), cfg.Log)
	cfg.Progress = func(done, total int64) { show.update(moving{Phase: "restoring", Bytes: done, BytesTotal: total}) }
	return checkpoint.Restore(ctx, cfg)
}

// agreePatience is how long a restore waits for nodes that must restore again.
const agreePatience = 30 * time.Second

// agreedPatience is how long a restore waits for a daemon that is starting.
const agreedPatience = 10 * time.Second

// among determines which node of a job this is. If that is unknown, the node restores alone.
func (c restoreCmd) among(source string, log *slog.Logger) checkpoint.Among {
	if c.Alone {
		return checkpoint.Among{}
	}
	job, _ := plan.JobIdentity(os.Getenv)
	node, _, err := plan.ShardSpec{}.Resolve(os.Getenv)
	switch {
	case err != nil && job != "":
		log.Warn("cannot tell which of several nodes this is, restoring without agreeing with the other nodes", "reason", err)
		return checkpoint.Among{}
	case err != nil || node.Count < 2:
		return checkpoint.Among{}
	case job == "":
		log.Warn("job identity unknown, restoring without agreeing with the other nodes: set STAGER_JOB_UID to the same value on all nodes, different for each job",
			"node", node.Index, "nodes", node.Count)
		return checkpoint.Among{}
	}
	attempt := (&plan.StagePlan{}).Vars(node, time.Time{}, os.Getenv)["attempt"]
	return checkpoint.Among{
		Job: job, Index: node.Index, Count: node.Count, Pod: podID(os.Getenv, attempt), Empty: c.Optional, Patience: agreePatience,
		Agreed: func(ctx context.Context, agreement int) {
			c.reportAgreed(ctx, url.Values{"source": {source}, "job": {job}, "agreement": {strconv.Itoa(agreement)}}, log)
		},
	}
}

// reportAgreed tells the daemon that this node begins again, if there is a daemon: what its outputs
// contain now was written before. It does not retry for long, because a node without a daemon
// restores, too.
func (c restoreCmd) reportAgreed(ctx context.Context, query url.Values, log *slog.Logger) {
	if _, err := os.Stat(c.path()); errors.Is(err, fs.ErrNotExist) && c.Socket == "" {
		return
	}
	p := patient{min(c.Patience, agreedPatience)}
	err := p.insist(ctx, func() error {
		_, _, err := c.call(ctx, http.MethodPost, "/v1/restored", query, nil, nil)
		return err
	})
	if err != nil && ctx.Err() == nil {
		log.Warn("cannot tell the running stager that this node restores: files written before may count as written afterwards", "socket", c.path(), "error", err)
	}
}

// rewind passes the cursors of a checkpoint to the daemon, so that a trainer that starts from it
// need not know of them.
func (c restoreCmd) rewind(ctx context.Context, to checkpoint.Restored, log *slog.Logger) error {
	if len(to.Cursors) == 0 {
		log.Warn("checkpoint has no input positions, not rewinding", "step", to.Step)
	}
	for _, name := range slices.Sorted(maps.Keys(to.Cursors)) {
		var at window.Cursor
		err := c.insist(ctx, func() error {
			_, _, err := c.call(ctx, http.MethodPut, "/v1/inputs/"+name+"/cursor", nil, to.Cursors[name], &at)
			return err
		})
		if err != nil {
			return fmt.Errorf("step %d is restored, but input %s is not rewound to it: %w", to.Step, name, err)
		}
		skip := 0
		for _, u := range at.Used {
			skip += u.Samples
		}
		log.Info("input rewound to the checkpoint", "input", name, "step", to.Step, "samples_to_skip", skip)
	}
	return nil
}
