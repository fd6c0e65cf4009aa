package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync/atomic"
	"text/tabwriter"
	"time"

	"github.com/dustin/go-humanize/english"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/stager/checkpoint"
)

type checkpointsCmd struct {
	storing
	shape
	Dst    string `arg:"" help:"Checkpoint location, such as s3://bucket/runs/7/."`
	Step   int64  `help:"Show only this step." default:"-1" env:"STAGER_CHECKPOINTS_STEP"`
	Verify bool   `help:"Read every byte and compare checksums." env:"STAGER_CHECKPOINTS_VERIFY"`
}

// Help returns the detailed help.
func (checkpointsCmd) Help() string {
	return `Lists checkpoints, newest first. States:

  committed    complete; restore uses it
  provisional  completeness was inferred from a quiet period; restore uses
               it if it has the same files as the final one before it
  damaged      a committed file is missing or wrong; restore skips it
  partial      being uploaded, or abandoned

Sizes are always compared, bytes with --verify. Exits with 76 if a step is damaged.

    stager checkpoints s3://runs/today/ckpt/
    stager checkpoints --verify -o json s3://runs/today/ckpt/ | jq 'select(.committed)'`
}

func (c checkpointsCmd) Run(ctx context.Context, log *slog.Logger, to *console) error {
	store, err := c.open(ctx, c.Dst, log)
	if err != nil {
		return err
	}
	defer store.Close() // only read from
	steps, err := checkpoint.Steps(ctx, store)
	if err != nil {
		return err
	}
	if c.Step >= 0 {
		chosen := steps[:0]
		for _, s := range steps {
			if s.Step == c.Step {
				chosen = append(chosen, s)
			}
		}
		steps = chosen
	}
	if len(steps) == 0 {
		return &backends.Error{Op: "list", Store: store.Name(), Kind: backends.NotExist, Err: errors.New("there is no checkpoint here")}
	}
	if c.Verify {
		if steps, err = c.verify(ctx, store, steps, newDisplay(to, log)); err != nil {
			return err
		}
	}
	if err := c.print(os.Stdout, steps); err != nil {
		return err
	}
	var damaged []error
	for _, s := range steps {
		if s.Problem != "" {
			damaged = append(damaged, fmt.Errorf("step %d: %s", s.Step, s.Problem))
		}
	}
	if len(damaged) > 0 {
		return &backends.Error{Op: "check", Store: store.Name(), Kind: backends.Corrupt, Err: errors.Join(damaged...)}
	}
	return nil
}

// verify reads the records of the steps. It omits those that are removed meanwhile.
func (c checkpointsCmd) verify(ctx context.Context, store *backends.Store, steps []checkpoint.StepInfo, show *display) (there []checkpoint.StepInfo, err error) {
	defer show.close()
	var total int64
	for _, s := range steps {
		if s.Committed && s.Problem == "" {
			total += s.Bytes
		}
	}
	var done atomic.Int64
	for _, s := range steps {
		if !s.Committed || s.Problem != "" {
			there = append(there, s)
			continue
		}
		err := checkpoint.Verify(ctx, store, s.Dir, func(n int64) {
			show.update(moving{Phase: "reading", Bytes: done.Add(n), BytesTotal: total})
		})
		switch {
		case errors.Is(err, checkpoint.ErrRemoved):
			continue
		case err == nil:
			s.Verified = true
		case checkpoint.Bad(err):
			s.Problem = err.Error()
		default:
			return nil, err
		}
		there = append(there, s)
	}
	return there, nil
}

func (c checkpointsCmd) print(w io.Writer, steps []checkpoint.StepInfo) error {
	if c.structured() {
		for _, s := range steps {
			if err := c.item(w, s); err != nil {
				return err
			}
		}
		return nil
	}
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(out, "STEP\tSTATE\tSIZE\tSHARED\tFILES\tNODES\tAGE\tEVIDENCE\tVERIFIED\tDIR")
	for _, s := range steps {
		state, nodes, age, verified := "partial", "–", "–", "–"
		switch {
		case s.Problem != "":
			state, verified = "damaged", "no"
		case s.Committed:
			state, verified = "committed", "size"
			if s.Provisional {
				state = "provisional"
			}
		}
		if s.Committed {
			nodes, age = fmt.Sprint(s.Nodes), time.Since(s.Created).Round(time.Second).String()
		}
		if s.Verified {
			verified = "bytes"
		}
		fmt.Fprintf(out, "%d\t%s\t%s\t%s\t%d\t%s\t%s\t%s\t%s\t%s\n", s.Step, state, size(s.Bytes), size(s.Shared), s.Files, nodes, age, cmp.Or(s.Evidence, "–"), verified, s.Dir)
	}
	return out.Flush()
}

