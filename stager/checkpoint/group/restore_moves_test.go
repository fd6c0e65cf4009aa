package group

import (
	"fmt"
	"slices"
)

// restoreMove is one event that can happen next.
type restoreMove struct {
	label string
	to    *restoreWorld
}

// moves returns all moves.
func (w *restoreWorld) moves() (moves []restoreMove) {
	add := func(c *restoreWorld, format string, args ...any) {
		moves = append(moves, restoreMove{fmt.Sprintf(format, args...), c})
	}
	for i, a := range w.nodes {
		switch a.state {
		case idle:
			c := w.clone()
			c.begin(i)
			add(c, "node %d: stager restore starts", i)
		case agreeing:
			moves = w.answers(moves, i)
			if w.left.killed > 0 {
				c := w.clone()
				c.left.killed--
				c.down(i)
				add(c, "node %d: stager restore is killed", i)
			}
		case waits:
			if w.left.again > 0 {
				c := w.clone()
				c.left.again--
				c.down(i)
				add(c, "node %d: the trainer ends before the others began", i)
			}
		}
	}
	moves = w.jobMoves(moves)
	for i, l := range w.limbo {
		c := w.clone()
		c.limbo = slices.Delete(c.limbo, i, i+1)
		c.write(l)
		add(c, "a delayed request arrives: %s", describe(l))
	}
	return moves
}

// begin starts stager restore on a node.
func (w *restoreWorld) begin(i int) {
	a := w.own(i)
	m, err := NewRestorer(RestoreConfig{Job: modelJob, Index: i, Count: len(w.nodes), Pod: fmt.Sprint(a.pod), Step: Nothing, Empty: true})
	if err != nil {
		panic(err)
	}
	m.off = w.sc.off
	a.state, a.m, a.pend, a.timer, a.got = agreeing, m, nil, false, -1
	w.feed(i, Event{What: Start})
}

// down ends the process at an index.
func (w *restoreWorld) down(i int) {
	a := w.own(i)
	a.state, a.m, a.pend, a.timer, a.got = idle, nil, nil, false, -1
}

func (w *restoreWorld) answers(moves []restoreMove, i int) []restoreMove {
	a := w.nodes[i]
	if a.timer {
		c := w.clone()
		b := c.own(i)
		b.timer = false
		c.feed(i, Event{What: Fired})
		moves = append(moves, restoreMove{fmt.Sprintf("node %d looks again", i), c})
	}
	if len(a.pend) == 0 {
		return moves
	}
	act := a.pend[0]
	c := w.clone()
	c.own(i).pend = nil
	e := c.exec(act)
	c.feed(i, e)
	moves = append(moves, restoreMove{fmt.Sprintf("node %d %s%s", i, describe(act), outcomeWords[e.Outcome]), c})
	if w.left.lost == 0 || act.Do != Create && act.Do != Replace {
		return moves
	}
	for _, later := range []bool{false, true} {
		c := w.clone()
		c.left.lost--
		c.own(i).pend = nil
		label := "node %d %s: the reply is lost"
		if later {
			c.limbo = append(c.limbo, act)
			label = "node %d %s: no reply, and the request is delayed"
		} else {
			c.write(act)
		}
		c.feed(i, Event{What: Answer, For: act.For, Outcome: Unknown})
		moves = append(moves, restoreMove{fmt.Sprintf(label, i, describe(act)), c})
	}
	return moves
}

// jobMoves returns the moves of trainers, uploads and the job.
func (w *restoreWorld) jobMoves(moves []restoreMove) []restoreMove {
	running := w.nodes[0].state == runs
	if running && w.left.saves > 0 {
		c := w.clone()
		c.left.saves--
		number, _ := c.lastAgreement()
		s := saved{id: c.next, seen: number, run: w.run}
		c.next++
		c.written = append(c.written, s)
		moves = append(moves, restoreMove{fmt.Sprintf("the trainers write step %d", s.id), c})
	}
	if len(w.written) > 0 {
		c := w.clone()
		s := c.written[0]
		c.written = c.written[1:]
		c.commits = append(c.commits, s)
		moves = append(moves, restoreMove{fmt.Sprintf("step %d is committed", s.id), c})
	}
	if running && w.left.end > 0 {
		c := w.clone()
		c.left.end--
		c.endAll()
		moves = append(moves, restoreMove{"all trainers end", c})
		for _, more := range []int{1, -1} {
			if w.left.resize == 0 || len(w.nodes)+more < 1 {
				continue
			}
			c := c.clone()
			c.left.resize--
			if more > 0 {
				c.add()
			} else {
				c.nodes = c.nodes[:len(c.nodes)-1]
			}
			moves = append(moves, restoreMove{fmt.Sprintf("all trainers end, and the job comes back with %d nodes", len(c.nodes)), c})
		}
		if w.left.pod > 0 {
			for i := range w.nodes {
				c := c.clone()
				c.left.pod--
				c.pods++
				c.own(i).pod = c.pods
				moves = append(moves, restoreMove{fmt.Sprintf("all trainers end, as the pod of node %d is replaced", i), c})
			}
		}
	}
	if w.left.bad > 0 {
		for i := range w.commits {
			if w.commits[i].bad {
				continue
			}
			c := w.clone()
			c.left.bad--
			c.commits[i].bad = true
			moves = append(moves, restoreMove{fmt.Sprintf("step %d is damaged", w.commits[i].id), c})
		}
	}
	return moves
}

// endAll ends the trainers of a running job. What they wrote and committed by then must not be
// lost, nor the checkpoint with which they started.
func (w *restoreWorld) endAll() {
	for i := range w.nodes {
		w.down(i)
	}
	for _, s := range w.commits {
		if s.run == w.run {
			w.floor = max(w.floor, s.id)
		}
	}
}
