package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/stager-dev/stager/e2e/servers"
	"github.com/stager-dev/stager/e2e/trial"
)

// ReaderFlag is the first argument of the process that trains.
const ReaderFlag = "-reader"

// What a training reads, and how long it works on each shard: with the time that it
// takes to get and to read them a row takes some seconds.
const (
	trainingShards = 64
	trainingPace   = 100 * time.Millisecond
)

// Reader is the process that trains: it takes all shards from the window behind the
// socket that args name.
func Reader(ctx context.Context, args []string) error {
	if len(args) != 1 {
		return errors.New("this is for the bench itself")
	}
	return trial.Reader{Socket: args[0], Input: "train", ID: "0", Epochs: 1, Record: os.DevNull, Pace: trainingPace}.Run(ctx)
}

// training is a reader of a window while a checkpoint is on its way out, beside the same
// with nothing to save: the ratio is the share of its speed that training keeps.
func training(ctx context.Context, lab *Lab) (rows []Row, note string, stop func() error, err error) {
	dir := filepath.Join(lab.Dir, "training")
	shards, err := MakeData(filepath.Join(dir, "shards"), 1, trainingShards, lab.Data.Size/trainingShards)
	if err != nil {
		return nil, "", nil, err
	}
	saved, err := MakeData(filepath.Join(dir, "saved"), 1, shardsOf, lab.Data.Size/(shardsOf/4))
	if err != nil {
		return nil, "", nil, err
	}
	server, err := servers.StartQuick(shards.Many, "bench")
	if err != nil {
		return nil, "", nil, err
	}
	t := &job{site: site{lab: lab, env: server.Env()}, dir: dir, saved: saved.Many}
	row := Row{
		Store: "s3, quick", Work: fmt.Sprintf("train, %d × %s, and save %s", trainingShards, sizeOf(shards.FileSize), sizeOf(saved.Files*saved.FileSize)),
		Goal: Goal{Ratio: 0.99}, Peer: "the same, nothing to save", Bytes: shards.Files * shards.FileSize,
		Reset: func(ctx context.Context) error {
			err := t.end()
			server.Drop("ckpt/")
			return firstOf(err, t.begin(ctx))
		},
		Ours:   func() *exec.Cmd { return t.reader(t.save()) },
		Theirs: func() *exec.Cmd { return t.reader(nil) },
		Check:  func(ctx context.Context) error { return t.check(ctx) },
	}
	return []Row{row}, "the server is in the process that measures; a save lasts about as long as the training", func() error {
		return errors.Join(t.end(), server.Close(), os.RemoveAll(dir))
	}, nil
}

// job is a stager with a window and an output, and who reads from it.
type job struct {
	site
	dir, saved string
	run        *exec.Cmd
	saving     bool
}

func (t *job) at(name string) string { return filepath.Join(t.dir, name) }

// begin starts a stager on fresh directories, and waits for its window.
func (t *job) begin(ctx context.Context) error {
	plan := fmt.Sprintf(`apiVersion: stager.dev/v1alpha1
kind: StagePlan
metadata: {name: bench}
spec:
  inputs:
  - {name: train, source: "s3://bench/", include: ["*.bin"], path: %s, mode: window, window: {size: %d}}
  outputs:
  - {name: ckpt, path: %s, destination: "s3://bench/ckpt/", quietPeriod: 1h, deadline: 2h}
`, t.at("win"), t.lab.Data.Size/4, t.at("out"))
	if err := firstOf(os.RemoveAll(t.at("win")), os.RemoveAll(t.at("out")), os.WriteFile(t.at("plan.yaml"), []byte(plan), 0o600)); err != nil {
		return err
	}
	t.saving = false
	t.run = t.stager("run", "-q", "-f", t.at("plan.yaml"), "--socket", t.at("s"))
	t.run.Stderr = t.lab.Log
	t.run.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := t.run.Start(); err != nil {
		return err
	}
	for ctx.Err() == nil && t.stager("status", "--ready", "--socket", t.at("s")).Run() != nil {
		time.Sleep(10 * time.Millisecond)
	}
	return ctx.Err()
}

// save brings a checkpoint into the output, and says so.
func (t *job) save() error {
	t.saving = true
	step := filepath.Join(t.at("out"), "step-1")
	files, err := os.ReadDir(t.saved)
	if err = firstOf(err, os.MkdirAll(step, 0o755)); err != nil {
		return err
	}
	for _, f := range files {
		if err := os.Link(filepath.Join(t.saved, f.Name()), filepath.Join(step, f.Name())); err != nil {
			return err
		}
	}
	return quietly(t.stager("commit", "ckpt", step, "--socket", t.at("s")))
}

func (t *job) reader(err error) *exec.Cmd {
	self, failed := os.Executable()
	cmd := exec.Command(self, ReaderFlag, t.at("s")) //nolint:noctx // measure runs it
	cmd.Err = firstOf(err, failed)
	return cmd
}

// check finds that what was to be saved is.
func (t *job) check(context.Context) error {
	if !t.saving {
		return nil
	}
	began := time.Now()
	err := quietly(t.stager("commit", "ckpt", filepath.Join(t.at("out"), "step-1"), "--wait", "5m", "--socket", t.at("s")))
	fmt.Fprintln(t.lab.Log, "the save ended", strconv.FormatFloat(time.Since(began).Seconds(), 'f', 1, 64), "s after the training")
	return err
}

// end ends the stager at once.
func (t *job) end() error {
	if t.run == nil {
		return nil
	}
	_ = t.run.Process.Kill() // it may have ended
	_ = t.run.Wait()         // killed
	t.run = nil
	return nil
}
