package main

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/stager-dev/stager/stager/pack"
	"github.com/stager-dev/stager/stager/plan"
	"github.com/stager-dev/stager/stager/transfer"
)

type packCmd struct {
	copyCmd
	ShardSize quantity `help:"Maximum size of a shard; a larger sample gets a shard of its own." default:"256Mi"`
	Prefix    string   `help:"Prefix of shard names." default:"shard-"`
	Shuffle   *uint64  `help:"Shuffle samples with this seed. Default: listing order." placeholder:"SEED"`
}

// minShard is the smallest size that can be intended.
const minShard = 64 << 10

// Help returns the detailed help.
func (packCmd) Help() string {
	return `Files that share a name up to the first dot, such as 1.jpg and 1.cls, form one sample and are adjacent in a tar archive. Archives are built while they are uploaded, without local disk. DST receives shard-000000.tar and so on, and index.jsonl with the size, samples and classes of each shard; classes are the top-level directories of SRC. The same files give the same bytes, so a killed pack resumes. With --overwrite, packing a changed source uploads what changed and removes shards that are no longer needed. Workers with --shard agree on the files and flags by a record in DST/.stager-copy; the last one writes the index.

    stager pack nfs://server/export/imagenet/train/ s3://datasets/imagenet-wds/ --shuffle 42
    stager pack s3://datasets/coco/ oss://bucket/coco/ --shard-size 1Gi --prefix coco-
    stager pack hdfs://nn:8020/images/ s3://datasets/images/ --shard $JOB_COMPLETION_INDEX/8`
}

func (c packCmd) Run(ctx context.Context, log *slog.Logger, to *console) error {
	if c.ShardSize < minShard {
		return &usageError{fmt.Errorf("--shard-size %d is less than %d; use large shards, such as 256Mi", c.ShardSize, minShard)}
	}
	cfg, done, err := c.config(ctx, log)
	if err != nil {
		return err
	}
	defer done()
	if cfg.Object != nil {
		return &usageError{fmt.Errorf("%s is one object; specify a directory", cfg.Src.Name()+"/"+cfg.Object.Key)}
	}
	// Nodes share the shards, not the files.
	packed, err := pack.Open(ctx, pack.Config{
		Src: cfg.Src, Listing: plan.Listing{Filter: cfg.Listing.Filter, Skipped: plan.LogSkipped(log)},
		Size: int64(c.ShardSize), Prefix: c.Prefix, Shuffle: c.Shuffle,
	})
	if err != nil {
		return err
	}
	cfg.Src, cfg.Listing = packed.Store, plan.Listing{Shard: cfg.Listing.Shard}
	described, err := packed.Layout()
	if err != nil {
		return err
	}
	if c.ResetLayout {
		return c.reset(ctx, cfg.Dst, described, log)
	}
	publisher := &pack.Publisher{Packed: packed, Dst: cfg.Dst, Overwrite: cfg.Overwrite || cfg.Force, Log: log}
	cfg.Shared = &transfer.Shared{Layout: described, Begin: publisher.Begin, End: publisher.End}
	if err := publisher.Check(ctx); err != nil {
		return err
	}
	log.Info("packing files into shards", "files", packed.Files(), "samples", packed.Samples(), "shards", packed.Shards())
	summary, err := c.move(ctx, cfg, to, log)
	if err != nil {
		return err
	}
	if c.Verify && cfg.Listing.Shard.Count <= 1 {
		if err := publisher.Verify(ctx); err != nil {
			return err
		}
	}
	return c.report(summary, log)
}
