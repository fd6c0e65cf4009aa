// Command bench measures stager beside other clients of the same servers, on this
// machine alone, and prints a table in Markdown:
//
//	go run ./cmd/bench -only smb,nfs -pairs 9
//
// It starts the servers itself and installs what is missing for them; SMB and NFS need
// root. Package e2e/bench tells how it measures. It ends with code 1 when a result is
// not what was sent.
package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/stager-dev/stager/e2e/bench"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == bench.MeasureFlag {
		exit(bench.Measure(os.Args[2:]))
	}
	if len(os.Args) > 1 && os.Args[1] == bench.ReaderFlag {
		exit(bench.Reader(context.Background(), os.Args[2:]))
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	exit(run(ctx))
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

func run(ctx context.Context) (err error) {
	var names, usual []string
	for _, s := range bench.Suites {
		names = append(names, s.Name)
		if !s.Named {
			usual = append(usual, s.Name)
		}
	}
	stager := flag.String("stager", "../bin/stager", "the binary to measure")
	other := flag.String("beside", "", "another binary, such as that of an earlier version, to run copies with, too")
	only := flag.String("only", strings.Join(usual, ","), "what is measured, with commas between, of "+strings.Join(names, ", "))
	row := flag.String("row", "", "only rows with this in their first two columns")
	pairs := flag.Int("pairs", 5, "how often each pair is run at least, and more where pairs differ; medians count")
	size := flag.Int64("size", 1<<30, "of the large file, in bytes; rows with goals have 2 to 4 times that")
	files := flag.Int64("files", 2000, "how many small files there are; rows with goals have 5 to 10 times as many")
	fileSize := flag.Int64("file-size", 50<<10, "of each small file, in bytes")
	dir := flag.String("dir", "/dev/shm", "where all files lie, the servers' too; in memory the disk does not count")
	to := flag.String("to", "", "where clients put what they get; else as -dir")
	disk := flag.String("disk", "/var/tmp", "a directory on a disk, for rows that are of a disk")
	out := flag.String("json", "", "a file for the figures as JSON")
	chart := flag.String("svg", "", "a file for the wall times as a drawing")
	flag.Parse()
	var suites []bench.Suite
	for _, name := range strings.Split(*only, ",") {
		i := slices.Index(names, name)
		if i < 0 {
			return fmt.Errorf("there are no rows for %q, only for %s", name, strings.Join(names, ", "))
		}
		suites = append(suites, bench.Suites[i])
	}
	if *pairs < 1 || *size < 1 || *files < 1 || *fileSize < 1 {
		return errors.New("-pairs, -size, -files and -file-size are at least 1")
	}
	lab := &bench.Lab{Log: os.Stderr, Disk: *disk}
	if lab.Stager, err = filepath.Abs(*stager); err != nil {
		return err
	}
	if *other != "" {
		if lab.Other, err = filepath.Abs(*other); err != nil {
			return err
		}
	}
	if lab.Dir, err = os.MkdirTemp(*dir, "stager-bench-"); err != nil {
		return err
	}
	defer os.RemoveAll(lab.Dir)
	if lab.To, err = os.MkdirTemp(cmp.Or(*to, *dir), "stager-bench-"); err != nil {
		return err
	}
	defer os.RemoveAll(lab.To)
	if err := errors.Join(os.Chmod(lab.Dir, 0o755), os.Setenv("TMPDIR", lab.Dir)); err != nil { // for the servers
		return err
	}
	if lab.Data, err = bench.MakeData(filepath.Join(lab.Dir, "data"), *size, *files, *fileSize); err != nil {
		return err
	}
	report := struct {
		Machine  bench.Machine   `json:"machine"`
		Pairs    int             `json:"pairs"`
		Results  []bench.Result  `json:"results"`
		Listings []bench.Listing `json:"listings,omitempty"`
		Notes    []string        `json:"notes"`
	}{Machine: bench.ThisMachine(lab.Stager), Pairs: *pairs}
	table := bench.Table{Out: os.Stdout}
	if slices.ContainsFunc(suites, func(s bench.Suite) bool { return s.Start != nil }) {
		table.Begin(report.Machine, *pairs)
	} else {
		table.Machine(report.Machine, *pairs)
	}
	start := time.Now()
	for _, suite := range suites {
		if suite.Listings != nil {
			note, err := suite.Listings(ctx, lab, *pairs, *row, func(l bench.Listing) { report.Listings = append(report.Listings, l) })
			if err != nil {
				return err
			}
			report.Notes = append(report.Notes, suite.Name+": "+note)
			continue
		}
		note, err := bench.Run(ctx, suite, lab, *pairs, *row, func(r bench.Result) {
			table.Row(r)
			report.Results = append(report.Results, r)
		})
		if err != nil {
			return err
		}
		report.Notes = append(report.Notes, suite.Name+": "+note)
	}
	table.Readings(report.Results)
	table.Listings(report.Listings)
	fmt.Println()
	for _, note := range report.Notes {
		fmt.Println("-", note)
	}
	fmt.Fprintf(os.Stderr, "every result was equal to what was sent; %v in all\n", time.Since(start).Round(time.Second))
	if *chart != "" {
		var svg bytes.Buffer
		if err := bench.Chart(&svg, report.Machine, report.Results); err != nil {
			return err
		}
		if err := os.WriteFile(*chart, svg.Bytes(), 0o644); err != nil {
			return err
		}
	}
	if *out == "" {
		return nil
	}
	text, err := json.MarshalIndent(report, "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile(*out, append(text, '\n'), 0o644)
}
