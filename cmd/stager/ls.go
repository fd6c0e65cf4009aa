package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/stager-dev/stager/backends"
)

var errNothing = errors.New("there is no object here")

type lsCmd struct {
	storing
	URL   string `arg:"" help:"What to list, such as s3://bucket/train/."`
	JSON  bool   `help:"One JSON object a line."`
	Total bool   `help:"Only the number of objects and their bytes."`
}

// Help shows what is typed.
func (lsCmd) Help() string {
	return `Listings are streamed: the first lines come at once, however many objects there are.

    stager ls s3://bucket/train/
    stager ls --total /mnt/pvc/data`
}

// listed is an object as ls --json prints it.
type listed struct {
	Key      string    `json:"key"`
	Size     int64     `json:"size"`
	Modified time.Time `json:"modified,omitzero"`
	Version  string    `json:"version,omitempty"`
	Checksum string    `json:"checksum,omitempty"`
}

func (c lsCmd) Run(ctx context.Context, log *slog.Logger) (err error) {
	store, err := c.open(ctx, c.URL, log)
	if err != nil {
		return err
	}
	defer store.Close() // only read from
	out := bufio.NewWriter(os.Stdout)
	defer func() {
		if ferr := out.Flush(); err == nil {
			err = ferr
		}
	}()
	objects, bytes := 0, int64(0)
	show := func(obj backends.Object) error {
		objects++
		bytes += obj.Size
		switch {
		case c.Total:
			return nil
		case c.JSON:
			return json.NewEncoder(out).Encode(listed{obj.Key, obj.Size, obj.ModTime, string(obj.Version), obj.Sum.String()})
		}
		_, err := fmt.Fprintf(out, "%10s  %s  %s\n", humanize.IBytes(uint64(obj.Size)), obj.ModTime.UTC().Format(time.DateTime), obj.Key)
		return err
	}
	if _, obj, err := store.Self(ctx); err == nil {
		if err := show(obj); err != nil {
			return err
		}
	} else if backends.KindOf(err) != backends.NotExist {
		return err
	} else if err := listAll(ctx, store, show); err != nil {
		return err
	}
	if objects == 0 {
		return &backends.Error{Op: "list", Store: store.Name(), Kind: backends.NotExist, Err: errNothing}
	}
	if c.Total {
		what := "objects"
		if objects == 1 {
			what = "object"
		}
		_, err = fmt.Fprintf(out, "%d %s, %s (%d bytes)\n", objects, what, humanize.IBytes(uint64(bytes)), bytes)
	}
	return err
}

func listAll(ctx context.Context, store *backends.Store, show func(backends.Object) error) error {
	for obj, err := range store.List(ctx, "") {
		if err != nil {
			return err
		}
		if err := show(obj); err != nil {
			return err
		}
	}
	return nil
}
