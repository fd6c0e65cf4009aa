// Command release makes the files of a release of stager, from the module e2e:
//
//	go run ./cmd/release -version 0.1.0 -commit "$(git rev-parse HEAD)" -date "$(git log -1 --format=%ct)" -o ../bin/release
//
// The same arguments and the same version of Go give the same files. "make release" calls it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/stager-dev/stager/e2e/release"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func run() error {
	var opts release.Options
	flag.StringVar(&opts.Source, "source", "..", "the directory of the product's module")
	flag.StringVar(&opts.Out, "o", "../bin/release", "the directory to write; a release in it is replaced")
	flag.StringVar(&opts.Version, "version", "", "the version, such as 0.1.0")
	flag.StringVar(&opts.Commit, "commit", "", "the commit it is built from")
	flag.StringVar(&opts.Repository, "repository", "", "the image's name without a tag, such as registry.example.com/stager")
	flag.StringVar(&opts.URL, "url", "", "where the files will be, such as https://example.com/stager")
	flag.StringVar(&opts.Maintainer, "maintainer", "", "who maintains the packages, such as Ada <ada@example.com>")
	date := flag.Int64("date", 0, "the time of the commit, in seconds since 1970; all files get it")
	platforms := flag.String("platforms", strings.Trim(strings.ReplaceAll(fmt.Sprint(release.Platforms), " ", ","), "[]"), "the platforms, separated by commas")
	flag.Parse()
	if flag.NArg() > 0 {
		return errors.New("unknown argument: release has flags only")
	}
	for text := range strings.SplitSeq(*platforms, ",") {
		p, err := release.ParsePlatform(text)
		if err != nil {
			return err
		}
		opts.Platforms = append(opts.Platforms, p)
	}
	opts.Date = time.Unix(*date, 0).UTC()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	return release.Make(ctx, opts)
}
