package sample

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"sync"

	"github.com/stager-dev/stager/window"
	"github.com/stager-dev/stager/window/disk"
)

// stateName is the state file in the sampler's directory, and mostState its maximum size.
const (
	stateName = "sample.json"
	mostState = 64 << 20
)

// state is what the next process needs to plan the same files again. Without it samples are
// repeated, but none is lost.
type state struct {
	Plan   string   `json:"plan"`
	Nonce  string   `json:"nonce"` // makes the names of files unique to this start
	Epoch  int      `json:"epoch"`
	From   int      `json:"from"`   // the first file that is still needed
	Open   []mark   `json:"open"`   // open shards at its beginning
	Files  []again  `json:"files"`  // the files from there on
	Shards []*shard `json:"shards"` // in the order of arrival
}

// again is a file to be reproduced.
type again struct {
	Samples int    `json:"samples"`
	Name    string `json:"name"`
}

// plan identifies everything that the files depend on.
func (s *Sampler) plan() string {
	return fmt.Sprintf("samples of %s %s, seed %d, %d of %d", s.cfg.Input, s.cfg.Plan, s.cfg.Seed, s.cfg.Samples, s.cfg.Open)
}

// saveLocked writes the state without a sync: the directory is on a RAM disk, which is lost with
// the machine anyway.
func (s *Sampler) saveLocked() error {
	st := state{Plan: s.plan(), Nonce: s.nonce, Epoch: s.epoch, From: s.from, Shards: s.held, Open: marks(s.open)}
	if s.begun != nil {
		st.Open = s.begun.before
	}
	for i, f := range s.files {
		if i == 0 {
			st.Open = f.before
		}
		st.Files = append(st.Files, again{len(f.parts), f.name()})
	}
	text, err := json.Marshal(st)
	if err != nil {
		return err
	}
	s.reserve(int64(len(text)))
	root, err := disk.OpenRoot(s.cfg.Dir)
	if err != nil {
		return err
	}
	defer root.Close() // opened for reading its entries
	return disk.ReplaceSmall(root, stateName, text, 0o644, false)
}

// reserve reserves room for a state and for its replacement, twice as much as they take now: the
// window has made the rest free when the state has grown so far.
func (s *Sampler) reserve(size int64) {
	s.stateRoom.Store(max(s.stateRoom.Load(), 4*disk.Room(size)))
}

