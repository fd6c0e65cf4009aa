package soak

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/stager-dev/stager/e2e/trial"
)

// feeder is a daemon with a window, and its readers.
type feeder struct {
	*node
	shards map[string]string

	mu      sync.Mutex // guards the fields below
	ledger  *ledger
	readers [readersEach]*reader
	started int // readers so far
	killed  int
	over    bool
}

// reader is a process that reads, and how far its record was read.
type reader struct {
	*process
	record string
	read   int64
	last   trial.Event
}

func (s *soak) newFeeder(ctx context.Context, n *node) (*feeder, error) {
	packed := filepath.Join(s.Work, n.name+".shards")
	if err := os.MkdirAll(packed, 0o755); err != nil {
		return nil, err
	}
	digests, err := trial.PackNoise(packed, shards, shardSize)
	if err != nil {
		return nil, err
	}
	url := "s3://" + Bucket + "/" + n.name + "/"
	if out, err := s.command("push", packed, url).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("push: %w\n%s", err, out)
	}
	n.window = windowSize
	f := &feeder{node: n, shards: digests, ledger: newLedger(digests)}
	return f, n.plan(fmt.Sprintf(`  inputs:
  - name: train
    source: %s
    path: %s/data
    credentials: {secret: %s}
    mode: window
    window: {size: %d, release: lease, minReady: {files: 1}}
    order: {by: shuffle, seed: 17, epochs: 0}
`, url, n.dir, secret, windowSize))
}

// startReader starts a reader in the place of another one.
func (f *feeder) startReader(i int) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.over {
		return nil
	}
	f.started++
	r := &reader{record: filepath.Join(f.Work, fmt.Sprintf("%s.record-%d", f.name, f.started))}
	cmd := f.ReaderCmd(trial.Reader{Socket: f.socket(), Input: "train", ID: fmt.Sprintf("r%d", i), Epochs: 1 << 30, Record: r.record, Pace: 60 * time.Millisecond})
	cmd.Stderr = os.Stderr
	var err error
	r.process, err = start(cmd)
	f.readers[i] = r
	return err
}

// follow reads what readers write down, and kills one now and then.
func (f *feeder) follow(ctx context.Context) error {
	for at := 1; pause(ctx, time.Second); at++ {
		if err := f.note(); err != nil {
			return err
		}
		if at%3 == 0 {
			if err := f.killOne(); err != nil {
				return err
			}
		}
	}
	return nil
}

// note reads all records as far as they go.
func (f *feeder) note() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	ended := f.ledger.ended
	for _, r := range f.readers {
		if r == nil {
			continue
		}
		running := r.running()
		if err := f.readLocked(r); err != nil {
			return err
		}
		if !running {
			return fmt.Errorf("%s: a reader ended by itself: %w\n%s", f.name, r.err, f.tail())
		}
	}
	f.ledger.judge(ended)
	for _, text := range f.ledger.broken {
		f.breach("%s: %s", f.name, text)
	}
	f.ledger.broken = nil
	return nil
}

func (f *feeder) readLocked(r *reader) error {
	events, to, err := trial.ReadRecord(r.record, r.read)
	if err != nil {
		return err
	}
	f.ledger.note(events)
	if r.read = to; len(events) > 0 {
		r.last = events[len(events)-1]
	}
	return nil
}

// killOne kills a reader, unless it has a shard of which two readers have died: a third ends the input.
func (f *feeder) killOne() error {
	i := f.below(readersEach)
	f.mu.Lock()
	r := f.readers[i]
	err := f.readLocked(r)
	if err != nil || r.last.Attempt > 1 {
		f.mu.Unlock()
		return err
	}
	r.kill()
	f.killed++
	err = f.readLocked(r)
	if failed := os.Remove(r.record); !errors.Is(failed, fs.ErrNotExist) { // it may have been killed before its first line
		err = errors.Join(err, failed)
	}
	f.mu.Unlock()
	f.count("readers killed")
	return errors.Join(err, f.startReader(i))
}

// endReaders ends all of them, and reads their records to the end.
func (f *feeder) endReaders() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.over {
		return
	}
	f.over = true
	for _, r := range f.readers {
		if r != nil {
			r.kill()
			if err := f.readLocked(r); err != nil {
				f.breach("%s: %v", f.name, err)
			}
		}
	}
}

// judge checks what the readers counted.
func (f *feeder) judge() {
	l := f.ledger
	l.judge(l.ended)
	for _, text := range l.broken {
		f.breach("%s: %s", f.name, text)
	}
	if most := f.killed + l.late; l.redelivered > most {
		f.breach("%s: %d deliveries were repeated, and %d readers were killed", f.name, l.redelivered, most)
	}
	if l.done == 0 {
		f.breach("%s: no epoch has ended", f.name)
	}
}

// look reads files that the window shows, as any process may: each must be whole.
func (f *feeder) look(ctx context.Context) error {
	for pause(ctx, f.between(100*time.Millisecond)) {
		visible, err := filepath.Glob(filepath.Join(f.dir, "data", "ready", "*.tar"))
		if err != nil || len(visible) == 0 {
			continue
		}
		path := visible[f.below(len(visible))]
		file, err := os.Open(path)
		if err != nil {
			continue // it is gone
		}
		h := sha256.New()
		_, err = io.Copy(h, file)
		_ = file.Close() // opened for reading
		if got, want := hex.EncodeToString(h.Sum(nil)), f.shards[trial.ShardName(path)]; err != nil || got != want {
			f.breach("%s has SHA-256 %q (%v), want %q", path, got, err, want)
		}
		f.count("visible files read")
	}
	return nil
}
