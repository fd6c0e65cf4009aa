package window

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"slices"
	"time"

	"github.com/dustin/go-humanize/english"

	"github.com/stager-dev/stager/window/disk"
)

// Cursor is the progress in a plan. A window on any machine, with any number of nodes, can resume
// from it.
//
// Positions are those of an epoch's order for all nodes. A cursor covers only its part of them,
// which is that of the node that wrote it.
type Cursor struct {
	Manifest string `json:"manifest"` // identifies the items and their order
	Part     string `json:"part"`     // such as "0/4"
	Epoch    int    `json:"epoch"`    // all epochs before are finished
	// Finished lists the finished positions of the part, by epoch, from Epoch on.
	Finished map[int][]Span `json:"settled,omitempty"`
	// Leased lists the positions of Epoch that readers held. A window that resumes here delivers
	// them again.
	Leased []int `json:"leased,omitempty"`
	// InOrder means that one reader received the shards of Epoch, in order. Recut means that the
	// number of nodes has changed since the first epoch. See Reached.
	InOrder bool `json:"inOrder,omitempty"`
	Recut   bool `json:"recut,omitempty"`
	// Used lists unfinished positions of which the trainer has used some samples. Their leases
	// report how many samples to skip.
	Used []Used `json:"used,omitempty"`
	// Again is the reason why the trainer's count of samples could not be used. Shards that were
	// leased are then redelivered from their start.
	Again string `json:"again,omitempty"`
}

// Span is the first and the last of a range of positions.
type Span [2]int

// CursorError reports why a window cannot resume from a cursor.
type CursorError struct{ Reason string }

func (e *CursorError) Error() string { return e.Reason }

// ErrRewound is returned by Lease and Run after Rewind or Reopen: close the window and open it again.
var ErrRewound = errors.New("window continues at another cursor")

// has reports whether a position of the cursor's part is finished.
func (c *Cursor) has(a seq) bool {
	if a.epoch < c.Epoch {
		return true
	}
	return spans(c.Finished[a.epoch]).has(a.pos)
}

// check returns a *CursorError for a cursor that no window writes.
func (c *Cursor) check() error {
	for epoch, spans := range c.Finished {
		last := -1
		for _, s := range spans {
			if s[0] <= last || s[1] < s[0] {
				return &CursorError{fmt.Sprintf("epoch %d of the cursor has the positions %v, which are not in order", epoch, s)}
			}
			last = s[1]
		}
		if epoch < c.Epoch {
			return &CursorError{fmt.Sprintf("the cursor is in epoch %d and has positions of epoch %d", c.Epoch, epoch)}
		}
	}
	for _, u := range c.Used {
		if u.Pos < 0 || u.Samples < 0 || c.has(u.seq()) {
			return &CursorError{fmt.Sprintf("the cursor has %s at position %d of epoch %d, which is finished or has no item", english.Plural(u.Samples, "used sample", ""), u.Pos, u.Epoch)}
		}
	}
	if c.Epoch < 0 {
		return &CursorError{fmt.Sprintf("the cursor is in epoch %d", c.Epoch)}
	}
	return nil
}

// within reports whether a cursor has only the first n positions of the first epoch.
func (c *Cursor) within(n int) bool {
	for epoch, spans := range c.Finished {
		if epoch > 0 || len(spans) > 0 && spans[len(spans)-1][1] >= n {
			return false
		}
	}
	return c.Epoch == 0 && !slices.ContainsFunc(c.Used, func(u Used) bool { return u.Epoch > 0 || u.Pos >= n })
}

// spansOf returns the ranges of an order whose positions of this node are all settled, each from one to one.
func spansOf(order Order, settled func(pos int) bool) (all []Span) {
	open := false
	for pos := range positions(order) {
		switch {
		case !settled(pos):
			open = false
		case open:
			all[len(all)-1][1] = pos
		default:
			open, all = true, append(all, Span{pos, pos})
		}
	}
	return all
}

// Cursor returns the current progress.
func (w *Window) Cursor() Cursor {
	w.mu.Lock()
	defer w.mu.Unlock()
	c := Cursor{Manifest: w.cfg.Manifest, Part: w.cfg.Part, Epoch: w.progress.low.epoch, Finished: map[int][]Span{}}
	skipped := map[int][]int{} // a resumed window tries skipped positions again
	for _, s := range w.deliveries.skipped {
		skipped[s.epoch] = append(skipped[s.epoch], s.pos)
	}
	for epoch := range w.progress.orders {
		slices.Sort(skipped[epoch])
		if finished := w.progress.finishedOf(epoch, skipped[epoch]); len(finished) > 0 {
			c.Finished[epoch] = finished
		}
	}
	for _, e := range w.entries.active {
		if e.lease != nil {
			c.Leased = append(c.Leased, e.pos)
		}
	}
	slices.Sort(c.Leased)
	c.Recut, c.InOrder = w.deliveries.course.recut, w.deliveries.course.inOrder(w.progress.low.epoch) && !w.cfg.AnyOrder && !w.shares.broadcast() && w.cfg.More == nil
	for a, h := range w.deliveries.history {
		if h.used > 0 && !w.progress.finished(a) {
			c.Used = append(c.Used, Used{a.epoch, a.pos, h.used})
		}
	}
	slices.SortFunc(c.Used, func(a, b Used) int { return cmp.Or(a.Epoch-b.Epoch, a.Pos-b.Pos) })
	return c
}