// restore reads the state of an earlier sampler, and returns the items of the files that it had
// planned.
func (s *Sampler) restore() ([]window.Item, error) {
	root, err := disk.MakeRoot(s.cfg.Dir)
	if err != nil {
		return nil, err
	}
	defer root.Close() // opened for reading its entries
	s.anew()
	text, err := disk.ReadSmall(root, stateName, mostState)
	s.reserve(int64(len(text)))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if odd := new(disk.NotRegularError); errors.As(err, &odd) {
		s.log.Warn("state of the previous sampler is not a regular file, starting over", "error", err)
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var st state
	if err := json.Unmarshal(text, &st); err != nil {
		s.log.Warn("cannot read the state of the previous sampler, starting over", "error", err)
		return nil, nil
	}
	items, why := s.replay(st)
	if why == nil {
		s.log.Info("resuming from the previous sampler's state", "epoch", s.epoch, "file", s.from, "planned", len(items), "shards", len(s.held))
		return items, nil
	}
	s.log.Warn("state of the previous sampler is unusable, sampling its shards from the start", "error", why)
	err = s.close()
	for _, h := range st.Shards {
		if perr := s.cfg.Source.PutBack(h.Lease); perr != nil && !errors.Is(perr, window.ErrNoLease) {
			err = errors.Join(err, perr)
		}
	}
	s.anew()
	return nil, err
}

// replay plans the same files again. The error says why that is impossible.
func (s *Sampler) replay(st state) (items []window.Item, err error) {
	if st.Plan != s.plan() {
		return nil, fmt.Errorf("it belongs to %s, not to %s", st.Plan, s.plan())
	}
	s.nonce, s.epoch, s.from = st.Nonce, st.Epoch, st.From
	for _, h := range st.Shards {
		if h.Done {
			if err := s.cfg.Source.Ack(h.Lease); err != nil && !errors.Is(err, window.ErrNoLease) {
				return nil, err
			}
			continue
		}
		if err := s.cfg.Source.Renew(h.Lease); err != nil {
			return nil, fmt.Errorf("%s is no longer leased: %w", h.Name, err)
		}
		s.held = append(s.held, h)
	}
	s.rest = slices.Clone(s.held)
	for _, m := range st.Open {
		i := slices.IndexFunc(s.rest, func(h *shard) bool { return h.Pos == m.Pos })
		if i < 0 {
			return nil, fmt.Errorf("position %d is not leased", m.Pos)
		}
		h := s.rest[i]
		if err := s.look(h); err != nil {
			return nil, err
		}
		if m.Picked > len(h.samples) {
			return nil, fmt.Errorf("%s has %d samples and had %d", h.Name, len(h.samples), m.Picked)
		}
		h.picked, h.last = m.Picked, s.from-1
		s.rest = slices.Delete(s.rest, i, i+1)
		s.add(h)
	}
	for _, f := range st.Files {
		if err := s.compose(context.Background(), f.Samples, s.refill); err != nil {
			return nil, err
		}
		item := s.addLocked()
		if item.Samples != f.Samples || item.Version != f.Name {
			return nil, fmt.Errorf("file %d differs", s.from+len(s.files)-1)
		}
		items = append(items, item)
	}
	return items, nil
}

// refill is fill for replay: shards that were not leased then were not available.
func (s *Sampler) refill(context.Context) error {
	for len(s.open) < s.cfg.Open && len(s.rest) > 0 {
		next := s.rest[0]
		s.rest = s.rest[1:]
		if err := s.look(next); err != nil {
			return err
		}
		s.add(next)
	}
	return nil
}

// settlements are completed positions that the window has reported.
type settlements struct {
	mu   sync.Mutex
	news [][2]int
}

// advance is window.Config.Settled.
func (s *Sampler) advance(epoch, pos int) {
	s.reported.mu.Lock()
	s.reported.news = append(s.reported.news, [2]int{epoch, pos})
	s.reported.mu.Unlock()
	select {
	case s.news <- struct{}{}:
	default:
	}
}

// handOn acknowledges shards when their files are acknowledged.
func (s *Sampler) handOn(ctx context.Context) {
	for {
		s.acknowledge()
		select {
		case <-ctx.Done():
			return
		case <-s.news:
		}
	}
}

// acknowledge processes the completed positions, and acknowledges the shards that are no longer
// needed. It saves the state first, so that none of these shards is missing after a kill in
// between.
func (s *Sampler) acknowledge() {
	s.settling.Lock()
	defer s.settling.Unlock()
	s.reported.mu.Lock()
	news := s.reported.news
	s.reported.news = nil
	s.reported.mu.Unlock()

	s.mu.Lock()
	for _, n := range news {
		if n[0] == s.epoch {
			s.advanced[n[1]] = true
		}
	}
	for len(s.files) > 0 && s.advanced[s.from] {
		delete(s.advanced, s.from)
		s.forgetLocked(s.files[0])
		s.files = s.files[1:]
		s.from++
	}
	var done []*shard
	for _, h := range s.held {
		if h.file != nil && h.picked == len(h.samples) && h.last < s.from {
			h.Done = true
			done = append(done, h)
		}
	}
	if len(news)+len(done) > 0 {
		if err := s.saveLocked(); err != nil {
			s.log.Warn("cannot write the state, samples may repeat after a kill", "error", err)
		}
	}
	s.mu.Unlock()

	for _, h := range done {
		if err := h.close(); err != nil {
			s.log.Warn("cannot close a shard", "error", err)
		}
		if err := s.cfg.Source.Ack(h.Lease); err != nil {
			s.log.Warn("cannot acknowledge a shard, it will be redelivered", "shard", h.Name, "error", err)
		}
	}
	s.mu.Lock()
	s.held = slices.DeleteFunc(s.held, func(h *shard) bool { return slices.Contains(done, h) })
	s.mu.Unlock()
}

// forgetLocked removes a completed file.
func (s *Sampler) forgetLocked(f *file) {
	for item, other := range s.byItem {
		if other == f {
			delete(s.byItem, item)
		}
	}
}
