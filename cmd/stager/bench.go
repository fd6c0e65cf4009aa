package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime"
	"text/tabwriter"
	"time"

	"github.com/stager-dev/stager/stager/check"
	"github.com/stager-dev/stager/window/disk"
)

type benchCmd struct {
	storing
	shape
	rehearsing
	URL      string `arg:"" help:"Writable location in a store, such as s3://bucket/scratch/."`
	Dir      string `help:"Local directory whose disk to measure." default:"." type:"path"`
	ReadOnly bool   `help:"Do not write to the store; read existing objects instead." env:"STAGER_BENCH_READ_ONLY"`
	Write    string `help:"How to write large files: direct (O_DIRECT), buffered (page cache), or auto." enum:"auto,direct,buffered" default:"auto" env:"STAGER_BENCH_WRITE"`
}

// Help returns the detailed help.
func (benchCmd) Help() string {
	return `Measures a single stream, many streams, small objects, writes and the local disk in about 15 seconds, and reports which of them limits a prefetch. Works in randomly named scratch directories below URL and DIR and removes them. "stager check" also tests the store's guarantees.

    stager bench s3://bucket/scratch/ --dir /data
    stager bench --read-only s3://datasets/imagenet/ --dir /data -o json`
}

// benched contains the measurements. Its JSON format is stable.
type benched struct {
	Store string      `json:"store"`
	Speed check.Speed `json:"speed"`
	Disk  diskSpeed   `json:"disk"`
	Limit string      `json:"limit"`  // store, disk, processors or streams
	Says  []string    `json:"advice"` // full sentences
}

type diskSpeed struct {
	Dir    string  `json:"dir"`
	Write  float64 `json:"write"` // bytes per second
	Direct bool    `json:"direct"`
}

// diskFor is how long the disk is written to.
const diskFor = 2 * time.Second

func (c benchCmd) Run(ctx context.Context, log *slog.Logger, to *console) error {
	store, err := c.openFor(ctx, c.URL, !c.ReadOnly, log)
	if err != nil {
		return err
	}
	defer store.Close() // all writes are removed already
	if c.DryRun {
		return c.intend(measured{Does: "measure", Store: store.Name(), Writes: !c.ReadOnly, Dir: c.Dir})
	}
	b := benched{Store: store.Name(), Disk: diskSpeed{Dir: c.Dir}}
	show := newSpinner(to, log)
	step := func(now string) { show.update(moving{Phase: "measuring: " + now}) }
	report, err := runCheck(ctx, check.Config{Store: store, ReadOnly: c.ReadOnly, SpeedOnly: true, Progress: step})
	if err == nil {
		step("the local disk")
		b.Disk.Write, b.Disk.Direct, err = disk.Speed(ctx, c.Dir, disk.Write(c.Write), diskFor)
	}
	show.close()
	if err != nil {
		return err
	}
	b.Speed = report.Speed
	if b.Speed.Many.Read > 0 {
		b.judge(runtime.NumCPU())
	}
	if c.structured() {
		err = c.value(b)
	} else {
		err = b.print(os.Stdout)
	}
	return errors.Join(err, report.Err())
}

// judge determines the bottleneck, on a machine with the given number of processors.
func (b *benched) judge(cpus int) {
	one, many, tiny := b.Speed.One.Read, b.Speed.Many.Read, b.Speed.Tiny
	rate := func(bytes float64) string { return size(int64(bytes)) + "/s" }
	say := func(format string, args ...any) { b.Says = append(b.Says, fmt.Sprintf(format, args...)) }
	switch {
	case b.Disk.Write < many:
		b.Limit = "disk"
		say("The disk is the bottleneck: it writes %s, the store delivers %s. A faster disk, or a tmpfs, shortens a prefetch by up to %.0f %%.",
			rate(b.Disk.Write), rate(many), 100*(1-b.Disk.Write/many))
	case b.Speed.Many.ReadCPU > 0.85*float64(cpus):
		b.Limit = "processors"
		say("The processors are the bottleneck: reading %s uses %.1f of %d.", rate(many), b.Speed.Many.ReadCPU, cpus)
	case many > 0.6*one*float64(b.Speed.Many.Requests):
		b.Limit = "streams"
		say("Each stream is the bottleneck: %d together are %.0f times as fast as one, so more --connections help.", b.Speed.Many.Requests, many/one)
	default:
		b.Limit = "store"
		say("The store, or the network to it, is the bottleneck: %d streams read %s, one reads %s, and the disk writes %s.",
			b.Speed.Many.Requests, rate(many), rate(one), rate(b.Disk.Write))
	}
	if tiny.FileBytes > 0 && tiny.Read > 0 && tiny.Read < many/4 {
		say("Small objects are read at %.0f per second, %.0f %% of the throughput of large ones: pack many samples into one object.",
			tiny.Read/float64(tiny.FileBytes), 100*tiny.Read/many)
	}
}

func (b *benched) print(to io.Writer) error {
	out := tabwriter.NewWriter(to, 0, 0, 3, ' ', 0)
	fmt.Fprintln(out, b.Store+", measured from here")
	printSpeed(out, b.Speed)
	how := "through the page cache, and synced"
	if b.Disk.Direct {
		how = "bypassing the page cache"
	}
	fmt.Fprintf(out, "  local disk\t%15s  %15s\t%s, %s\n\n", size(int64(b.Disk.Write))+"/s", "", b.Disk.Dir, how)
	for _, says := range b.Says {
		paragraph(out, "", says)
	}
	return out.Flush()
}
