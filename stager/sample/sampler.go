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

// Source hands out shards, as a window does. An error other than a window's ends the sampler. So a
// source that may come back must retry by itself.
type Source interface {
	Lease(ctx context.Context, r window.LeaseRequest) (window.Lease, error)
	Ack(id string) error
	Nack(id, reason string) error
	PutBack(id string) error
	Renew(id string) error
	Held(reader string) (ids []string, err error) // IDs of a reader's leases
}

var _ Source = (*window.Window)(nil)

// Config configures a Sampler.
type Config struct {
	Input  string // name of the source's input; also that of the new input
	Source Source
	Plan   string // identifies the source's plan: a different plan makes the saved state useless
	Reader string // owner of the leases
	Epoch  int    // current epoch of the source; the sampler has the same epochs
	Epochs int    // 0: unlimited

	Dir     string
	Size    int64 // limit in bytes for Dir with all that is in it
	Samples int   // samples per file; the last file of an epoch has fewer
	Open    int   // number of shards mixed at a time
	Seed    int64

	Log     *slog.Logger
	Metrics *window.Metrics // nil: not exported

	jamAfter time.Duration // 0: the constant jamAfter
}

const (
	renewEvery = 2 * time.Second // must be well below a plan's leaseTimeout
	leaseWait  = 2 * time.Second
	jamAfter   = 2 * time.Second // time without room, although everything is acknowledged
)

// Sampler mixes the samples of shards into files.
type Sampler struct {
	cfg      Config
	log      *slog.Logger
	win      *window.Window
	cause    atomic.Pointer[window.Cause] // reason for waiting
	news     chan struct{}
	reported settlements
	format   *format

	// State of the only running call of more.
	open   []*shard
	rest   []*shard // leased before the restart, and not opened yet
	random *mathrand.ChaCha8
	begun  *file
	over   bool // the source has no more shards in this epoch
	early  bool // except those that other readers or this one hold
	asked  bool // likewise, and everything reported must be completed first
	late   bool // no leases are left: wait for the source's own end
	jam    bool // finish the file with the open shards only
	warned bool

	stateRoom atomic.Int64 // reserved for the state

	settling sync.Mutex // held while acknowledgements are passed on

	mu       sync.Mutex // guards all below, and the shards' fields
	nonce    string
	epoch    int
	from     int // all earlier positions of the epoch are completed
	files    []*file
	advanced map[int]bool
	byItem   map[int]*file
	items    int
	held     []*shard // in the order of arrival
}

// New resumes from the state that an earlier sampler left in the directory, or starts over.
func New(cfg Config) (*Sampler, error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	switch {
	case cfg.Samples < 1:
		return nil, errors.New("samples must be at least 1")
	case cfg.Open < 1:
		return nil, errors.New("open must be at least 1")
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
		Input: cfg.Input, Dir: cfg.Dir, Size: cfg.Size, CountOwn: true, State: s.stateRoom.Load, Epochs: cfg.Epochs, First: cfg.Epoch,
		Items: window.List(items), Order: order, More: s.more, Waits: func() window.Cause { return *s.cause.Load() }, Finished: s.advance,
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
	if s.win.Epoch() > s.epoch && s.epoch >= 0 {
		for i := range s.files {
			s.advance(s.epoch, s.from+i)
		}
	}
	return s, nil
}

// putBackUnheard returns leases that the previous sampler got just before it was killed, so that
// they are not in the state.
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

// order returns the order of the files that were planned before the restart.
func (s *Sampler) order(n int) func(int) window.Order {
	epoch, from := s.epoch, s.from
	return func(e int) window.Order {
		if e != epoch {
			return window.Sequence(0)
		}
		order := slices.Repeat(window.Indexes{window.Nobody}, from)
		for i := range n {
			order = append(order, int32(i))
		}
		return order
	}
}

// Window returns the window that hands out the files.
func (s *Sampler) Window() *window.Window { return s.win }

// Run fills the window until every epoch of the source is delivered and acknowledged.
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

// Close releases the directory. Leases stay valid for a successor.
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

// more plans the next file. It is window.Config.More.
func (s *Sampler) more(ctx context.Context, epoch int) (window.Item, error) {
	switch {
	case epoch != s.epoch:
		s.acknowledge()
		s.mu.Lock()
		s.epoch, s.from, s.files, s.advanced = epoch, 0, nil, map[int]bool{}
		s.mu.Unlock()
		s.over, s.early, s.asked, s.late = false, false, false, false
	case s.asked:
		// Everything planned is completed. Once the source knows this, it reports how the epoch
		// ends.
		s.acknowledge()
		s.over, s.early, s.asked, s.late = false, false, false, true
	}
	if err := s.compose(ctx, s.cfg.Samples, s.fill); err != nil {
		return window.Item{}, err
	}
	limit := s.win.ItemLimit()
	s.mu.Lock()
	defer s.mu.Unlock()
	item := s.addLocked()
	if need := item.Size + item.Beside; need > limit {
		return window.Item{}, &RoomError{Samples: s.cfg.Samples, Have: max(0, limit), Need: need, Least: s.cfg.Size - limit + need}
	}
	return item, s.saveLocked()
}

// compose picks samples until begun holds n of them, or there are no more.
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
			s.jam = false // others use the room
			continue
		}
		if len(s.open) == 0 {
			break // there is room again when the file is acknowledged
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

// addLocked turns the composed samples into a file.
func (s *Sampler) addLocked() window.Item {
	f := s.begun
	s.begun = nil
	f.size += s.format.end
	s.files = append(s.files, f)
	s.byItem[s.items] = f
	s.items++
	name := s.cfg.Input + s.format.ext
	return window.Item{
		Name: name, Size: f.size, Beside: disk.Room(f.size) - f.size + disk.Beside(name, f.size), Samples: len(f.parts), Version: f.name(),
	}
}

// RoomError reports that a file exceeds the limit.
type RoomError struct {
	Samples    int
	Have, Need int64 // for one file, in bytes on the disk
	Least      int64 // the limit from which one file fits
}

func (e *RoomError) Error() string {
	return fmt.Sprintf("a file of %d samples takes %d bytes, and there is room for %d: set --size to at least %d, or reduce --samples", e.Samples, e.Need, e.Have, e.Least)
}

// Fetch writes a file: Sampler is a [window.Fetcher].
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

// anew resets the state for a sampler that cannot resume.
func (s *Sampler) anew() {
	s.nonce, s.epoch, s.from, s.open, s.rest, s.held, s.files, s.items = rand.Text(), -1, 0, nil, nil, nil, nil, 0
	s.byItem, s.begun = map[int]*file{}, nil
}
