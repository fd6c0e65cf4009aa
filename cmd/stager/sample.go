package main

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"path/filepath"
	"runtime"

	"github.com/stager-dev/stager/stager"
	"github.com/stager-dev/stager/stager/sample"
	"github.com/stager-dev/stager/window"
)

type sampleCmd struct {
	rehearsing
	socket
	Input   string   `arg:"" help:"Name of the input in the plan of the running stager."`
	Serve   string   `help:"Socket that serves the shuffled files under the input's name. Default: sample-INPUT.sock next to --socket." placeholder:"PATH" type:"path"`
	Dir     string   `help:"Directory for the shuffled files, preferably a RAM disk. Default: /dev/shm/stager/INPUT." placeholder:"DIR" type:"path" env:"STAGER_SAMPLE_DIR"`
	Size    quantity `help:"Maximum disk space of the shuffled files and of what is kept beside them." default:"1Gi" env:"STAGER_SAMPLE_SIZE"`
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
	if c.DryRun {
		return c.rehearse(ctx, dir, serve)
	}
	if err := onlyOnLinux(runtime.GOOS, "sample", "it must know which files other processes have open"); err != nil {
		return err
	}
	return stager.NewSampler(stager.SamplerConfig{
		Sample: sample.Config{
			Input: c.Input, Reader: "stager-sample", Dir: dir, Size: int64(c.Size),
			Samples: c.Samples, Open: c.Open, Seed: c.Seed,
		},
		Source: from, Socket: serve, Version: version, Log: log,
	}).Run(ctx)
}

// rehearse prints what would be sampled. It does not wait for a stager that is starting.
func (c sampleCmd) rehearse(ctx context.Context, dir, serve string) error {
	var from window.Status
	if _, _, err := c.call(ctx, http.MethodGet, "/v1/inputs/"+url.PathEscape(c.Input), nil, nil, &from); err != nil {
		return err
	}
	if from.Release != window.ReleaseLease {
		return &window.ReleaseError{Input: from.Input, Release: from.Release}
	}
	_, err := fmt.Printf("would mix the samples of %s from %s into files of %d in %s, at most %s, and serve them on %s\n",
		from.Input, printable(from.Dir), c.Samples, printable(dir), size(int64(c.Size)), printable(serve))
	return err
}
