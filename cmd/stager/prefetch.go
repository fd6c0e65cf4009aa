package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize/english"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/stager/download"
	"github.com/stager-dev/stager/stager/hubcache"
	"github.com/stager-dev/stager/stager/plan"
	"github.com/stager-dev/stager/window/disk"
)

type prefetchCmd struct {
	storing
	choosing
	shape
	rehearsing
	Src       string   `arg:"" help:"Source: a directory or object in a store, such as s3://bucket/train/, or a local path."`
	Dst       string   `arg:"" help:"Local directory; created if missing." type:"path"`
	MaxBytes  quantity `help:"Fail if the source has more bytes than this, after unpacking; 0 is unlimited." default:"0"`
	Verify    string   `help:"Verification: auto (checksums where the store has them), full (require checksums) or size (compare sizes only)." enum:"auto,full,size" default:"auto"`
	Write     string   `help:"How to write large files: direct (O_DIRECT), buffered (page cache), or auto (measured on ext4 and xfs)." enum:"auto,direct,buffered" default:"auto" env:"STAGER_PREFETCH_WRITE"`
	Unpack    string   `help:"auto unpacks each .tar, .tar.gz, .tgz, .tar.zst and .zip while it is read: train/1.tar becomes the directory train/1/." enum:"none,auto" default:"none"`
	Layout    string   `help:"hf-cache writes an hf:// source as the cache of huggingface_hub, of which DST is the directory (HF_HUB_CACHE), for HF_HUB_OFFLINE=1." enum:"keys,hf-cache" default:"keys"`
	Overwrite bool     `help:"Replace files in DST that differ and that stager did not write."`
	Sync      bool     `help:"Sync to disk before exiting, so that the data survive a power loss."`
}

// Help returns the detailed help.
func (prefetchCmd) Help() string {
	return `Writes each object to DST under its key relative to SRC, verified. Resumes when run again; if nothing changed, a second run only lists the source. Fetches nothing if it would not fit.

    stager prefetch s3://datasets/imagenet/train/ /data/train --include '*.tar'
    stager prefetch s3://datasets/model.safetensors /models/
    stager prefetch s3://datasets/archives/ /data --unpack auto
    stager prefetch s3://datasets/imagenet/ /data --shard $JOB_COMPLETION_INDEX/8
    stager prefetch hf://org/model@main /models --layout hf-cache`
}

func (c prefetchCmd) Run(ctx context.Context, log *slog.Logger, to *console) error {
	spareTime()
	listing, err := c.listing()
	if err != nil {
		return err
	}
	listing.MaxBytes = int64(c.MaxBytes)
	cfg := download.Config{
		Dir: c.Dst, Verify: download.Verify(c.Verify), Write: disk.Write(c.Write), Overwrite: c.Overwrite, Sync: c.Sync, Log: log, Listing: listing,
		Unpack: c.Unpack == "auto",
	}
	prefetch := download.Prefetch
	if c.Layout == "hf-cache" {
		prefetch = hubcache.Prefetch
		switch {
		case !strings.HasPrefix(c.Src, "hf://"):
			return &usageError{errors.New("--layout hf-cache needs a source of the Hugging Face Hub, such as hf://org/model@main")}
		case cfg.Unpack:
			return &usageError{errors.New("--layout hf-cache cannot unpack archives: remove --unpack")}
		}
	}
	store, err := c.open(ctx, c.Src, log)
	if err != nil {
		return err
	}
	defer store.Close() // only read from
	switch directory, obj, err := store.Self(ctx); {
	case err == nil:
		cfg.Store, cfg.Object = directory, &obj
	case backends.KindOf(err) == backends.NotExist:
		cfg.Store = store
	default:
		return err
	}
	if c.DryRun {
		return c.rehearse(ctx, cfg)
	}
	show := newDisplay(to, log)
	cfg.Progress = func(p download.Progress) {
		show.update(moving{string(p.Phase), p.Files, p.FilesTotal, p.Bytes, p.BytesTotal, p.Unpacked})
	}
	summary, err := prefetch(ctx, cfg)
	show.close()
	if err != nil {
		return err
	}
	if c.structured() {
		return c.line(summary)
	}
	said := []any{
		"files", summary.Files, "bytes", backends.Size(summary.Bytes),
		"fetched", backends.Size(summary.FetchedBytes), "warm", summary.WarmFiles, "verified", verified(summary.Verified),
	}
	if summary.Archives > 0 {
		said = append(said, "archives", summary.Archives, "unpacked_files", summary.Unpacked.Files, "unpacked", backends.Size(summary.Unpacked.Bytes))
	}
	log.Info("complete", append(said, "took", time.Duration(summary.Seconds*float64(time.Second)).Round(time.Millisecond))...)
	return nil
}

// rehearse prints what a prefetch would write, by the listing of the source: DST is not read.
func (c prefetchCmd) rehearse(ctx context.Context, cfg download.Config) error {
	listing := cfg.Listing
	listing.Unpack, listing.Skipped = cfg.Unpack, plan.LogSkipped(cfg.Log)
	objects := listing.Objects(ctx, cfg.Store)
	if cfg.Object != nil {
		objects = plan.Listing{MaxBytes: listing.MaxBytes, Unpack: cfg.Unpack}.Choose(cfg.Store.Name(), func(yield func(backends.Object, error) bool) { yield(*cfg.Object, nil) })
	}
	var total used
	for obj, err := range objects {
		if err != nil {
			return err
		}
		total.Objects++
		total.Bytes += obj.Size
	}
	if c.structured() {
		return c.line(total)
	}
	_, err := fmt.Printf("would prefetch %s, %s, from %s to %s, without those that are there already\n",
		english.Plural(total.Objects, "object", ""), size(total.Bytes), cfg.Store.Name(), printable(cfg.Dir))
	return err
}

// verified formats the number of files by what was compared.
func verified(by map[string]int) string {
	var parts []string
	for _, what := range slices.Sorted(maps.Keys(by)) {
		parts = append(parts, fmt.Sprintf("%d by %s", by[what], what))
	}
	return strings.Join(parts, ", ")
}