type pruneCmd struct {
	storing
	shape
	rehearsing
	Dst     string `arg:"" help:"Checkpoint location, such as s3://bucket/runs/7/."`
	Last    int    `help:"Number of newest committed steps to keep, at least 1." required:"" env:"STAGER_KEEP_LAST"`
	Every   int64  `help:"Also keep every step divisible by N." placeholder:"N" env:"STAGER_KEEP_EVERY"`
	Best    int    `help:"Also keep the N best steps by --metric." placeholder:"N" env:"STAGER_KEEP_BEST"`
	Metric  string `help:"Metric, recorded in completion markers, that ranks steps." env:"STAGER_KEEP_METRIC"`
	Highest bool   `help:"Rank higher values first. Default: lower first." env:"STAGER_KEEP_HIGHEST"`

	Abandoned time.Duration `help:"Remove incomplete uploads without activity for this long; 0 only if nothing else writes here." default:"24h" env:"STAGER_PRUNE_ABANDONED"`
	Foreign   string        `help:"Incomplete multipart uploads that may belong to other programs: keep, list or remove. Removes only those older than --abandoned." default:"keep" enum:"keep,list,remove" env:"STAGER_PRUNE_FOREIGN"`
}

// Help returns the detailed help.
func (pruneCmd) Help() string {
	return `Removes old steps, abandoned uploads older than the newest committed step, temporary files, and incomplete multipart uploads of stager's own. Other multipart uploads may belong to other programs and are kept; --foreign lists or removes them. Files that a kept step shares with removed ones are kept. Files that stager did not write are never touched.

    stager prune --last 3 --dry-run s3://runs/today/ckpt/
    stager prune --last 3 --every 10000 --best 2 --metric loss s3://runs/today/ckpt/`
}

func (c pruneCmd) Run(ctx context.Context, log *slog.Logger) error {
	switch {
	case c.Last < 1 || c.Every < 0 || c.Best < 0 || c.Abandoned < 0:
		return &usageError{errors.New("--last must be at least 1, and no value may be negative")}
	case (c.Best > 0) != (c.Metric != ""):
		return &usageError{errors.New("--best and --metric must be set together")}
	}
	store, err := c.openToWrite(ctx, c.Dst, log)
	if err != nil {
		return err
	}
	defer store.Close() // each removal was confirmed
	gone, err := checkpoint.Prune(ctx, checkpoint.PruneConfig{
		Store: store, DryRun: c.DryRun, Log: log, Abandoned: c.Abandoned, Foreign: checkpoint.Foreign(c.Foreign),
		Keep: checkpoint.Keep{Last: c.Last, Every: c.Every, Best: c.Best, Metric: c.Metric, Highest: c.Highest},
	})
	if err != nil {
		return err
	}
	return c.print(gone, store.Name(), log)
}

// print writes what was removed or listed to standard output.
func (c pruneCmd) print(gone []checkpoint.Pruned, store string, log *slog.Logger) (err error) {
	did := "removed"
	if c.DryRun {
		did = "would be removed"
	}
	steps, bytes := 0, int64(0)
	for _, p := range gone {
		word, state, dir := did, "partial", p.Dir
		switch {
		case p.Foreign:
			state, dir = "a multipart upload, maybe of another program", fmt.Sprintf("%q", p.Key)
		case p.Committed:
			state = "committed"
		case p.Unfinished:
			state = "unfinished"
		case p.Step < 0:
			state = "records of former nodes"
		}
		if p.Kept {
			word = "kept"
		} else {
			steps, bytes = steps+1, bytes+p.Bytes
		}
		if dir == "" {
			dir = "outside the steps"
		}
		if c.structured() {
			err = c.item(os.Stdout, p)
		} else {
			_, err = fmt.Printf("%s %s: %s, %s, %s\n", word, dir, state, english.Plural(p.Objects, "object", ""), size(p.Bytes))
		}
		if err != nil {
			return err
		}
	}
	log.Info(did, "steps", steps, "bytes", backends.Size(bytes), "destination", store)
	return nil
}
