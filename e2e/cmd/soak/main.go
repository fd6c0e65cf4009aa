// Command soak runs stager under faults for a while, and reports what broke and what grows:
//
//	go run ./cmd/soak -for 8h -out ../bin/soak
//
// It takes root, because it mounts volumes. Package e2e/soak describes what it does. It ends with code 1 when
// a promise was broken, or a series was not proved to be flat.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/stager-dev/stager/e2e/servers"
	"github.com/stager-dev/stager/e2e/soak"
	"github.com/stager-dev/stager/e2e/trial"
)

// readerFlag is the first argument of a process that is a reader.
const readerFlag = "-as-reader"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	run := run
	if len(os.Args) == 3 && os.Args[1] == readerFlag {
		run = read
	}
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "soak:", err)
		os.Exit(1)
	}
}

// read is a reader.
func read(ctx context.Context) error {
	var r trial.Reader
	if err := json.Unmarshal([]byte(os.Args[2]), &r); err != nil {
		return err
	}
	return r.Run(ctx)
}

func readerCmd(r trial.Reader) *exec.Cmd {
	settings, err := json.Marshal(r)
	if err != nil {
		panic(err) // it is strings and numbers
	}
	return exec.Command("/proc/self/exe", readerFlag, string(settings))
}

func run(ctx context.Context) (err error) {
	stager := flag.String("stager", "../bin/stager", "the binary")
	length := flag.Duration("for", 30*time.Minute, "how long it runs")
	seed := flag.Uint64("seed", uint64(time.Now().Unix()), "of the faults and their moments")
	out := flag.String("out", "../bin/soak", "a directory for the report, and for logs when it fails")
	prove := flag.Bool("prove", true, "fail if a series is not proved to be flat; false: only if one is proved to grow")
	flag.Parse()
	cfg := soak.Config{For: *length, Seed: *seed, Prove: *prove, ReaderCmd: readerCmd, Say: os.Stderr}
	if cfg.Stager, err = filepath.Abs(*stager); err != nil {
		return err
	}
	if cfg.Work, err = os.MkdirTemp("", "soak-"); err != nil {
		return err
	}
	defer os.RemoveAll(cfg.Work)
	cfg.Store, err = servers.StartS3(ctx, servers.S3Options{Dir: filepath.Join(cfg.Work, "store"), Buckets: []string{soak.Bucket}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, cfg.Store.Close()) }()
	result, err := soak.Run(ctx, cfg)
	if err != nil {
		return errors.Join(err, keepLogs(cfg.Work, *out))
	}
	result.Print(os.Stdout)
	if err := result.Write(*out); err != nil {
		return err
	}
	fmt.Fprintln(os.Stderr, "the report is in", *out)
	if !result.Passed {
		return errors.Join(errors.New("it has failed, as the report says"), keepLogs(cfg.Work, *out))
	}
	return nil
}

// keepLogs copies what the daemons said.
func keepLogs(work, out string) error {
	logs, err := filepath.Glob(filepath.Join(work, "*.log"))
	err = errors.Join(err, os.MkdirAll(out, 0o755))
	for _, log := range logs {
		text, failed := os.ReadFile(log)
		err = errors.Join(err, failed, os.WriteFile(filepath.Join(out, filepath.Base(log)), text, 0o644))
	}
	return err
}
