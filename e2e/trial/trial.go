package trial

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/stager-dev/stager/e2e/room"
	"github.com/stager-dev/stager/e2e/servers"
)

// Config says what is to be proved.
type Config struct {
	Stager string            // the binary
	Env    []string          // endpoint and credentials of the store
	Source string            // URL of the shards
	Shards map[string]string // name of each shard → SHA-256 of its bytes
	Work   string            // directory for everything local

	Readers     int
	Groups      int                    // of readers, each of which gets every shard; 0: one
	ReaderCmd   func(Reader) *exec.Cmd // starts a process that calls Reader.Run
	Pace        time.Duration
	Epochs      int
	Window      int64                            // bytes
	Reuse       string                           // none, fit or pin
	Order       string                           // YAML of the order, or "" for a shuffle
	Items       string                           // YAML of what a shard is, such as "items: directories", or ""
	Unpack      bool                             // shards are archives
	Volume      string                           // ext4, tmpfs or xfs, or "" for any
	KillReaders func(delivered, total int) bool  // asked a few times a second: kill one now?
	KillStager  []float64                        // at these parts of the whole, for which readers wait
	Outputs     string                           // YAML of the plan's outputs, or ""
	During      func(delivered, total int) error // called a few times a second; may be nil
	Halfway     func(*Pause) error               // called once, when half is acknowledged; may be nil
	Say         func(format string, args ...any) // tells of each kill
	// OwnVolume means that Work/volume is a file system that nothing else uses: what is in use there is
	// sampled while the trial runs.
	OwnVolume bool
}

// Run carries a trial out. An error means that it could not be; what was proved is
// in the Report.
func Run(ctx context.Context, cfg Config) (report *Report, err error) {
	t := &trial{
		Config: cfg, socket: filepath.Join(cfg.Work, "s.sock"), data: filepath.Join(cfg.Work, "volume", "data"),
		records: filepath.Join(cfg.Work, "records"), exited: make(chan int, cfg.Readers),
		readers: make([]*process, cfg.Readers), total: len(cfg.Shards) * cfg.Epochs * max(cfg.Groups, 1),
	}
	for _, dir := range []string{t.data, t.records} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, err
		}
	}
	if err := os.WriteFile(t.plan(), t.planText(), 0o644); err != nil {
		return nil, err
	}
	t.planPauses()
	watching, stopWatching := context.WithCancel(ctx)
	defer stopWatching()
	watcher := &room.Watcher{Dir: t.data}
	var watch sync.WaitGroup
	watch.Go(func() { watcher.Run(watching) })
	var volume *room.Volume
	if t.OwnVolume {
		if volume, err = room.NewVolume(filepath.Join(t.Work, "volume")); err != nil {
			return nil, err
		}
		watch.Go(func() { volume.Run(watching) })
	}

	started := time.Now()
	if err := t.startStager(); err != nil {
		return nil, err
	}
	defer t.endAll()
	for i := range t.readers {
		if err := t.startReader(i); err != nil {
			return nil, err
		}
	}
	if err := t.watchOver(ctx); err != nil {
		return nil, err
	}
	code, err := t.endStager()
	if err != nil {
		return nil, err
	}
	stopWatching()
	watch.Wait()
	report, err = t.report()
	if err != nil {
		return nil, err
	}
	report.Seconds = time.Since(started).Seconds()
	report.PeakBytes, report.Looks = watcher.Peak()
	report.StagerExit = code
	if volume != nil {
		report.VolumePeak, report.VolumeLooks, err = volume.Peak()
	}
	return report, err
}

type trial struct {
	Config
	socket, data, records string
	total                 int

	stager        *process
	readers       []*process
	exited        chan int // numbers of readers that ended
	pauses        []*Pause // that have not begun, in their order
	killedReaders int
	killedStager  int
}

// process is a command and how it ended.
type process struct {
	cmd    *exec.Cmd
	done   chan struct{}
	err    error
	killed atomic.Bool
}

func start(cmd *exec.Cmd) (*process, error) {
	p := &process{cmd: cmd, done: make(chan struct{})}
	err := servers.StartTied(cmd, func(err error) {
		p.err = err
		close(p.done)
	})
	if err != nil {
		return nil, err
	}
	return p, nil
}

// kill ends a process with SIGKILL and waits until it is gone.
func (p *process) kill() {
	p.killed.Store(true)
	_ = p.cmd.Process.Kill() // it may have ended by itself
	<-p.done
}

func (t *trial) log() string { return filepath.Join(t.Work, "stager.log") }

func (t *trial) plan() string { return filepath.Join(t.Work, "plan.yaml") }

func (t *trial) planText() []byte {
	return fmt.Appendf(nil, `apiVersion: stager.dev/v1alpha1
kind: StagePlan
metadata: {name: trial}
spec:
  inputs:
  - name: train
    source: %s
    path: %s
    unpack: %s
    mode: window
    window: {size: %d, release: lease, reuse: %s, minReady: {files: %d}, groups: %d, %s}
    order: {%s, epochs: %d}
%s`, t.Source, t.data, map[bool]string{false: "none", true: "auto"}[t.Unpack], t.Window, cmp.Or(t.Reuse, "none"), min(t.Config.Readers, 4), max(t.Groups, 1), cmp.Or(t.Items, "items: files"), cmp.Or(t.Order, "by: shuffle, seed: 17"), t.Epochs, t.Outputs)
}

