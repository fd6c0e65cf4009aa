package main

import (
	"context"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"time"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/all"
	"github.com/stager-dev/stager/stager/layout"
	"github.com/stager-dev/stager/stager/transfer"
)

// copying has the flags that copy shares with the pods of fanout.
type copying struct {
	Src       string `arg:"" help:"Source: a directory or object in a store, such as s3://bucket/train/, or a local path."`
	Dst       string `arg:"" help:"Destination in a store, such as nfs://server/export/train/."`
	Overwrite bool   `help:"Replace files in DST that differ and that stager did not write."`
}

type copyCmd struct {
	rehearsing
	storing
	choosing
	shape
	copying
	Force       bool     `help:"Copy everything again."`
	Verify      bool     `env:"STAGER_COPY_VERIFY" help:"Compare both sides and print what is missing or differs; copy nothing."`
	ResetLayout bool     `help:"Remove the layout record in DST of workers that cannot finish; copy nothing. No worker may be running."`
	DstSecrets  string   `help:"Directory with credential files for DST. Default: --secrets, or the environment." placeholder:"DIR"`
	Buffers     quantity `help:"Memory for object data, at least 16Mi; more memory moves more parts at once." default:"32Mi"`
}

// Help returns the detailed help.
func (copyCmd) Help() string {
	return `Writes each object to DST under its key relative to SRC. Resumes when run again: identical objects are skipped, and different ones are not replaced without --overwrite. Nothing is deleted. Workers with --shard agree on the source and flags by a record in DST/.stager-copy; if the source changes between two workers, the second refuses to start.

    stager copy s3://datasets/imagenet/ nfs://efs.example/imagenet/ --include '*.tar'
    stager copy hdfs://nn:8020/logs/ s3://logs/ --shard $JOB_COMPLETION_INDEX/8
    stager copy --verify s3://datasets/imagenet/ nfs://efs.example/imagenet/`
}

func (c copyCmd) Run(ctx context.Context, log *slog.Logger, to *console) error {
	cfg, done, err := c.config(ctx, log)
	if err != nil {
		return err
	}
	defer done()
	if c.ResetLayout {
		return c.reset(ctx, cfg.Dst, transfer.CopyLayout(cfg), log)
	}
	summary, err := c.move(ctx, cfg, to, log)
	if err != nil {
		return err
	}
	return c.report(summary, log)
}

// config converts the flags. done closes the stores.
func (c copyCmd) config(ctx context.Context, log *slog.Logger) (cfg transfer.Config, done func(), err error) {
	var open []*backends.Store
	done = func() {
		for _, store := range open {
			_ = store.Close() // the source is only read, and writes to the destination are committed
		}
	}
	defer func() {
		if err != nil {
			done()
		}
	}()
	listing, err := c.listing()
	if err != nil {
		return cfg, done, err
	}
	cfg = transfer.Config{
		Listing: listing, Overwrite: c.Overwrite, Force: c.Force, DryRun: c.DryRun, Buffers: int64(c.Buffers), Log: log,
	}
	to, err := asURL(c.Dst)
	if err == nil {
		err = all.Registry().CheckDestination(to) // before the source is contacted
	}
	if err != nil {
		return cfg, done, err
	}
	if cfg.Src, err = c.open(ctx, c.Src, log); err != nil {
		return cfg, done, err
	}
	open = append(open, cfg.Src)
	toDst := c.storing
	if c.DstSecrets != "" {
		toDst.Secrets = c.DstSecrets
	}
	if cfg.Dst, err = toDst.open(ctx, c.Dst, log); err != nil {
		return cfg, done, err
	}
	open = append(open, cfg.Dst)
	switch directory, obj, err := cfg.Src.Self(ctx); {
	case err == nil:
		cfg.Src, cfg.Object = directory, &obj
	case backends.KindOf(err) != backends.NotExist:
		return cfg, done, err
	case overlap(c.Src, c.Dst):
		return cfg, done, &usageError{fmt.Errorf("%s and %s contain each other, so the copy would never end", cfg.Src.Name(), cfg.Dst.Name())}
	}
	return cfg, done, nil
}

// reset removes the record of a layout.
func (copyCmd) reset(ctx context.Context, dst *backends.Store, described layout.Layout, log *slog.Logger) error {
	found, err := layout.Reset(ctx, dst, described)
	if err == nil {
		log.Info("layout reset, run every worker again", "destination", dst.Name(), "was_recorded", found)
	}
	return err
}

// move copies or compares, and shows the progress.
func (c copyCmd) move(ctx context.Context, cfg transfer.Config, to *console, log *slog.Logger) (summary transfer.Summary, err error) {
	show := newDisplay(to, log)
	cfg.Progress = func(p transfer.Progress) {
		phase := "copying"
		if p.Listing {
			phase = "listing"
		}
		show.update(moving{phase, p.Files, p.FilesTotal, p.Bytes, p.BytesTotal, 0})
	}
	if c.Verify {
		summary, err = transfer.Verify(ctx, cfg, func(key, what string) {
			if !c.structured() {
				fmt.Printf("%q %s\n", key, what)
			}
		})
	} else {
		summary, err = transfer.Copy(ctx, cfg)
	}
	show.close()
	return summary, err
}

// report prints the result.
func (c copyCmd) report(summary transfer.Summary, log *slog.Logger) error {
	if c.structured() {
		return c.line(summary)
	}
	said := "complete"
	if c.DryRun {
		said = "nothing copied, would copy"
	}
	log.Info(said, "files", summary.Files, "bytes", backends.Size(summary.Bytes),
		"copied", summary.CopiedFiles, "there_already", summary.ThereFiles,
		"verified", verified(summary.Verified), "took", time.Duration(summary.Seconds*float64(time.Second)).Round(time.Millisecond))
	return nil
}

// overlap reports whether one directory contains the other. URLs with different parameters may mean
// different servers.
func overlap(a, b string) bool {
	var of [2]string
	for i, location := range []string{a, b} {
		at, err := asURL(location)
		if err != nil {
			return false
		}
		u, err := url.Parse(at)
		if err != nil {
			return false
		}
		of[i] = u.RawQuery + " " + u.Scheme + "://" + u.Host + strings.TrimSuffix(u.Path, "/") + "/"
	}
	return strings.HasPrefix(of[0], of[1]) || strings.HasPrefix(of[1], of[0])
}
