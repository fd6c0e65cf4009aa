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

// summed computes the checksum of a file while a store reads it. The store may read any ranges,
// several at once, and read ranges again whose transfer failed. Consecutive reads form one run.
// At the end the checksums of the runs are combined, so the file is read only once.
type summed struct {
	file  io.ReaderAt
	lies  *os.File // the file behind file; nil: none
	size  int64
	algo  backends.Algorithm // must be Combinable
	moved func(n int64)      // receives byte counts, at most size in total

	mu      sync.Mutex // guards the fields below
	runs    map[int64]*run
	counted int64
}

// run is a range that was read without a gap. summed.runs holds it by its end. Of two runs with
// the same end, the longer one is kept.
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

// Uncounted implements backends.Counting. Its reads are included in the checksum, because the
// bytes may then be sent from the file.
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

// uncountedFile is a summed that does not report bytes.
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

// add removes and returns the run that ends at off, to extend it.
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

// finish reports the remaining bytes to moved. With failed it subtracts what was reported.
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

// sum returns the checksum of the whole file. It reads ranges that no run covers.
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
				return backends.Checksum{}, errors.New("the file became shorter while it was uploaded")
			}
		}
		total = s.algo.Combine(total, r.sum.Sum(nil), r.end-at)
		at = r.end
	}
	return backends.Checksum{Algorithm: s.algo, Value: hex.EncodeToString(total)}, nil
}
