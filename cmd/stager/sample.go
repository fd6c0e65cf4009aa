package main

import (
	"context"
	"log/slog"
	"path/filepath"

	"github.com/stager-dev/stager/stager"
	"github.com/stager-dev/stager/stager/sample"
)

type sampleCmd struct {
	socket
	Input   string   `arg:"" help:"Name of the input in the plan of the running stager."`
	Serve   string   `help:"Socket that serves the shuffled files under the input's name. Default: sample-INPUT.sock next to --socket." placeholder:"PATH" type:"path"`
	Dir     string   `help:"Directory for the shuffled files, preferably a RAM disk. Default: /dev/shm/stager/INPUT." placeholder:"DIR" type:"path" env:"STAGER_SAMPLE_DIR"`
	Size    quantity `help:"Maximum total size of the shuffled files." default:"1Gi" env:"STAGER_SAMPLE_SIZE"`
	Samples int      `help:"Samples per file; the last file of an epoch may have fewer." default:"1000"`
	Open    int      `help:"Number of shards to mix at a time. The window needs space for twice as many." default:"8"`
	Seed    int64    `help:"Shuffle seed; the same seed gives the same files, byte for byte." default:"0"`
}

// Help returns the detailed help.
func (sampleCmd) Help() string {
	return `Reads the shards of an input (tar archives or TFRecord files), shuffles their samples, and writes files of shuffled samples into a bounded directory. Readers lease these files like shards, on the sampler's own socket. A shard is acknowledged when all files with its samples are.

    stager run -f plan.yaml &
    stager sample train --samples 1000 --open 16 --size 4Gi &
    export STAGER_SOCKET=/run/stager/sample-train.sock
    while p=$(stager next train); do ./step "$p" && stager ack "$p"; done

Resumes where it was when run again. Serves until SIGTERM; leases are kept for the next start.`
}

func (c sampleCmd) Run(ctx context.Context, log *slog.Logger) error {
	from, serve := c.path(), c.Serve
	if serve == "" {
		serve = filepath.Join(filepath.Dir(from), "sample-"+c.Input+".sock")
	}
	dir := c.Dir
	if dir == "" {
		dir = filepath.Join("/dev/shm/stager", c.Input)
	}
	return stager.NewSampler(stager.SamplerConfig{
		Sample: sample.Config{
			Input: c.Input, Reader: "stager-sample", Dir: dir, Size: int64(c.Size),
			Samples: c.Samples, Open: c.Open, Seed: c.Seed,
		},
		Source: from, Socket: serve, Version: version, Log: log,
	}).Run(ctx)
}
