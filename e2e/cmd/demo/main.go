// Command demo shows stager at work, on this machine alone: a dataset in an S3
// server, a window an eighth of its size, a trainer of four readers over two epochs,
// a reader and stager itself killed with SIGKILL, checkpoints saved and restored. It
// ends with a table, and with code 1 if a promise broke.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/stager-dev/stager/e2e/servers"
	"github.com/stager-dev/stager/e2e/trial"
)

const (
	shards  = 240
	readers = 4
	epochs  = 2
	// limit is how long all of it may take.
	limit = 5 * time.Minute
)

func main() {
	binary := flag.String("stager", "../bin/stager", "the binary to show")
	keep := flag.Bool("keep", false, "keep the working directory")
	var reader trial.Reader
	reading := flag.Bool("reader", false, "be one of the trainer's readers")
	flag.StringVar(&reader.Socket, "socket", "", "of the reader")
	flag.StringVar(&reader.ID, "id", "", "of the reader")
	flag.StringVar(&reader.Record, "record", "", "of the reader")
	flag.DurationVar(&reader.Pace, "pace", 0, "of the reader")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var err error
	if *reading {
		reader.Input, reader.Epochs = "train", epochs
		err = reader.Run(ctx)
	} else {
		err = demo(ctx, *binary, *keep)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

func say(format string, args ...any) { fmt.Printf("· "+format+"\n", args...) }

func demo(ctx context.Context, binary string, keep bool) (err error) {
	if binary, err = filepath.Abs(binary); err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "stager-demo-")
	if err != nil {
		return err
	}
	if keep {
		say("working in %s", work)
	} else {
		defer os.RemoveAll(work)
	}
	say("starting an S3 server on this machine")
	s3, err := servers.StartS3(ctx, servers.S3Options{Buckets: []string{"demo"}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s3.Close()) }()

	digests, size, err := dataset(ctx, binary, work, s3.Env())
	if err != nil {
		return err
	}
	saver := &saver{binary: binary, out: filepath.Join(work, "out"), socket: filepath.Join(work, "s.sock")}
	window := size / 8
	say("training: %d readers, %d epochs, through a window of %s", readers, epochs, humanize.IBytes(uint64(window)))
	killed := false
	report, err := trial.Run(ctx, trial.Config{
		Stager: binary, Env: s3.Env(), Source: "s3://demo/train/", Shards: digests, Work: work,
		Readers: readers, Pace: 60 * time.Millisecond, Epochs: epochs, Window: window,
		ReaderCmd: func(r trial.Reader) *exec.Cmd {
			return exec.Command(os.Args[0], "-reader", "-socket", r.Socket, "-id", r.ID, "-record", r.Record, "-pace", r.Pace.String())
		},
		KillReaders: func(acked, total int) bool {
			now := !killed && acked > total/2
			killed = killed || now
			return now
		},
		KillStager: []float64{0.66},
		Outputs:    fmt.Sprintf("  outputs:\n  - name: ckpt\n    path: %s\n    destination: s3://demo/runs/\n    quietPeriod: 1h\n", saver.out),
		During:     saver.train,
		Say:        say,
	})
	if err != nil {
		return err
	}
	restored, err := saver.check(ctx, work, s3.Env())
	if err != nil {
		return err
	}
	fmt.Println()
	if err := report.Print(os.Stdout); err != nil {
		return err
	}
	fmt.Printf("  checkpoints  %s\n\n", restored)
	if broken := report.Broken(); len(broken) > 0 {
		return fmt.Errorf("promises that broke:\n  %s", strings.Join(broken, "\n  "))
	}
	say("every promise held")
	return nil
}

// dataset packs the toolchain's own source, which every machine with Go has, and
// pushes it.
func dataset(ctx context.Context, binary, work string, env []string) (map[string]string, int64, error) {
	root, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output()
	if err != nil {
		return nil, 0, err
	}
	tree, packed := filepath.Join(strings.TrimSpace(string(root)), "src"), filepath.Join(work, "packed")
	if err := os.Mkdir(packed, 0o755); err != nil {
		return nil, 0, err
	}
	say("packing the source of the Go toolchain into %d shards", shards)
	digests, size, err := trial.PackTree(tree, packed, shards)
	if err != nil {
		return nil, 0, err
	}
	say("stager push: %s to s3://demo/train/", humanize.IBytes(uint64(size)))
	_, err = run(ctx, env, binary, "push", "--quiet", packed, "s3://demo/train/")
	return digests, size, errors.Join(err, os.RemoveAll(packed))
}

// run is a command of stager's; its error holds what it said.
func run(ctx context.Context, env []string, binary string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, binary, args...)
	cmd.Env = append(os.Environ(), env...)
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = io.MultiWriter(&said), &said
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("stager %s: %w\n%s", strings.Join(args, " "), err, said.String())
	}
	return said.String(), nil
}