// Rewind ends this window, so that the next window opened on the same directory resumes at the
// cursors. Every lease ends. Positions that the cursors list as finished are not redelivered;
// all others are. Files that are present and still needed are not fetched again. whose returns the
// index of the cursor that covers a position.
//
// Rewind returns a *CursorError, and changes nothing, if a cursor belongs to another manifest, which is
// not a beginning of the window's own.
// Afterwards Lease and Run return ErrRewound, and Rewound is closed.
func (w *Window) Rewind(cursors []Cursor, whose func(pos int) int) error {
	c, err := w.join(cursors, whose)
	if err != nil {
		return err
	}
	text, err := json.Marshal(c)
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.life.closed || w.life.failed != nil {
		return ErrClosed
	}
	if err := disk.ReplaceSmall(w.stage.Root(), cursorName, text, 0o644, w.durable()); err != nil {
		return err
	}
	w.log.Info("window continues at another cursor", "epoch", c.Epoch, "was", w.progress.low.epoch)
	w.rewindLocked()
	return nil
}

// Rewound returns a channel that is closed once Rewind or Reopen has ended the window.
func (w *Window) Rewound() <-chan struct{} { return w.rewound }

// join merges the cursors of all nodes that had a share of this node's part.
func (w *Window) join(cursors []Cursor, whose func(pos int) int) (Cursor, error) {
	cfg := w.config()
	for i := range cursors {
		c := &cursors[i]
		first := 0
		if c.Manifest != cfg.Manifest {
			first = cfg.begins(c.Manifest)
		}
		if c.Manifest != cfg.Manifest && first == 0 {
			return Cursor{}, &CursorError{fmt.Sprintf("the cursor belongs to another manifest: it names %.12s, and input %s has %.12s. "+
				"Its source, include, exclude, order or seed has changed; restore the old value, or start without the cursor",
				c.Manifest, cfg.Input, cfg.Manifest)}
		}
		if err := c.check(); err != nil {
			return Cursor{}, err
		}
		if first > 0 && !c.within(first) {
			return Cursor{}, &CursorError{fmt.Sprintf("the cursor belongs to the first %d shards of input %s, and has others", first, cfg.Input)}
		}
	}
	own := Cursor{Manifest: cfg.Manifest, Part: cfg.Part, Epoch: -1, Finished: map[int][]Span{}}
	last := 0
	used := map[int]bool{}
	for pos := range positions(w.ownPositions(cfg.Order(0))) {
		used[whose(pos)] = true
	}
	for i, c := range cursors {
		if !used[i] {
			continue
		}
		if own.Epoch < 0 || c.Epoch < own.Epoch {
			own.Epoch = c.Epoch
		}
		own.Recut = own.Recut || c.Recut || c.Part != own.Part
		last = max(last, c.Epoch)
		for epoch := range c.Finished {
			last = max(last, epoch)
		}
	}
	const furthest = 64 // epochs between two nodes
	if own.Epoch < 0 || last-own.Epoch > furthest {
		return Cursor{}, &CursorError{fmt.Sprintf("the cursors are %d epochs apart, so they were not taken at the same time", last-own.Epoch)}
	}
	for epoch := own.Epoch; epoch <= last && !w.progress.over(epoch); epoch++ {
		order := w.ownPositions(cfg.Order(epoch))
		if finished := spansOf(order, func(pos int) bool { return cursors[whose(pos)].has(seq{epoch, pos}) }); len(finished) > 0 {
			own.Finished[epoch] = finished
		}
		for i, c := range cursors {
			for _, u := range c.Used {
				if u.Epoch == epoch && u.Pos < order.Len() && order.At(u.Pos) != others && whose(u.Pos) == i {
					own.Used = append(own.Used, u)
				}
			}
		}
	}
	return own, nil
}

const (
	cursorName = disk.Private + "/cursor"
	// cursorLimit is the maximum size of a cursor in bytes. A cursor has one span for each gap
	// between finished positions.
	cursorLimit = 256 << 20
)

