package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash"
	"io"
	"log/slog"
	"os"

	"github.com/stager-dev/stager/backends"
)

type catCmd struct {
	storing
	URL    string    `arg:"" help:"Object to print, such as s3://bucket/runs/7/log.txt."`
	Offset quantity  `help:"Skip this many bytes, such as 1Gi." default:"0"`
	Count  *quantity `help:"Print at most this many bytes. Default: the rest." placeholder:"N"`
}

// Help returns the detailed help.
func (catCmd) Help() string {
	return `Writes the bytes of one object to standard output, all of one version. A whole object is compared with the checksum of the store, if there is one: wrong bytes end with exit code 76, after they were printed. A range is compared by its length only.

    stager cat s3://bucket/runs/7/RESTORED.json | jq .step
    stager cat --offset 1Gi --count 512 s3://bucket/train/0001.tar | xxd`
}

func (c catCmd) Run(ctx context.Context, log *slog.Logger) error {
	c.interactive()
	store, err := c.open(ctx, c.URL, log)
	if err != nil {
		return err
	}
	defer store.Close() // only read from
	directory, obj, err := store.Self(ctx)
	if backends.KindOf(err) == backends.NotExist {
		return &backends.Error{Op: "read", Store: store.Name(), Kind: backends.NotExist, Err: errors.New(`there is no such object; "stager ls" lists a directory`)}
	} else if err != nil {
		return err
	}
	off := int64(c.Offset)
	if off > obj.Size {
		return &usageError{fmt.Errorf("--offset %d is beyond the end of the object, which has %d bytes", off, obj.Size)}
	}
	n := obj.Size - off
	if c.Count != nil {
		n = min(n, int64(*c.Count))
	}
	return printRange(ctx, directory, obj, off, n, os.Stdout)
}

// printRange writes n bytes of an object from off to out.
func printRange(ctx context.Context, store *backends.Store, obj backends.Object, off, n int64, out io.Writer) error {
	var sum hash.Hash
	algorithm := cmp.Or(obj.Sum.Algorithm, store.Capabilities().Checksum)
	if n == obj.Size && algorithm != "" {
		sum = algorithm.New()
	}
	reported, err := store.ReadRange(ctx, obj, off, n, &inOrder{out, off}, sum)
	if err != nil || sum == nil || reported.Algorithm != algorithm {
		return err
	}
	if got := backends.SumOf(reported.Algorithm, sum); got != reported {
		return &backends.Error{Op: "read", Store: store.Name(), Key: obj.Key, Kind: backends.Corrupt, Err: fmt.Errorf("the bytes have the checksum %s, and the store has %s", got, reported)}
	}
	return nil
}

// inOrder writes consecutive ranges to a stream.
type inOrder struct {
	out io.Writer
	at  int64
}

// WriteAt implements io.WriterAt for the range after the previous one.
func (w *inOrder) WriteAt(p []byte, off int64) (int, error) {
	if off != w.at {
		return 0, fmt.Errorf("the range at %d does not follow the one before, which ends at %d", off, w.at)
	}
	n, err := w.out.Write(p)
	w.at += int64(n)
	return n, err
}
