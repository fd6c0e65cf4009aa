package trial

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stager-dev/stager/e2e/room"
)

// sampling is a window of tar shards, and a sampler behind it whose files are read.
type sampling struct {
	t              *testing.T
	binary, work   string
	plan, run      string
	stager, mix    *process
	readers        []*process
	ended          chan int
	epochs         int
	window, mixDir string
}

const (
	samplesBound = 512 << 10
	mostKills    = 24
)

// newSampling is over the shards in a directory.
func newSampling(t *testing.T, binary, shards string) *sampling {
	t.Helper()
	run, err := os.MkdirTemp("", "trial-") // a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(run) })
	s := &sampling{t: t, binary: binary, work: t.TempDir(), run: run, readers: make([]*process, 3), ended: make(chan int, 3), epochs: 2}
	s.plan, s.window, s.mixDir = filepath.Join(s.work, "plan.yaml"), filepath.Join(s.work, "window"), filepath.Join(s.work, "mix")
	text := fmt.Sprintf(`apiVersion: stager.dev/v1alpha1
kind: StagePlan
metadata: {name: sampling}
spec:
  inputs:
  - {name: train, source: "file://%s/", path: %s, mode: window, window: {size: 8Mi, leaseTimeout: 15s}, order: {by: shuffle, seed: 5, epochs: %d}}
`, shards, s.window, s.epochs)
	if err := os.WriteFile(s.plan, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	s.startStager()
	s.startMix()
	for i := range s.readers {
		s.startReader(i)
	}
	t.Cleanup(func() {
		for _, p := range append(s.readers, s.mix, s.stager) {
			p.kill()
		}
		if t.Failed() {
			log, _ := os.ReadFile(filepath.Join(s.work, "log")) // as far as there is one
			t.Logf("stager and the sampler said:\n%s", log[max(0, len(log)-20_000):])
		}
	})
	return s
}

func (s *sampling) start(cmd *exec.Cmd) *process {
	s.t.Helper()
	log, err := os.OpenFile(filepath.Join(s.work, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		s.t.Fatal(err)
	}
	defer log.Close() // the process has its own copy
	cmd.Stderr = log
	p, err := start(cmd)
	if err != nil {
		s.t.Fatal(err)
	}
	return p
}

func (s *sampling) socket() string { return filepath.Join(s.run, "s.sock") }

func (s *sampling) startStager() {
	s.stager = s.start(exec.Command(s.binary, "run", "-f", s.plan, "--socket", s.socket()))
}

func (s *sampling) startMix() {
	s.mix = s.start(exec.Command(s.binary, "sample", "train", "--socket", s.socket(), "--serve", filepath.Join(s.run, "mix.sock"),
		"--dir", s.mixDir, "--size", fmt.Sprint(samplesBound), "--samples", "4", "--open", "5", "--seed", "3"))
}

func (s *sampling) startReader(i int) {
	p := s.start(readerCmd(Reader{
		Socket: filepath.Join(s.run, "mix.sock"), Input: "train", ID: fmt.Sprintf("r%d", i), Epochs: s.epochs,
		Record: filepath.Join(s.work, fmt.Sprintf("record-%d", i)), Pace: 60 * time.Millisecond,
	}))
	s.readers[i] = p
	go func() {
		<-p.done
		if !p.killed.Load() || p.err == nil {
			s.ended <- i
		}
	}()
}

// watch calls disturb from time to time, until every reader has read its last epoch.
func (s *sampling) watch(disturb func(reading []int)) {
	s.t.Helper()
	reading := map[int]bool{0: true, 1: true, 2: true}
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	late := time.After(3 * time.Minute)
	for len(reading) > 0 {
		select {
		case i := <-s.ended:
			if err := s.readers[i].err; err != nil {
				s.t.Fatalf("reader %d: %v", i, err)
			}
			delete(reading, i)
		case <-s.mix.done:
			s.t.Fatalf("the sampler ended by itself: %v", s.mix.err)
		case <-s.stager.done:
			s.t.Fatalf("stager ended by itself: %v", s.stager.err)
		case <-late:
			s.t.Fatal("the trial takes too long")
		case <-tick.C:
			var left []int
			for i := range reading {
				left = append(left, i)
			}
			disturb(left)
		}
	}
}

// acked is what the readers acknowledged: by position what was in it. That a file
// comes twice to one who had acknowledged it is an error.
func (s *sampling) acked() map[string]string {
	s.t.Helper()
	all, times := make(map[string]string), make(map[string]int)
	for i := range s.readers {
		events, err := readRecord(filepath.Join(s.work, fmt.Sprintf("record-%d", i)))
		if err != nil {
			s.t.Fatal(err)
		}
		for _, e := range events {
			at := fmt.Sprintf("%d-%d", e.Epoch, e.Pos)
			switch e.What {
			case "acking": // whether it was heard, when a kill came then, only the next delivery tells
				if was := all[at]; was != "" && was != e.SHA256 {
					s.t.Errorf("file %s is not what it was", at)
				}
				all[at] = e.SHA256
			case "acked":
				if times[at]++; times[at] > 1 {
					s.t.Errorf("file %s was acknowledged %d times", at, times[at])
				}
			}
		}
	}
	return all
}

func TestSamplerLosesNothing(t *testing.T) {
	binary, shards := build(t), t.TempDir()
	if _, _, err := PackTree(filepath.Join("..", "..", "backends"), shards, 24); err != nil {
		t.Fatal(err)
	}
	calm := newSampling(t, binary, shards)
	calm.watch(func([]int) {})
	want := calm.acked()

	rough := newSampling(t, binary, shards)
	watcher := &room.Watcher{Dir: rough.mixDir}
	ctx, stop := context.WithCancel(t.Context())
	watched := make(chan struct{})
	go func() { watcher.Run(ctx); close(watched) }()
	readers, samplers, stagers := 0, 0, 0
	n := 0
	rough.watch(func(reading []int) {
		switch n++; {
		case n > mostKills: // so that a slow machine gets through
		case n%6 == 5:
			rough.stager.kill()
			rough.startStager()
			stagers++
		case n%3 == 0:
			rough.mix.kill()
			rough.startMix()
			samplers++
		default:
			i := reading[rand.IntN(len(reading))]
			if rough.readers[i].kill(); rough.readers[i].err != nil {
				rough.startReader(i)
				readers++
			}
		}
	})
	stop()
	<-watched
	got := rough.acked()
	if !maps.Equal(got, want) {
		t.Errorf("%d files were acknowledged, want %d, the same byte for byte", len(got), len(want))
	}
	peak, looks := watcher.Peak()
	if peak > samplesBound {
		t.Errorf("%d bytes were on the disk, and the bound is %d", peak, samplesBound)
	}
	if readers == 0 || samplers == 0 || stagers == 0 {
		t.Errorf("%d readers, %d samplers, %d stagers were killed, want some of each", readers, samplers, stagers)
	}
	t.Logf("%d files; killed %d readers, %d samplers, %d stagers; at most %d of %d bytes in %d looks", len(got), readers, samplers, stagers, peak, samplesBound, looks)
}
