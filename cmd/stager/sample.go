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
	Input   string   `arg:"" help:"The input's name in the plan of the running stager."`
	Serve   string   `help:"Socket on which the files are handed out, under the input's name; without it sample-INPUT.sock beside --socket." placeholder:"PATH" type:"path"`
	Dir     string   `help:"Folder for the files, which should be on a RAM disk; without it /dev/shm/stager/INPUT." placeholder:"DIR" type:"path" env:"STAGER_SAMPLE_DIR"`
	Size    quantity `help:"All files together never exceed it." default:"1Gi" env:"STAGER_SAMPLE_SIZE"`
	Samples int      `help:"Samples in each file; the last of an epoch has fewer." default:"1000"`
	Open    int      `help:"Shards that are mixed at a time; the input's window needs room for twice as many." default:"8"`
	Seed    int64    `help:"Another seed is another mixture; the same is the same, byte for byte." default:"0"`
}

// Help shows what is typed.
func (sampleCmd) Help() string {
	return `Takes the shards of an input, tar archives or TFRecord files, mixes their samples, and writes files of so many samples into a bounded folder. Readers take these as they would take shards, on the sampler's own socket. A shard is acknowledged when every file with samples of it is.

    stager run -f plan.yaml &
    stager sample train --samples 1000 --open 16 --size 4Gi &
    export STAGER_SOCKET=/run/stager/sample-train.sock
    while p=$(stager next train); do ./step "$p" && stager ack "$p"; done

Killed and run again it goes on where it was. It serves until SIGTERM; its leases stay for the next start.`
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
