package sample

import (
	"bufio"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	mathrand "math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stager-dev/stager/window"
	"github.com/stager-dev/stager/window/disk"
)

// Source hands out shards as a window does. An error that is none of the window's ends
// the sampler: a source that may come back waits for it itself.
type Source interface {
	Lease(ctx context.Context, r window.LeaseRequest) (window.Lease, error)
	Ack(id string) error
	Nack(id, reason string) error
	PutBack(id string) error
	Renew(id string) error
	Held(reader string) (ids []string, err error) // the leases of a reader
}

var _ Source = (*window.Window)(nil)

// Config is what New needs to know.
type Config struct {
	Input  string // the source's name, and that under which files are handed out
	Source Source
	Plan   string // names the source's plan: with another nothing that was kept is of use
	Reader string // whose the leases are
	Epoch  int    // the source's current one; its epochs are the sampler's
	Epochs int    // 0: without end

	Dir     string
	Size    int64 // the bound, in bytes
	Samples int   // in each file; the last of an epoch has fewer
	Open    int   // shards that are mixed at a time
	Seed    int64

	Log     *slog.Logger
	Metrics *window.Metrics // nil: not shown

	jamAfter time.Duration // jamAfter when 0
}

const (
	renewEvery = 2 * time.Second // of a plan's leaseTimeout, which is to be some times as long
	leaseWait  = 2 * time.Second
	jamAfter   = 2 * time.Second // without room, though all is acknowledged
)

// Sampler mixes shards into files.
type Sampler struct {
	cfg    Config
	log    *slog.Logger
	win    *window.Window
	cause  atomic.Pointer[window.Cause] // what is waited for
	news   chan struct{}
	told   settlements
	format *format

	// Of the one call of more that is under way.
	open   []*shard
	rest   []*shard // held since before the restart, and not opened yet
	random *mathrand.ChaCha8
	begun  *file
	over   bool // the source has no more in this epoch
	early  bool // but what others hold, or we
	asked  bool // and all that was told is to be settled first
	late   bool // nothing is held: wait for the source's own end
	jam    bool // the rest of the file is made of what is open
	warned bool

	settling sync.Mutex // held while acknowledgements are handed on

	mu       sync.Mutex // guards all below, and the shards' fields
	nonce    string
	epoch    int
	from     int // all positions of the epoch before are settled
	files    []*file
	advanced map[int]bool
	byItem   map[int]*file
	items    int
	held     []*shard // in the order of their coming
}

// New goes on with what an earlier sampler left in the directory, or begins anew.
func New(cfg Config) (*Sampler, error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	switch {
	case cfg.Samples < 1:
		return nil, errors.New("a file holds 1 sample at least")
	case cfg.Open < 1:
		return nil, errors.New("1 shard at least must be open")
	}
	s := &Sampler{
		cfg: cfg, log: cfg.Log.With("input", cfg.Input), news: make(chan struct{}, 1),
		advanced: map[int]bool{}, byItem: map[int]*file{}, epoch: -1,
	}
	s.waitFor(window.CauseBackend)
	items, err := s.restore()
	if err == nil {
		err = s.putBackUnheard()
	}
	if err != nil {
		return nil, err
	}
	order := s.order(len(items))
	s.win, err = window.New(window.Config{
		Input: cfg.Input, Dir: cfg.Dir, Size: cfg.Size, Epochs: cfg.Epochs, First: cfg.Epoch,
		Items: items, Order: order, More: s.more, Waits: func() window.Cause { return *s.cause.Load() }, Finished: s.advance,
		Manifest: s.plan() + " " + s.nonce, Fetcher: s, Log: cfg.Log, Metrics: cfg.Metrics,
	})
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	for epoch, spans := range s.win.Cursor().Finished {
		for _, span := range spans {
			for pos := span[0]; pos <= span[1]; pos++ {
				s.advance(epoch, pos)
			}
		}
	}
	if s.win.Status().Epoch > s.epoch && s.epoch >= 0 {
		for i := range s.files {
			s.advance(s.epoch, s.from+i)
		}
	}
	return s, nil
}

// putBackUnheard gives back what the sampler before was given as it was killed, so that it
// could not note it.
func (s *Sampler) putBackUnheard() error {
	ids, err := s.cfg.Source.Held(s.cfg.Reader)
	known := s.leases()
	for _, id := range ids {
		if err == nil && !slices.Contains(known, id) {
			if err = s.cfg.Source.PutBack(id); errors.Is(err, window.ErrNoLease) {
				err = nil
			}
		}
	}
	return err
}

// order is that of the files that were planned before the restart.
func (s *Sampler) order(n int) func(int) []int {
	epoch, from := s.epoch, s.from
	return func(e int) (order []int) {
		if e != epoch {
			return nil
		}
		order = slices.Repeat([]int{window.Nobody}, from)
		for i := range n {
			order = append(order, i)
		}
		return order
	}
}

// Window hands the files out.
func (s *Sampler) Window() *window.Window { return s.win }

// Run fills the window, until every epoch of the source is delivered and acknowledged.
func (s *Sampler) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var workers sync.WaitGroup
	workers.Go(func() { s.handOn(ctx) })
	workers.Go(func() { s.renew(ctx) })
	err := s.win.Run(ctx)
	cancel()
	workers.Wait()
	s.acknowledge()
	return err
}

