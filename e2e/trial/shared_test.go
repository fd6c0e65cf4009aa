package trial

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// sharing is a directory that three workers copy or pack while it changes.
type sharing struct {
	binary, work string
	rng          *rand.Rand
	files        map[string]string // what the source has now
	calm         time.Duration     // how long a worker takes that nobody disturbs
	count        int
	tally        map[string]int
}

const sharingWorkers = 3

// Three workers copy or pack one directory, each its part, and one change is made to it at
// a random moment: a file comes, goes, or is replaced. When all workers end with 0 the
// destination has the files of before the change or of after it, each once; else a worker
// named the change. Then the layout is reset, all workers run again, and everything is
// right. Every fourth round a worker has another seed or count, which must never pass.
//
// A stager that divided the work without an agreement was wrong without a word in 4 to 6
// of 40 rounds. STAGER_TRIAL=full makes 40 rounds of each.
func TestWorkersShareASourceThatChanges(t *testing.T) {
	rounds := 5
	if full {
		rounds = 40
	}
	binary := build(t)
	for _, what := range []string{"pack", "copy"} {
		t.Run(what, func(t *testing.T) {
			s := &sharing{binary: binary, work: t.TempDir(), rng: rand.New(rand.NewPCG(25, 3)), tally: make(map[string]int)}
			s.warm(t, what)
			wrong := 0
			for range rounds {
				if err := s.round(t, what); err != nil {
					wrong++
					t.Errorf("round %d: %v", s.count, err)
				}
				if err := s.again(what); err != nil {
					t.Errorf("round %d: %v", s.count, err)
				}
			}
			t.Logf("%d rounds: %v, %d wrong without a word", rounds, s.tally, wrong)
		})
	}
}

func (s *sharing) src() string { return filepath.Join(s.work, fmt.Sprint("src-", s.count)) }
func (s *sharing) dst() string { return filepath.Join(s.work, fmt.Sprint("dst-", s.count)) }

