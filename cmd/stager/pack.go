package main

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/stager/pack"
	"github.com/stager-dev/stager/stager/plan"
)

type packCmd struct {
	copyCmd
	ShardSize quantity `help:"Bytes of a shard, at most; a larger sample has one to itself." default:"256Mi"`
	Prefix    string   `help:"What the names of shards begin with." default:"shard-"`
	Shuffle   *uint64  `help:"Draw the order of the samples from this seed; without it they stand in that of the listing." placeholder:"SEED"`
}

// minShard is below what anybody means.
const minShard = 64 << 10

// Help shows what is typed.
func (packCmd) Help() string {
	return `Files whose names differ behind the first dot are one sample, 1.jpg and 1.cls, and come to lie side by side in a tar archive. Nothing is packed on a disk: archives are made of the files while they are sent. DST gets shard-000000.tar and so on, and index.jsonl, which tells the size, samples and classes of each; classes are the topmost folders of SRC. The same files make the same bytes, so that a pack that was killed goes on when it is run again, and one of a changed folder sends what changed.

    stager pack nfs://server/export/imagenet/train/ s3://datasets/imagenet-wds/ --shuffle 42
    stager pack s3://datasets/coco/ oss://bucket/coco/ --shard-size 1Gi --prefix coco-
    stager pack hdfs://nn:8020/images/ s3://datasets/images/ --shard $JOB_COMPLETION_INDEX/8`
}

func (c packCmd) Run(ctx context.Context, log *slog.Logger, to *console) error {
	if c.ShardSize < minShard {
		return &usageError{fmt.Errorf("--shard-size %d is less than %d; shards are made to be large, such as 256Mi", c.ShardSize, minShard)}
	}
	cfg, done, err := c.config(ctx, log)
	if err != nil {
		return err
	}
	defer done()
	if cfg.Object != nil {
		return &usageError{fmt.Errorf("%s is one object; name a folder with many", cfg.Src.Name()+"/"+cfg.Object.Key)}
	}
	// Nodes share the shards, not the files.
	packed, err := pack.Open(ctx, pack.Config{
		Src: cfg.Src, Listing: plan.Listing{Filter: cfg.Listing.Filter}, Size: int64(c.ShardSize), Prefix: c.Prefix, Shuffle: c.Shuffle,
	})
	if err != nil {
		return err
	}
	cfg.Src, cfg.Listing = packed.Store, plan.Listing{Shard: cfg.Listing.Shard}
	if _, err := there(ctx, packed, cfg.Dst); err != nil {
		return err
	}
	log.Info("files become shards", "files", packed.Files(), "samples", packed.Samples(), "shards", packed.Shards())
	summary, err := c.move(ctx, cfg, to, log)
	if err != nil {
		return err
	}
	if !c.DryRun && !c.Verify {
		whole, err := there(ctx, packed, cfg.Dst)
		if err != nil {
			return err
		}
		if whole { // the last of several processes finds it so
			if err := putIndex(ctx, packed, cfg.Dst); err != nil {
				return err
			}
		}
	}
	return c.report(summary, log)
}

// there tells whether a destination has all shards. It refuses one that has shards of
// another packing, too: trainers would read their samples twice.
func there(ctx context.Context, packed *pack.Packed, dst *backends.Store) (whole bool, err error) {
	has := 0
	for obj, err := range dst.List(ctx, "") {
		if backends.KindOf(err) == backends.NotExist && has == 0 {
			return false, nil // a folder that is to be made
		}
		if err != nil {
			return false, err
		}
		if packed.Stale(obj.Key) {
			return false, &backends.Error{Op: "pack", Store: dst.Name(), Key: obj.Key, Kind: backends.Exist, Err: fmt.Errorf(
				"it is a shard of another packing, and there are only %d now; take another folder or --prefix, or remove those of old", packed.Shards())}
		}
		if now, err := packed.Stat(ctx, obj.Key); err == nil && now.Size == obj.Size {
			has++
		}
	}
	return has == packed.Shards(), nil
}

func putIndex(ctx context.Context, packed *pack.Packed, dst *backends.Store) error {
	index, err := packed.Index()
	if err != nil {
		return err
	}
	_, err = dst.Put(ctx, pack.IndexKey, bytes.NewReader(index), int64(len(index)), backends.CreateOptions{})
	return err
}
