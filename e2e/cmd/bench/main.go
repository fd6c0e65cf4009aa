// Command bench measures stager beside other clients of the same servers, on this
// machine alone, and prints a table in Markdown:
//
//	go run ./cmd/bench -only smb,nfs -pairs 9 -json A.json
//
// It starts the servers itself and installs what is missing for them; SMB and NFS need
// root. Package e2e/bench tells how it measures. It ends with code 1 when a result is
// not what was sent.
//
// With compare it prints what differs between two files that -json wrote:
//
//	go run ./cmd/bench compare A.json B.json
//
// It then ends with code 2 when it cannot read one of them, and else with 0.
package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/stager-dev/stager/e2e/bench"
	"github.com/stager-dev/stager/e2e/floor"
)

func main() {
	args := os.Args[1:]
	switch {
	case len(args) > 0 && args[0] == bench.MeasureFlag:
		exit(bench.Measure(args[1:]), 1)
	case len(args) > 0 && args[0] == bench.ReaderFlag:
		exit(bench.Reader(context.Background(), args[1:]), 1)
	case len(args) > 0 && args[0] == bench.TakerFlag:
		exit(bench.Taker(context.Background(), args[1:]), 1)
	case len(args) > 0 && args[0] == bench.FloorFlag:
		exit(floor.Run(args[1:]), 1)
	case len(args) > 0 && args[0] == "compare":
		exit(compare(os.Stdout, args[1:]), 2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	exit(run(ctx), 1)
}

// exit ends the process with a code if there is an error, and else with 0.
func exit(err error, code int) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(code)
	}
	os.Exit(0)
}

// compare prints what differs between two files of results.
func compare(to io.Writer, names []string) error {
	if len(names) != 2 {
		return errors.New("compare needs two files that bench -json wrote: bench compare A.json B.json")
	}
	a, err := bench.ReadReport(names[0])
	if err != nil {
		return err
	}
	b, err := bench.ReadReport(names[1])
	if err != nil {
		return err
	}
	bench.Compare(to, a, b)
	return nil
}

// options are the flags.
type options struct {
	stager, other, only, row string
	goals                    bool
	pairs                    int
	patience                 time.Duration
	peers                    bool
	size, files, fileSize    int64
	dir, to, disk            string
	json, drawing, page      string
}

// parse reads the flags, and returns the suites that they name.
func (o *options) parse() (suites []bench.Suite, err error) {
	var names, usual []string
	for _, s := range bench.Suites {
		names = append(names, s.Name)
		if !s.Named {
			usual = append(usual, s.Name)
		}
	}
	flag.StringVar(&o.stager, "stager", "../bin/stager", "the binary to measure")
	flag.StringVar(&o.other, "beside", "", "another binary, such as that of an earlier version, to run copies with, too")
	flag.BoolVar(&o.peers, "peers", true, "run the other clients; without them, copies are only run beside that other binary")
	flag.StringVar(&o.only, "only", strings.Join(usual, ","), "what is measured, with commas between, of "+strings.Join(names, ", "))
	flag.StringVar(&o.row, "row", "", "only rows with this in their first two columns")
	flag.BoolVar(&o.goals, "goals", false, "only rows with goals")
	flag.IntVar(&o.pairs, "pairs", 5, "how often each pair is run at least, and more where pairs differ; medians count")
	flag.DurationVar(&o.patience, "patience", 0, "how long a row is run until its ratio is sure; by default minutes, and seconds in quick")
	flag.Int64Var(&o.size, "size", 1<<30, "of the large file, in bytes; rows with goals have 2 to 4 times that")
	flag.Int64Var(&o.files, "files", 2000, "how many small files there are; rows with goals have 5 to 10 times as many")
	flag.Int64Var(&o.fileSize, "file-size", 50<<10, "of each small file, in bytes")
	flag.StringVar(&o.dir, "dir", "/dev/shm", "where all files lie, the servers' too; in memory the disk does not count")
	flag.StringVar(&o.to, "to", "", "where clients put what they get; else as -dir")
	flag.StringVar(&o.disk, "disk", "/var/tmp", "a directory on a disk, for rows that are of a disk")
	flag.StringVar(&o.json, "json", "", "a file for the results as JSON, one object a line, each written as soon as it is known")
	flag.StringVar(&o.drawing, "svg", "", "a file for the wall times as a drawing")
	flag.StringVar(&o.page, "html", "", "a file for a page with all of it, and with each run as a dot")
	flag.Parse()
	for _, name := range strings.Split(o.only, ",") {
		i := slices.Index(names, name)
		if i < 0 {
			return nil, fmt.Errorf("there are no rows for %q, only for %s", name, strings.Join(names, ", "))
		}
		suite := bench.Suites[i]
		suite.Patience = cmp.Or(o.patience, suite.Patience)
		suites = append(suites, suite)
	}
	if o.pairs < 1 || o.size < 1 || o.files < 1 || o.fileSize < 1 {
		return nil, errors.New("-pairs, -size, -files and -file-size are at least 1")
	}
	if !o.peers && o.other == "" {
		return nil, errors.New("-peers=false needs -beside, or there is nothing to compare with")
	}
	return suites, nil
}

