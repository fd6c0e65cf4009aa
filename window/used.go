package window

import (
	"fmt"
	"slices"
)

// A lease says which shards a reader has, and not how far it is in them. Only the trainer
// knows that, and often no more than how many samples it has used since the job began.
// That tells the very sample where there is one order of samples: that of the shards of
// this node's part, taken by one reader. Where it does not, what was leased
// comes again from its beginning, so that samples are repeated and none is lost.

// Used is a position of which some samples are used: its first.
type Used struct {
	Epoch   int `json:"epoch"`
	Pos     int `json:"pos"`
	Samples int `json:"samples"`
}

func (u Used) seq() seq { return seq{u.Epoch, u.Pos} }

// course is how the shards of an epoch are taken, as long as this process sees it.
type course struct {
	epoch  int
	reader string
	mixed  bool // by several, or not in their order
	recut  bool // the number of nodes has changed since the first epoch
}

// take notes that a reader was given a shard, the how manieth time.
func (c *course) take(l *lease, attempts int) {
	switch {
	case l.e.epoch != c.epoch || c.reader == "":
		c.mixed = l.e.epoch == c.epoch && c.mixed
		c.epoch, c.reader = l.e.epoch, l.reader.name
	case l.reader.name != c.reader:
		c.mixed = true
	}
	c.mixed = c.mixed || attempts > 1
}

func (c *course) inOrder(epoch int) bool { return c.epoch != epoch || !c.mixed }

// samples are those of the item at a position; 0 when that is not known.
func (w *Window) samples(a seq, item int) int {
	if w.cfg.Trim != nil {
		if pos, n, some := w.cfg.Trim(a.epoch); some && pos == a.pos {
			return n
		}
	}
	return w.cfg.Items[item].Samples
}

// Reached is a cursor of this window at the moment when the trainer had used so many
// samples of this part since the job began. What it had not used is not settled any more,
// though a reader that was ahead of it acknowledged it. What it has used stays to
// be delivered if that was not acknowledged, and is Used: only the trainer may
// skip it, who knows whether it uses samples in their order. Where the count does not
// tell, nothing changes, and Again says why.
func (w *Window) Reached(c Cursor, seen int64) Cursor {
	reached, why := w.reached(c, seen)
	if why != "" {
		c.Again = why
		return c
	}
	return reached
}

func (w *Window) reached(c Cursor, seen int64) (_ Cursor, why string) {
	switch {
	case c.Manifest != w.cfg.Manifest || c.Part != w.cfg.Part:
		return c, "the cursor is not this input's"
	case !c.InOrder:
		return c, "the shards of this epoch were not taken by one reader, each once and in their order"
	case !slices.ContainsFunc(w.cfg.Items, func(item Item) bool { return item.Samples > 0 }):
		return c, "it is not known how many samples are in a shard: give the input an index"
	case c.Recut:
		return c, "the number of nodes has changed since the first epoch, so what this one has used is not a beginning of its part"
	}
	rest := seen
	for epoch := range c.Epoch {
		for pos, item := range w.masked(w.cfg.Order(epoch)) {
			if item != others {
				rest -= int64(w.samples(seq{epoch, pos}, item))
			}
		}
	}
	if rest < 0 {
		return c, fmt.Sprintf("%d samples are %d fewer than those of the epochs before %d: every sample counts, since the job began", seen, -rest, c.Epoch)
	}
	var order []int
	if !w.overLocked(c.Epoch) {
		order = w.masked(w.cfg.Order(c.Epoch))
	}
	var used []Used
	end, gap := len(order), false // the first position that is not settled now, and whether one was not before
	for pos, item := range order {
		if item == others {
			continue
		}
		a := seq{c.Epoch, pos}
		n, settled := int64(w.samples(a, item)), c.has(a)
		if settled && gap {
			return c, "shards were acknowledged out of their order"
		}
		gap = gap || !settled
		if settled && rest >= n {
			rest -= n
			continue
		}
		if _, leased := slices.BinarySearch(c.Leased, pos); rest > 0 && !settled && !leased {
			return c, fmt.Sprintf("%d samples are %d more than readers were given", seen, rest)
		}
		end = min(end, pos)
		if n = min(n, rest); n > 0 {
			used, rest = append(used, Used{c.Epoch, pos, int(n)}), rest-n
		}
	}
	if rest > 0 {
		return c, fmt.Sprintf("%d samples are %d more than readers were given", seen, rest)
	}
	c.Finished = map[int][]Span{}
	if spans := w.spans(order, func(pos int) bool { return pos < end }); len(spans) > 0 {
		c.Finished[c.Epoch] = spans
	}
	c.Used = used
	return c, ""
}
