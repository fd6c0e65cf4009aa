package window

import (
	"fmt"
	"slices"
	"strings"

	"github.com/dustin/go-humanize/english"
)

// A lease records which shards a reader holds, not how far it has read them. Only the trainer knows
// that, often just as the number of samples used since the job began. The number identifies the
// exact sample if there is a single order of samples: the shards of this node's part, delivered to
// one reader. Otherwise leased shards are redelivered from their start: samples repeat, and
// none is lost.

// Used is a position whose first Samples samples are used.
type Used struct {
	Epoch   int `json:"epoch"`
	Pos     int `json:"pos"`
	Samples int `json:"samples"`
}

func (u Used) seq() seq { return seq{u.Epoch, u.Pos} }

// course records how the shards of an epoch are delivered, as far as this process knows.
type course struct {
	epoch  int
	reader string
	mixed  bool // by several readers, or out of order
	recut  bool // the number of nodes has changed since the first epoch
}

// take records the nth delivery of a shard to a reader.
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

// samples returns how many samples of the item at a position are used, of the n that it has; 0 if
// unknown.
func (w *Window) samples(a seq, n int) int {
	if w.cfg.Trim != nil {
		if pos, only, some := w.cfg.Trim(a.epoch); some && pos == a.pos {
			return only
		}
	}
	return n
}

// Reached returns the cursor for the moment when the trainer had used seen samples of this part
// since the job began. Shards after that point are unfinished again, even if a reader that ran
// ahead has acknowledged them. Shards before it that were not acknowledged are redelivered and
// are listed in Used: only the trainer may skip their samples, because only it knows whether it
// uses them in order. If the count does not identify a point, Reached returns c and sets only
// Again, to the reason.
func (w *Window) Reached(c Cursor, seen int64) Cursor {
	reached, why := w.reached(c, seen)
	if why != "" {
		c.Again = why
		return c
	}
	return reached
}

// samplesAre returns "1 sample is" or "2 samples are".
func samplesAre(n int64) string {
	return english.Plural(int(n), "sample", "") + " " + english.PluralWord(int(n), "is", "are")
}

func (w *Window) reached(c Cursor, seen int64) (_ Cursor, why string) {
	cfg := w.config()
	switch {
	case !cfg.continues(strings.TrimSpace(c.Manifest + " " + c.Part)):
		return c, "the cursor belongs to another input"
	case !c.InOrder:
		return c, "the shards of this epoch were not read by one reader, once each and in order"
	case cfg.Extent.samples == nil:
		return c, "the number of samples in a shard is unknown: give the input an index"
	case c.Recut:
		return c, "the number of nodes has changed since the first epoch, so the samples this node has used are not a prefix of its part"
	}
	rest := seen
	for epoch := range c.Epoch {
		for pos, item := range positions(w.own(cfg.Order(epoch))) {
			rest -= int64(w.samples(seq{epoch, pos}, int(cfg.Extent.samples[item])))
		}
	}
	if rest < 0 {
		return c, fmt.Sprintf("%s %d fewer than the epochs before %d contain: count every sample since the start of the job", samplesAre(seen), -rest, c.Epoch)
	}
	var order Order = Sequence(0)
	if !w.progress.over(c.Epoch) {
		order = w.own(cfg.Order(c.Epoch))
	}
	var used []Used
	end, gap := order.Len(), false // first unfinished position, and whether c has a gap before pos
	for pos, item := range positions(order) {
		a := seq{c.Epoch, pos}
		n, settled := int64(w.samples(a, int(cfg.Extent.samples[item]))), c.has(a)
		if settled && gap {
			return c, "shards were acknowledged out of order"
		}
		gap = gap || !settled
		if settled && rest >= n {
			rest -= n
			continue
		}
		if _, leased := slices.BinarySearch(c.Leased, pos); rest > 0 && !settled && !leased {
			return c, fmt.Sprintf("%s %d more than were delivered to readers", samplesAre(seen), rest)
		}
		end = min(end, pos)
		if n = min(n, rest); n > 0 {
			used, rest = append(used, Used{c.Epoch, pos, int(n)}), rest-n
		}
	}
	if rest > 0 {
		return c, fmt.Sprintf("%s %d more than were delivered to readers", samplesAre(seen), rest)
	}
	c.Finished = map[int][]Span{}
	if before := (spans{{0, end - 1}}).of(order); len(before) > 0 {
		c.Finished[c.Epoch] = before
	}
	c.Used = used
	return c, ""
}
