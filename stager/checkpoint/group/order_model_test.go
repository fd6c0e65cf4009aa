package group

import (
	"encoding/json"
	"fmt"
)

// checkNewest checks that of two COMMITs of one view, the one that was written later has the
// higher number. Restore takes the highest.
func (w *world) checkNewest(act Action, c content) {
	for _, o := range w.store {
		there, ok := readModelCommit(o)
		if !ok || there.Group.View != act.Joined.View || o.key == act.Key {
			continue
		}
		for _, p := range there.Parts {
			var other payloadOf
			if p.Payload == nil || json.Unmarshal(p.Payload, &other) != nil {
				continue
			}
			later := c.Run > other.Run || c.Run == other.Run && w.sc.written(c) > w.sc.written(other.content)
			if later != (act.Joined.Save > there.Group.Save) {
				w.violated("COMMIT of step %d is save %d and that of step %d is save %d: the other one was written later", c.Step, act.Joined.Save, other.Step, there.Group.Save)
			}
			break
		}
	}
}

// written returns when the trainer wrote something, as an index of saves.
func (sc *scenario) written(c content) int {
	writing := 0
	for i, step := range sc.saves {
		if step == c.Step {
			if writing++; writing == c.Writing {
				return i
			}
		}
	}
	return -1
}

// restarts restarts the trainers of a job in the same pods. They have restored, so all of them
// write the first step again, in a new round.
func (w *world) restarts(moves []move) []move {
	if w.left.restart == 0 || len(w.vacant) > 0 {
		return moves
	}
	c, _ := w.clone(-1)
	c.left.restart--
	c.runs++
	for i, a := range c.actors {
		if a.dead || a.drains || a.trainer != trains {
			return moves
		}
		b := c.own(i)
		b.run, b.round, b.pos, b.half, b.whole, b.guessed = c.runs-1, b.round+1, 0, false, false, false
	}
	return append(moves, move{fmt.Sprintf("the trainers of all nodes restore and restart, round %d", c.actors[0].round), c, true})
}
