package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
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
	URL       string `arg:"" help:"Location to list, such as s3://bucket/train/."`
	Recursive bool   `short:"R" xor:"depth" help:"List everything below URL, not only one level."`
	Long      bool   `short:"l" help:"Also print size and modification time (UTC)."`
	Du        bool   `xor:"depth" help:"Also print the total size of each directory, which lists everything below URL."`
}

// Help returns the detailed help.
func (lsCmd) Help() string {
	return `Prints the objects and directories in URL, one level; names of directories end in "/". Stores are asked for that level alone, except with -R and --du. Output is streamed. With -o json, each line is one entry, with its bytes, time, version and, if the store has one, its checksum.

    stager ls s3://bucket/train/
    stager ls -R -l s3://bucket/train/
    stager ls --du s3://bucket/
    stager ls -R -o json hdfs://namenode:8020/train/ | jq .key
    stager ls s3://                                   # the buckets

Without a bucket, as in s3:// or smb://server/, prints the URLs of the buckets, containers or shares that the credentials give access to. The protocols s3, oss, gs, az and smb can list them. "stager du" prints the total size of one directory.`
}

// listed is an object or a directory as ls prints it with -o json.
type listed struct {
	Key       string    `json:"key"`
	Directory bool      `json:"directory,omitempty"`
	Objects   int       `json:"objects,omitempty"` // in a directory, with --du
	Bytes     *int64    `json:"bytes,omitempty"`   // of a directory with --du only
	Modified  time.Time `json:"modified,omitzero"`
	Version   string    `json:"version,omitempty"`
	Checksum  string    `json:"checksum,omitempty"`
}

func (c lsCmd) Run(ctx context.Context, log *slog.Logger) error {
	c.interactive()
	if urls, ok, err := c.buckets(ctx, log); ok || err != nil {
		return errors.Join(err, c.showBuckets(urls))
	}
	out := bufio.NewWriter(os.Stdout)
	var err error
	if c.Du {
		err = c.totals(ctx, out, log)
	} else {
		err = c.each(ctx, c.URL, c.Recursive, log, func(obj backends.Object) error { return c.show(out, obj, 0) })
	}
	return errors.Join(err, out.Flush())
}

// totals prints one level, and of each directory the number and size of the objects below it.
func (c lsCmd) totals(ctx context.Context, out io.Writer, log *slog.Logger) error {
	var dir backends.Object // whose objects are being added up
	objects := 0
	flush := func() error {
		if objects == 0 {
			return nil
		}
		defer func() { objects = 0 }()
		return c.show(out, dir, objects)
	}
	err := c.each(ctx, c.URL, true, log, func(obj backends.Object) error {
		name, _, below := strings.Cut(obj.Key, "/")
		if !below {
			return errors.Join(flush(), c.show(out, obj, 0))
		}
		if name += "/"; objects == 0 || name != dir.Key {
			if err := flush(); err != nil {
				return err
			}
			dir = backends.Object{Key: name}
		}
		objects++
		dir.Size += obj.Size
		return nil
	})
	if err != nil {
		return err // the directory in progress is incomplete
	}
	return flush()
}

// show prints an object, or a directory. The size of a directory is known if objects is not 0.
func (c lsCmd) show(out io.Writer, obj backends.Object, objects int) error {
	if c.structured() {
		l := listed{Key: obj.Key, Directory: isDirectory(obj), Modified: obj.ModTime, Version: string(obj.Version), Checksum: obj.Sum.String()}
		if l.Objects = objects; !l.Directory || objects > 0 {
			l.Bytes = &obj.Size
		}
		return c.item(out, l)
	}
	if !c.Long && !c.Du {
		_, err := fmt.Fprintln(out, printable(obj.Key))
		return err
	}
	size := "–"
	if !isDirectory(obj) || objects > 0 {
		size = humanize.IBytes(uint64(obj.Size))
	}
	_, err := fmt.Fprintf(out, "%10s  %-*s  %s\n", size, len(time.DateTime), changed(obj), printable(obj.Key))
	return err
}

// each calls show for the object at a location, or for what is in the directory there: one level,
// or everything.
func (s storing) each(ctx context.Context, location string, recursive bool, log *slog.Logger, show func(backends.Object) error) error {
	store, err := s.open(ctx, location, log)
	if err != nil {
		return err
	}
	defer store.Close() // only read from
	if _, obj, err := store.Self(ctx); err == nil {
		return show(obj)
	} else if backends.KindOf(err) != backends.NotExist {
		return err
	}
	var all iter.Seq2[backends.Object, error]
	if recursive {
		all = store.List(ctx, "")
	} else {
		all = store.ListLevel(ctx, "")
	}
	empty := true
	for obj, err := range all {
		if err != nil {
			return err
		}
		empty = false
		if err := show(obj); err != nil {
			return err
		}
	}
	if empty {
		return &backends.Error{Op: "list", Store: store.Name(), Kind: backends.NotExist, Err: errNothing}
	}
	return nil
}

func isDirectory(obj backends.Object) bool { return strings.HasSuffix(obj.Key, "/") }

// buckets returns the URLs of the buckets of a URL without one. ok is false for other locations.
func (c lsCmd) buckets(ctx context.Context, log *slog.Logger) (urls []string, ok bool, err error) {
	at, err := asURL(c.URL)
	if err != nil {
		return nil, false, err
	}
	return all.Registry().Buckets(ctx, at, c.options(log))
}

// bucket is a bucket, container or share as ls prints it with -o json.
type bucket struct {
	URL string `json:"bucket"`
}

// showBuckets prints the URLs of buckets, each on its line.
func (c lsCmd) showBuckets(urls []string) error {
	for _, at := range urls {
		var err error
		if c.structured() {
			err = c.item(os.Stdout, bucket{at})
		} else {
			_, err = fmt.Println(at)
		}
		if err != nil {
			return err
		}
	}
	return nil
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
