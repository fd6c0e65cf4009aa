package group

import "fmt"

// away kills the stager of a node, lets its trainer write, and starts stager again: one move,
// because a process that is down does nothing that others could see. After the start, stager
// reports the snapshots that it has before it scans, or the scan replaces them first.
func (w *world) away(moves []move, i int, a *actor) []move {
	if w.left.away == 0 || w.sc.victim != 0 && w.sc.victim != i+1 || !w.writes(a) {
		return moves
	}
	step, writing := w.now(a)
	if a.counts.At(a.m.view.now.Digest, a.round, step) != writing-1 {
		return moves // it would miss a writing: see TestWritingsThatNodesCannotTellApart
	}
	for _, order := range []string{"reports its snapshots and scans", "scans before it reports its snapshots"} {
		c, b := w.clone(i)
		c.left.away--
		if order != "reports its snapshots and scans" {
			b.held = nil
			for _, h := range a.held {
				if h.Step != step {
					b.held = append(b.held, h)
				}
			}
		}
		c.restart(b)
		c.hold(b, true)
		c.complete(b, SignOwn)
		b.pos, b.half, b.guessed = b.pos+1, false, false
		moves = append(moves, move{fmt.Sprintf("node %s: stager is killed, the trainer writes step %d, stager is started again and %s", a.name, step, order), c, true})
	}
	return moves
}