func (t *trial) startStager() (err error) {
	logFile, err := os.OpenFile(t.log(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer logFile.Close() // the process has its own copy
	cmd := exec.Command(t.Stager, "run", "-f", t.plan(), "--socket", t.socket)
	cmd.Env = append(os.Environ(), t.Env...)
	cmd.Stderr = logFile
	t.stager, err = start(cmd)
	return err
}

func (t *trial) startReader(i int) (err error) {
	group := ""
	if t.Groups > 0 {
		group = fmt.Sprint(i % t.Groups)
	}
	cmd := t.ReaderCmd(Reader{
		Socket: t.socket, Input: "train", ID: fmt.Sprintf("r%d", i), Group: group, Epochs: t.Epochs,
		Record: t.record(i), Pace: t.Pace, Pauses: t.pauses,
	})
	cmd.Stderr = os.Stderr
	p, err := start(cmd)
	if err != nil {
		return err
	}
	t.readers[i] = p
	go func() {
		<-p.done
		if !p.killed.Load() || p.err == nil {
			t.exited <- i
		}
	}()
	return nil
}

// watchOver kills as it is told to, until every reader has read its last epoch.
func (t *trial) watchOver(ctx context.Context) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	left := len(t.readers)
	gone := make([]bool, len(t.readers))
	for left > 0 {
		select {
		case <-ctx.Done():
			return fmt.Errorf("the trial takes too long: %w\n%s", ctx.Err(), t.tail())
		case i := <-t.exited:
			if err := t.readers[i].err; err != nil {
				return fmt.Errorf("reader %d: %w", i, err)
			}
			gone[i], left = true, left-1
			continue
		case <-t.stager.done:
			return fmt.Errorf("stager ended by itself: %w\n%s", t.stager.err, t.tail())
		case <-tick.C:
		}
		acked, err := t.acked()
		if err != nil {
			continue // the daemon is just coming up
		}
		if t.During != nil {
			if err := t.During(acked, t.total); err != nil {
				return err
			}
		}
		if len(t.pauses) > 0 && acked >= t.pauses[0].At*max(t.Groups, 1) {
			now := t.pauses[0]
			t.pauses = t.pauses[1:]
			if err := errors.Join(now.do(now), now.End()); err != nil {
				return err
			}
		}
		if victim := rand.IntN(len(t.readers)); t.KillReaders != nil && !gone[victim] && !t.isLast(victim) && t.KillReaders(acked, t.total) {
			t.readers[victim].kill()
			if t.readers[victim].err == nil {
				continue // it had just ended by itself
			}
			t.killedReaders++
			t.Say("reader %d is killed with SIGKILL after %d of %d shards, and started again", victim, acked, t.total)
			if err := t.startReader(victim); err != nil {
				return err
			}
		}
	}
	return nil
}

// killStager is what happens at the parts of the whole that are said for it.
func (t *trial) killStager(p *Pause) error {
	t.killedStager++
	t.stager.kill()
	t.Say("stager is killed with SIGKILL after %d of %d shards, and started again", p.At, t.total)
	return t.startStager()
}

func (t *trial) record(reader int) string {
	return filepath.Join(t.records, fmt.Sprintf("r%d", reader))
}

// isLast is whether a reader has a shard of which two readers have died: a third ends the input, as
// window says. On a machine so slow that readers work longer than it is between two kills, that happens.
func (t *trial) isLast(reader int) bool {
	events, _ := readRecord(t.record(reader)) // none: it has none
	return len(events) > 0 && events[len(events)-1].Attempt > 2
}

// acked is how many shards are acknowledged, by all groups.
func (t *trial) acked() (int, error) {
	n, err := acknowledged(t.socket, "train")
	return n * max(t.Groups, 1), err
}

// endStager ends it as a pod's end does, and returns its exit code.
func (t *trial) endStager() (int, error) {
	if err := t.stager.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return 0, err
	}
	<-t.stager.done
	return t.stager.cmd.ProcessState.ExitCode(), nil
}

func (t *trial) endAll() {
	for _, p := range append([]*process{t.stager}, t.readers...) {
		if p != nil {
			p.kill()
		}
	}
}

// tail is the end of stager's log.
func (t *trial) tail() string {
	file, err := os.Open(filepath.Join(t.Work, "stager.log"))
	if err != nil {
		return ""
	}
	defer file.Close() // opened for reading
	if end, err := file.Seek(0, io.SeekEnd); err == nil {
		_, _ = file.Seek(max(0, end-4096), io.SeekStart) // then it is the whole
	}
	text, _ := io.ReadAll(file) // as much as there is
	return string(text)
}
