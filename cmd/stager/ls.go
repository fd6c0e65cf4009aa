package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/dustin/go-humanize"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/all"
)

var errNothing = errors.New("there is no object here")

type lsCmd struct {
	storing
	shape
	URL   string `arg:"" help:"Location to list, such as s3://bucket/train/."`
	Total bool   `help:"Print only the number of objects and their total size."`
}

// Help returns the detailed help.
func (lsCmd) Help() string {
	return `Prints size, modification time (UTC) and key of every object below URL, recursively. Output is streamed. As JSON, each line is one object, with its version and, if the store has one, its checksum.

    stager ls s3://bucket/train/
    stager ls -o json hdfs://namenode:8020/train/ | jq .key
    stager ls --total /mnt/pvc/data

Without a bucket, as in s3:// or smb://server/, prints the URLs of the buckets, containers or shares that the credentials give access to. The protocols s3, oss, gs, az and smb can list them.`
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
	if urls, ok, err := c.buckets(ctx, log); ok || err != nil {
		return errors.Join(err, c.showBuckets(urls))
	}
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
		case c.json():
			return json.NewEncoder(out).Encode(listed{obj.Key, obj.Size, obj.ModTime, string(obj.Version), obj.Sum.String()})
		}
		_, err := fmt.Fprintf(out, "%10s  %-*s  %s\n", humanize.IBytes(uint64(obj.Size)), len(time.DateTime), changed(obj), printable(obj.Key))
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
	if c.Total && c.json() {
		return json.NewEncoder(out).Encode(totalled{objects, bytes})
	}
	if c.Total {
		what := "objects"
		if objects == 1 {
			what = "object"
		}
		_, err = fmt.Fprintf(out, "%s %s, %s (%d bytes)\n", humanize.Comma(int64(objects)), what, humanize.IBytes(uint64(bytes)), bytes)
	}
	return err
}

// buckets returns the URLs of the buckets of a URL without one. ok is false for other locations.
func (c lsCmd) buckets(ctx context.Context, log *slog.Logger) (urls []string, ok bool, err error) {
	at, err := asURL(c.URL)
	if err != nil {
		return nil, false, err
	}
	return all.Registry().Buckets(ctx, at, c.options(log))
}

// showBuckets prints the URLs of buckets, each on its line.
func (c lsCmd) showBuckets(urls []string) error {
	for _, at := range urls {
		var err error
		if c.json() {
			err = json.NewEncoder(os.Stdout).Encode(map[string]string{"bucket": at})
		} else {
			_, err = fmt.Println(at)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// totalled is what ls --total --json prints.
type totalled struct {
	Objects int   `json:"objects"`
	Bytes   int64 `json:"bytes"`
}

// changed formats the modification time of an object; a store may not report one.
func changed(obj backends.Object) string {
	if obj.ModTime.IsZero() {
		return "–"
	}
	return obj.ModTime.UTC().Format(time.DateTime)
}

// printable returns a key that is safe for a terminal: a key with unprintable characters is quoted.
func printable(key string) string {
	if strings.ContainsFunc(key, func(r rune) bool { return !unicode.IsPrint(r) || r == utf8.RuneError }) {
		return strconv.Quote(key)
	}
	return key
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