// fill makes a source.
func (s *sharing) fill(t *testing.T) {
	t.Helper()
	s.count++
	s.files = make(map[string]string)
	for i := range 60 {
		s.files[fmt.Sprintf("c%d/%03d.bin", i%3, i)] = strings.Repeat(fmt.Sprintf("%d of round %d\n", i, s.count), 400+i*5)
	}
	for name, text := range s.files {
		path := filepath.Join(s.src(), name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
}

// warm measures one worker that nobody disturbs.
func (s *sharing) warm(t *testing.T, what string) {
	t.Helper()
	s.fill(t)
	began := time.Now()
	if code, said := s.worker(what, 0, 1); code != 0 {
		t.Fatalf("one worker alone: exit %d: %s", code, said)
	}
	s.calm = time.Since(began)
}

// change makes one change in one step, and returns the files after it.
func (s *sharing) change() (after map[string]string, err error) {
	after = maps.Clone(s.files)
	name := slices.Sorted(maps.Keys(s.files))[s.rng.IntN(len(s.files))]
	switch s.rng.IntN(3) {
	case 0:
		name = "c0/0.bin" // before all others
		fallthrough
	case 1:
		after[name] = strings.Repeat("changed\n", 900)
		fresh := s.src() + ".new"
		if err := os.WriteFile(fresh, []byte(after[name]), 0o644); err != nil {
			return nil, err
		}
		return after, os.Rename(fresh, filepath.Join(s.src(), name))
	}
	delete(after, name)
	return after, os.Remove(filepath.Join(s.src(), name))
}

// worker runs one, and returns its exit code and what it said.
func (s *sharing) worker(what string, index, count int, flags ...string) (code int, said string) {
	args := append([]string{what, "--quiet", s.src(), s.dst(), fmt.Sprintf("--shard=%d/%d", index, count)}, flags...)
	if what == "pack" {
		args = append(args, "--shard-size=64Ki")
	}
	return s.stager(args...)
}

func (s *sharing) stager(args ...string) (code int, said string) {
	cmd := exec.Command(s.binary, args...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	if cmd.ProcessState == nil {
		return -1, err.Error()
	}
	return cmd.ProcessState.ExitCode(), strings.TrimSpace(out.String())
}

// round returns an error when something is wrong and nobody said so.
func (s *sharing) round(t *testing.T, what string) error {
	t.Helper()
	s.fill(t)
	flags := make([][]string, sharingWorkers)
	counts := []int{sharingWorkers, sharingWorkers, sharingWorkers}
	odd := s.count%4 == 0
	switch other := s.rng.IntN(sharingWorkers); {
	case odd && what == "pack" && s.rng.IntN(2) == 0:
		for i := range flags {
			flags[i] = []string{"--shuffle=1"}
		}
		flags[other] = []string{"--shuffle=2"}
	case odd:
		counts[other]++
	}
	codes, said := make([]int, sharingWorkers), make([]string, sharingWorkers)
	var all sync.WaitGroup
	for i := range sharingWorkers {
		at := time.Duration(s.rng.Int64N(int64(3 * s.calm)))
		all.Go(func() {
			time.Sleep(at) // processes meet as they like
			codes[i], said[i] = s.worker(what, i, counts[i], flags[i]...)
		})
	}
	before, after := s.files, s.files
	if !odd {
		time.Sleep(time.Duration(s.rng.Int64N(int64(4 * s.calm))))
		var err error
		if after, err = s.change(); err != nil {
			t.Fatal(err)
		}
	}
	all.Wait()
	s.files = after
	if codes[0]+codes[1]+codes[2] == 0 {
		got, err := s.read(what)
		switch {
		case err != nil:
		case odd:
			err = errors.New("workers with other flags all ended with 0")
		case maps.Equal(got, before):
			s.tally["as before the change"]++
		case maps.Equal(got, after):
			s.tally["as after the change"]++
		default:
			err = fmt.Errorf("all workers ended with 0, and the destination has %d files, neither the %d of before nor the %d of after", len(got), len(before), len(after))
		}
		if err != nil {
			return err
		}
	} else {
		s.tally["refused"]++
		for i, code := range codes {
			if code != 0 && code != 75 && code != 78 || code != 0 && said[i] == "" {
				return fmt.Errorf("worker %d: exit %d: %s", i, code, said[i])
			}
		}
	}
	return nil
}

// again runs all workers over a source that rests, and compares.
func (s *sharing) again(what string) error {
	for _, args := range [][]string{{"--reset-layout", "--shard=0/3"}, {"--overwrite", "--shard=0/3"}, {"--overwrite", "--shard=1/3"}, {"--overwrite", "--shard=2/3"}, {"--verify"}} {
		all := append([]string{what, "--quiet", s.src(), s.dst()}, args...)
		if what == "pack" {
			all = append(all, "--shard-size=64Ki")
		}
		if code, said := s.stager(all...); code != 0 {
			return fmt.Errorf("again, %v: exit %d: %s", args, code, said)
		}
	}
	got, err := s.read(what)
	if err != nil {
		return err
	}
	for name, text := range s.files {
		if got[name] != text {
			return fmt.Errorf("after all workers ran again %s is not that of the source", name)
		}
	}
	if what == "pack" && len(got) != len(s.files) {
		return fmt.Errorf("after all workers ran again the shards have %d files, want %d", len(got), len(s.files))
	}
	return errors.Join(os.RemoveAll(s.src()), os.RemoveAll(s.dst()))
}

// read returns the files at the destination, those of shards by their names in them.
func (s *sharing) read(what string) (map[string]string, error) {
	files := make(map[string]string)
	err := filepath.WalkDir(s.dst(), func(path string, entry os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if strings.HasPrefix(entry.Name(), ".stager") {
				return filepath.SkipDir
			}
			return nil
		}
		name, err := filepath.Rel(s.dst(), path)
		if err != nil {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if what == "copy" {
			files[name] = string(text)
			return nil
		}
		if !strings.HasSuffix(name, ".tar") {
			return nil
		}
		return members(text, files)
	})
	return files, err
}

// members adds those of an archive; a name that is there already is an error.
func members(archive []byte, files map[string]string) error {
	for r := tar.NewReader(bytes.NewReader(archive)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		text, err := io.ReadAll(r)
		if err != nil {
			return err
		}
		if _, twice := files[h.Name]; twice {
			return fmt.Errorf("%s is in the shards twice", h.Name)
		}
		files[h.Name] = string(text)
	}
}