// goBack applies the cursor that Rewind stored. It is idempotent: if the process is killed
// meanwhile, the next one applies it again.
func (r *recovery) goBack() error {
	text, err := disk.ReadSmall(r.stage.Root(), cursorName, cursorLimit)
	if err != nil && r.ignored(cursorName, err) {
		return nil
	}
	if err != nil {
		return err
	}
	var c Cursor
	switch err := json.Unmarshal(text, &c); {
	case err != nil:
		r.dropCursor("it is not a cursor: " + err.Error())
	case c.Manifest != r.cfg.Manifest:
		r.dropCursor(fmt.Sprintf("it belongs to manifest %.12s, and the input has %.12s", c.Manifest, r.cfg.Manifest))
	case c.Part != r.cfg.Part:
		r.dropCursor(fmt.Sprintf("it belongs to part %s, and this node has %s", c.Part, r.cfg.Part))
	default:
		if err := r.forgetAfter(c); err != nil {
			return err
		}
	}
	return r.stage.Root().RemoveAll(cursorName)
}

// dropCursor reports that the stored cursor has no effect.
func (r *recovery) dropCursor(why string) {
	r.log.Warn("dropping the stored cursor, the input continues at its own position", "file", cursorName, "why", why)
}

// forgetAfter undoes what happened after a cursor.
func (r *recovery) forgetAfter(c Cursor) error {
	held, err := r.stage.held.Names()
	if err != nil {
		return err
	}
	for _, name := range held {
		switch epoch, end := parseEnd(name); {
		case !end:
			err = r.forgetHeld(name, c)
		case epoch >= c.Epoch:
			err = r.stage.unmarkEnd(epoch)
		}
		if err != nil {
			return err
		}
	}
	journal, old, err := r.openJournal()
	if err != nil {
		return err
	}
	m := newMemory()
	m.low, m.sums, m.recut = seq{c.Epoch, 0}, old.sums, c.Recut
	for _, u := range c.Used {
		m.history[u.seq()] = history{used: u.Samples}
	}
	for epoch, finished := range c.Finished {
		for _, s := range finished {
			m.finish(epoch, s[0], s[1])
		}
	}
	return errors.Join(journal.rewrite(r.stage.Root(), r.cfg.planName(), m), journal.close())
}

// forgetHeld drops a published file that happened after a cursor.
func (r *recovery) forgetHeld(name string, c Cursor) error {
	ino, err := r.stage.origin(r.stage.held, name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var visible bool
	if err == nil {
		visible, err = r.stage.ready.Is(name, ino)
	}
	if err != nil {
		return err
	}
	if at, _, _ := parseName(name); visible && at.epoch == c.Epoch {
		return nil // needed again, or removed in a moment
	}
	// It is of another epoch, or acknowledged, or held by an earlier reader, which keeps it until it
	// releases it.
	where := r.found[ino]
	if where.reader != "" {
		where = place{}
	}
	_, err = r.stage.remove(name, ino, where, false)
	return err
}

// Position is a line of the plan. It does not depend on what happens in a run.
type Position struct {
	Epoch int    `json:"epoch"`
	Pos   int    `json:"pos"` // in the order for all nodes
	Name  string `json:"name"`
	Bytes int64  `json:"bytes"`
}

// Delivery is a line of an epoch's report: how a position of the plan was finished. Its Position is
// the same in every run, for any number of nodes.
type Delivery struct {
	Position
	Part    string    `json:"part,omitempty"` // the node's
	Reader  string    `json:"reader,omitempty"`
	Attempt int       `json:"attempt"` // number of deliveries, including this one
	Leased  time.Time `json:"leased,omitzero"`
	Acked   time.Time `json:"acked"`
	Digest  string    `json:"digest,omitempty"`
	Skipped string    `json:"skipped,omitempty"` // the reason, if skipped
}

// Positions returns an epoch's order for all nodes, as far as it is known. It may take long. An error is
// the last value.
func (w *Window) Positions(epoch int) iter.Seq2[Position, error] {
	return func(yield func(Position, error) bool) {
		cfg := w.config()
		order, read := cfg.Order, cfg.Items.Item
		if w.cfg.More != nil {
			order, read = w.grown, func(i int) (Item, error) {
				w.mu.Lock()
				defer w.mu.Unlock()
				return w.items.get(i)
			}
		}
		for pos, index := range positions(order(epoch)) {
			item, err := read(index)
			if !yield(position(seq{epoch, pos}, item), err) || err != nil {
				return
			}
		}
	}
}

// grown returns the order of an epoch of a growing plan as far as it is known now.
func (w *Window) grown(epoch int) Order {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.progress.order(epoch)
}

func position(a seq, item Item) Position { return Position{a.epoch, a.pos, item.Name, item.Size} }
