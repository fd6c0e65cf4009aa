package window

import "slices"

// reusePlan is where the current epoch and the next one need their items, so that acknowledged files
// can be retained for the next epoch. It is empty with ReuseNone. An acknowledged file is undecided
// while the next epoch's order is being computed. The window's mutex guards it.
type reusePlan struct {
	mode      Reuse
	demand    map[int]demand // for the same epochs as the orders
	undecided []*entry
}

// demand is the positions of this node's items in an epoch.
type demand struct {
	at   []int32 // by item: its first position, or nowhere
	need int64   // sum of the rooms of its items
	fits bool    // all of them fit into Config.Size
}

const nowhere = -1

// newDemand returns the demand of an order of items whose rooms are known, in a window that has size
// bytes for items.
func newDemand(order Order, rooms []int64, size int64) demand {
	d := demand{at: slices.Repeat([]int32{nowhere}, len(rooms))}
	for pos, item := range positions(order) {
		if d.at[item] == nowhere {
			d.at[item] = int32(pos) // there are fewer items than that
			d.need += rooms[item]
		}
	}
	d.fits = d.need <= size
	return d
}

// store stores an epoch's demand, and returns the undecided entries, to decide about them again.
func (p *reusePlan) store(epoch int, d demand) (undecided []*entry) {
	p.demand[epoch] = d
	undecided, p.undecided = p.undecided, nil
	return undecided
}

// forget forgets an epoch that has ended.
func (p *reusePlan) forget(epoch int) { delete(p.demand, epoch) }

// decided reports whether it is known where an epoch needs its items.
func (p *reusePlan) decided(epoch int) bool { _, known := p.demand[epoch]; return known }

// wanted returns the position of an epoch for which a file of an item is to be retained.
func (p *reusePlan) wanted(epoch, item int) (seq, bool) {
	d, known := p.demand[epoch]
	if !known || item == orphan || d.at[item] == nowhere || !p.keeps(d) {
		return seq{}, false
	}
	return seq{epoch, int(d.at[item])}, true
}

// awaited returns the position of the current epoch whose file is to be retained for a position of
// the next one, which therefore need not be fetched while the former is unfinished.
func (p *reusePlan) awaited(current int, a seq, item int) (seq, bool) {
	want, wanted := p.wanted(a.epoch, item)
	now, known := p.demand[current]
	if !wanted || want != a || a.epoch == current || !known || now.at[item] == nowhere {
		return seq{}, false
	}
	return seq{current, int(now.at[item])}, true
}

func (p *reusePlan) keeps(d demand) bool { return p.mode == ReusePin || d.fits }