// Close gives the directory free. Leases stay, for who goes on here.
func (s *Sampler) Close() error { return errors.Join(s.win.Close(), s.close()) }

func (s *Sampler) close() (err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, shard := range s.held {
		err = errors.Join(err, shard.close())
	}
	return err
}

func (s *shard) close() error {
	if s.file == nil {
		return nil
	}
	file := s.file
	s.file = nil
	return file.Close()
}

func (s *Sampler) waitFor(c window.Cause) { s.cause.Store(&c) }

// more plans the next file: it is window.Config.More.
func (s *Sampler) more(ctx context.Context, epoch int) (window.Item, error) {
	switch {
	case epoch != s.epoch:
		s.acknowledge()
		s.mu.Lock()
		s.epoch, s.from, s.files, s.advanced = epoch, 0, nil, map[int]bool{}
		s.mu.Unlock()
		s.over, s.early, s.asked, s.late = false, false, false, false
	case s.asked:
		// All that was planned is settled: when the source knows, it tells how it ends.
		s.acknowledge()
		s.over, s.early, s.asked, s.late = false, false, false, true
	}
	if err := s.compose(ctx, s.cfg.Samples, s.fill); err != nil {
		return window.Item{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	item := s.addLocked()
	if item.Size > s.cfg.Size {
		return window.Item{}, &RoomError{Samples: s.cfg.Samples, Have: s.cfg.Size, Need: item.Size}
	}
	return item, s.saveLocked()
}

// compose draws samples until begun holds n of them, or there are no more.
func (s *Sampler) compose(ctx context.Context, n int, fill func(context.Context) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	pos := s.from + len(s.files)
	if s.begun == nil {
		s.jam = false
		s.begun = &file{before: marks(s.open)}
		s.random = mathrand.NewChaCha8(s.cfg.key("file", s.epoch, pos))
	}
	f := s.begun
	for len(f.parts) < n {
		s.mu.Unlock()
		err := fill(ctx)
		s.mu.Lock()
		if err != nil && !errors.Is(err, errJam) {
			return err
		}
		if s.jam = err != nil; s.jam && len(s.open)+len(f.parts) == 0 {
			s.jam = false // others have the room
			continue
		}
		if len(s.open) == 0 {
			break // when the file is acknowledged there is room again
		}
		var before uint64
		if len(f.parts) > 0 {
			before = f.parts[len(f.parts)-1].key
		}
		p, ok := pickOne(s.random, s.open, before)
		if !ok {
			break
		}
		f.parts = append(f.parts, p)
		f.size += p.end - p.off
		p.from.last = pos
		if p.from.picked == len(p.from.samples) {
			s.open = slices.DeleteFunc(s.open, func(o *shard) bool { return o == p.from })
		}
	}
	switch {
	case len(f.parts) > 0:
		return nil
	case s.early:
		s.begun, s.asked = nil, true
		return window.ErrLater
	}
	s.begun = nil
	return io.EOF
}

// addLocked has what was composed be a file.
func (s *Sampler) addLocked() window.Item {
	f := s.begun
	s.begun = nil
	f.size += s.format.end
	s.files = append(s.files, f)
	s.byItem[s.items] = f
	s.items++
	return window.Item{Name: s.cfg.Input + s.format.ext, Size: f.size, Samples: len(f.parts), Version: f.name()}
}

// RoomError says that a file does not fit into the bound.
type RoomError struct {
	Samples    int
	Have, Need int64
}

func (e *RoomError) Error() string {
	return fmt.Sprintf("a file of %d samples has %d bytes, and the bound is %d: make --size twice as much as a file at least, or --samples smaller", e.Samples, e.Need, e.Have)
}

// ExitCode is EX_CONFIG.
func (e *RoomError) ExitCode() int { return 78 }

// Fetch writes a file: the sampler is a [window.Fetcher].
func (s *Sampler) Fetch(ctx context.Context, item int, in *disk.Incoming) (string, error) {
	s.mu.Lock()
	f := s.byItem[item]
	end := s.format.end
	s.mu.Unlock()
	if len(in.Missing()) == 0 {
		return "", nil
	}
	out := bufio.NewWriterSize(io.NewOffsetWriter(in, 0), 1<<20)
	for _, p := range f.parts {
		if ctx.Err() != nil {
			return "", ctx.Err()
		}
		if n, err := io.Copy(out, io.NewSectionReader(p.from.file, p.off, p.end-p.off)); err != nil {
			return "", err
		} else if n < p.end-p.off {
			return "", fmt.Errorf("%s became shorter: %w", p.from.Path, io.ErrUnexpectedEOF)
		}
	}
	if _, err := out.Write(make([]byte, end)); err != nil {
		return "", err
	}
	return "", out.Flush()
}

var _ window.Fetcher = (*Sampler)(nil)

// anew is how a sampler begins that has nothing to go on with.
func (s *Sampler) anew() {
	s.nonce, s.epoch, s.from, s.open, s.rest, s.held, s.files, s.items = rand.Text(), -1, 0, nil, nil, nil, nil, 0
	s.byItem, s.begun = map[int]*file{}, nil
}
