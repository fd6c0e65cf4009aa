package main

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/dustin/go-humanize"
	"github.com/dustin/go-humanize/english"

	"github.com/stager-dev/stager/backends"
)

type duCmd struct {
	storing
	shape
	URL string `arg:"" help:"Directory or object, such as s3://bucket/train/."`
}

// Help returns the detailed help.
func (duCmd) Help() string {
	return `Prints the number of objects below URL and their total size. Reads no data.

    stager du s3://bucket/train/
    stager du -o json /mnt/pvc/data | jq .bytes`
}

// used is what du prints with -o json.
type used struct {
	Objects int   `json:"objects"`
	Bytes   int64 `json:"bytes"`
}

func (c duCmd) Run(ctx context.Context, log *slog.Logger) error {
	c.interactive()
	var total used
	err := c.each(ctx, c.URL, true, log, func(obj backends.Object) error {
		total.Objects++
		total.Bytes += obj.Size
		return nil
	})
	if err != nil {
		return err
	}
	if c.structured() {
		return c.line(total)
	}
	_, err = fmt.Printf("%s %s, %s (%d bytes)\n", humanize.Comma(int64(total.Objects)), english.PluralWord(total.Objects, "object", ""), humanize.IBytes(uint64(total.Bytes)), total.Bytes)
	return err
}
