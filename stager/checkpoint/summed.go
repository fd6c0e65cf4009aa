package checkpoint

import (
	"encoding/hex"
	"errors"
	"hash"
	"io"
	"os"
	"sync"

	"github.com/stager-dev/stager/backends"
)

// summed is a file that is summed while a store reads it: any stretch, several at
// once, and stretches whose sending failed again. What follows on one another is one
// run; at the end the runs' sums are joined, so that the file is read once.
type summed struct {
	file  io.ReaderAt
	lies  *os.File // where file reads; nil: in none
	size  int64
	algo  backends.Algorithm // Combinable
	moved func(n int64)      // told of bytes read, no more than size in all

	mu      sync.Mutex // guards all below
	runs    map[int64]*run
	counted int64
}

// A run is a stretch that was read without a gap. In summed.runs it stands under
// its end; of two that end together the longer stays.
type run struct {
	start, end int64
	sum        hash.Hash
}

var (
	_ backends.Counting = (*summed)(nil)
	_ backends.InFile   = (*summed)(nil)
	_ backends.InFile   = uncountedFile{}
)

func newSummed(file io.ReaderAt, size int64, algo backends.Algorithm, moved func(int64)) *summed {
	return &summed{file: file, size: size, algo: algo, moved: moved, runs: make(map[int64]*run)}
}

// ReadAt implements io.ReaderAt.
func (s *summed) ReadAt(p []byte, off int64) (int, error) {
	n, err := uncountedFile{s}.ReadAt(p, off)
	s.Sent(off, n)
	return n, err
}

// Uncounted implements backends.Counting. What is read so is summed, too: it may be sent
// from the file then.
func (s *summed) Uncounted() io.ReaderAt { return uncountedFile{s} }

// File implements backends.InFile.
func (s *summed) File() *os.File { return s.lies }

// Sent implements backends.InFile.
func (s *summed) Sent(_ int64, n int) {
	s.mu.Lock()
	count := min(int64(n), s.size-s.counted)
	s.counted += count
	s.mu.Unlock()
	s.moved(count)
}

// uncountedFile is a summed of whose bytes nobody is told.
type uncountedFile struct{ *summed }

// ReadAt implements io.ReaderAt.
func (s uncountedFile) ReadAt(p []byte, off int64) (int, error) {
	n, err := s.file.ReadAt(p, off)
	if n > 0 {
		r := s.add(off)
		r.sum.Write(p[:n])
		r.end += int64(n)
		s.give(r)
	}
	return n, err
}

// Sent implements backends.InFile.
func (uncountedFile) Sent(int64, int) {}

// add takes the run that ends at off out, to go on with it.
func (s *summed) add(off int64) *run {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r, ok := s.runs[off]; ok {
		delete(s.runs, off)
		return r
	}
	return &run{off, off, s.algo.New()}
}

// give puts a run back.
func (s *summed) give(r *run) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if other, ok := s.runs[r.end]; !ok || r.start < other.start {
		s.runs[r.end] = r
	}
}

// finish tells moved of the rest, or with failed takes back what was told.
func (s *summed) finish(failed bool) {
	s.mu.Lock()
	n := s.size - s.counted
	if failed {
		n = -s.counted
	}
	s.counted += n
	s.mu.Unlock()
	s.moved(n)
}

// sum is the checksum of the whole file; what no run covers is read.
func (s *summed) sum() (backends.Checksum, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	longest := make(map[int64]*run)
	for _, r := range s.runs {
		if other, ok := longest[r.start]; !ok || r.end > other.end {
			longest[r.start] = r
		}
	}
	whole := s.algo.New()
	total := whole.Sum(nil)
	for at := int64(0); at < s.size; {
		r, ok := longest[at]
		if !ok {
			next := s.size
			for start := range longest {
				if start > at {
					next = min(next, start)
				}
			}
			r = &run{at, next, s.algo.New()}
			if n, err := io.Copy(r.sum, io.NewSectionReader(s.file, at, next-at)); err != nil {
				return backends.Checksum{}, err
			} else if n != next-at {
				return backends.Checksum{}, errors.New("the file became shorter while it was sent")
			}
		}
		total = s.algo.Combine(total, r.sum.Sum(nil), r.end-at)
		at = r.end
	}
	return backends.Checksum{Algorithm: s.algo, Value: hex.EncodeToString(total)}, nil
}