// chosen reports whether to run a row.
func (o *options) chosen(row bench.Row) bool {
	return strings.Contains(row.Name(), o.row) && (!o.goals || row.HasGoal())
}

// lab makes the directories and the data. The caller calls remove, also after an error.
func (o *options) lab() (lab *bench.Lab, remove func(), err error) {
	lab = &bench.Lab{Log: os.Stderr, Disk: o.disk, NoPeers: !o.peers}
	remove = func() {
		for _, directory := range []string{lab.To, lab.Dir} {
			if directory != "" {
				os.RemoveAll(directory) //nolint:errcheck // the outcome is known
			}
		}
	}
	if lab.Stager, err = filepath.Abs(o.stager); err != nil {
		return lab, remove, err
	}
	if o.other != "" {
		if lab.Other, err = filepath.Abs(o.other); err != nil {
			return lab, remove, err
		}
	}
	if lab.Dir, err = os.MkdirTemp(o.dir, "stager-bench-"); err != nil {
		return lab, remove, err
	}
	if lab.To, err = os.MkdirTemp(cmp.Or(o.to, o.dir), "stager-bench-"); err != nil {
		return lab, remove, err
	}
	if err := errors.Join(os.Chmod(lab.Dir, 0o755), os.Setenv("TMPDIR", lab.Dir)); err != nil { // for the servers
		return lab, remove, err
	}
	lab.Data, err = bench.MakeData(filepath.Join(lab.Dir, "data"), o.size, o.files, o.fileSize)
	return lab, remove, err
}

// start is the first line of the results.
func (o *options) start(lab *bench.Lab) *bench.Start {
	s := &bench.Start{
		Machine: bench.ThisMachine(lab.Stager), Date: time.Now().UTC().Truncate(time.Second), Pairs: o.pairs,
		Only: o.only, Row: o.row, Size: o.size, Files: o.files, FileSize: o.fileSize,
	}
	if lab.Other != "" {
		s.Beside = bench.VersionOf(lab.Other)
	}
	return s
}

func run(ctx context.Context) (err error) {
	var o options
	suites, err := o.parse()
	if err != nil {
		return err
	}
	lines := io.Discard
	if o.json != "" {
		file, ferr := os.Create(o.json)
		if ferr != nil {
			return ferr
		}
		defer func() { err = errors.Join(err, file.Close()) }()
		lines = file
	}
	lab, remove, err := o.lab()
	defer remove()
	if err != nil {
		return err
	}
	began := time.Now()
	report, err := o.measure(ctx, lab, suites, lines)
	if err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "every result was equal to what was sent; %v in all\n", time.Since(began).Round(time.Second))
	return errors.Join(
		write(o.drawing, func(to io.Writer) error { return bench.Chart(to, report.Start.Machine, report.Results) }),
		write(o.page, report.HTML))
}

// write writes a file, if it has a name.
func write(name string, content func(io.Writer) error) error {
	if name == "" {
		return nil
	}
	var text bytes.Buffer
	if err := content(&text); err != nil {
		return err
	}
	return os.WriteFile(name, text.Bytes(), 0o644)
}

// measure runs the suites and prints the tables. It writes a line for each result as soon as
// there is one.
func (o *options) measure(ctx context.Context, lab *bench.Lab, suites []bench.Suite, lines io.Writer) (*bench.Report, error) {
	report := new(bench.Report)
	var failed error
	add := func(e bench.Entry) {
		report.Add(e)
		failed = cmp.Or(failed, e.Write(lines))
	}
	add(bench.Entry{Start: o.start(lab)})
	table := bench.Table{Out: os.Stdout, Patience: o.patience}
	if len(suites) == 1 {
		table.Patience = suites[0].Patience
	}
	if slices.ContainsFunc(suites, func(s bench.Suite) bool { return s.Start != nil }) {
		table.Begin(report.Start.Machine, o.pairs)
	} else {
		table.Machine(report.Start.Machine, o.pairs)
	}
	for _, suite := range suites {
		var note string
		var err error
		if suite.Listings != nil {
			note, err = suite.Listings(ctx, lab, o.pairs, o.row, func(l bench.Listing) { add(bench.Entry{Listing: &l}) })
		} else {
			note, err = bench.Run(ctx, suite, lab, o.pairs, o.chosen, func(r bench.Result) {
				table.Row(r)
				add(bench.Entry{Result: &r})
			})
		}
		if err != nil {
			return report, err
		}
		add(bench.Entry{Note: suite.Name + ": " + note})
	}
	table.Readings(report.Results)
	table.Listings(report.Listings)
	fmt.Println()
	for _, note := range report.Notes {
		fmt.Println("-", note)
	}
	return report, failed
}
