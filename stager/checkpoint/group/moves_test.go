package group

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// move is one event that can happen next.
type move struct {
	label string
	to    *world
	fault bool
}

// next returns all moves. Taking the first move each time is a run without faults.
func (w *world) next() []move {
	var moves []move
	for i, a := range w.actors {
		if a.dead {
			continue
		}
		moves = w.requests(moves, i, a)
		moves = w.away(w.trainers(moves, i, a), i, a)
	}
	for i, a := range w.actors {
		if !a.dead {
			moves = w.timers(moves, i, a)
		}
	}
	for i, l := range w.limbo {
		c, _ := w.clone(-1)
		c.limbo = slices.Delete(c.limbo, i, i+1)
		c.write(l, &Event{})
		moves = append(moves, move{"a delayed request arrives: " + describe(l), c, false})
	}
	moves = w.restarts(w.sweeper(moves))
	if len(w.vacant) > 0 {
		c, _ := w.clone(-1)
		c.succeed()
		moves = append(moves, move{"new pods start, all nodes are in one view, and the trainers restore", c, false})
	}
	return w.faults(moves)
}

func describe(a Action) string {
	verb := map[Verb]string{Read: "reads", Create: "creates", Replace: "replaces", Gather: "lists", Look: "looks up the data of save", Commit: "writes", Scan: "scans for save", Upload: "uploads save", Newest: "finds the newest checkpoint", Last: "reads the last agreement in", Fetch: "restores"}[a.Do]
	if a.Key == "" && a.Save.Save > 0 {
		return fmt.Sprintf("%s %d (step %d)", verb, a.Save.Save, a.Save.Step)
	}
	return verb + " " + a.Key
}

var outcomeWords = map[Outcome]string{OK: "", Exists: ": exists", Changed: ": changed", NotExist: ": nothing there"}

func (w *world) requests(moves []move, i int, a *actor) []move {
	for k, act := range a.pend {
		c, b := w.clone(i)
		b.pend = slices.Delete(b.pend, k, k+1)
		e := c.exec(b, act)
		c.feed(b, e)
		moves = append(moves, move{fmt.Sprintf("node %s %s%s", a.name, describe(act), outcomeWords[e.Outcome]), c, false})
		if w.left.lost == 0 || act.Do != Create && act.Do != Replace && act.Do != Commit {
			continue
		}
		for _, later := range []bool{false, true} {
			c, b := w.clone(i)
			c.left.lost--
			b.pend = slices.Delete(b.pend, k, k+1)
			label := "node %s %s: the reply is lost"
			if later {
				c.limbo = append(c.limbo, act)
				label = "node %s %s: no reply, and the request is delayed"
			} else {
				c.exec(b, act)
			}
			c.feed(b, Event{What: Answer, For: act.For, Outcome: Unknown})
			moves = append(moves, move{fmt.Sprintf(label, a.name, describe(act)), c, true})
		}
	}
	return moves
}

func (w *world) timers(moves []move, i int, a *actor) []move {
	for k, t := range a.timers {
		c, b := w.clone(i)
		label := fmt.Sprintf("node %s: a timer fires", a.name)
		if t.Of == OfMember {
			switch a.m.member.phase {
			case memberBeating: // only where it changes more than a number
				if there, _ := w.get(memberKey(a.cfg.Index)); there == a.m.member.version {
					continue
				}
				label = fmt.Sprintf("node %s: heartbeat", a.name)
			case memberWatch:
				if !c.beats(a.m.member.watched.Boot) {
					continue
				}
				label = fmt.Sprintf("node %s has watched the record for the lease time", a.name)
			}
		}
		b.timers = slices.Delete(b.timers, k, k+1)
		c.feed(b, Event{What: Fired, For: t})
		moves = append(moves, move{label, c, false})
	}
	return moves
}

// beats lets the member with a boot id write its heartbeat, if it is alive. It returns false when
// the member cannot write now.
func (w *world) beats(boot string) bool {
	for i, a := range w.actors {
		if a.cfg.Boot != boot || a.dead {
			continue
		}
		if a.m.member.phase != memberBeating {
			return false
		}
		b := w.own(i)
		w.feed(b, Event{What: Fired, For: ofMember})
		for k, act := range b.pend {
			if act.For == ofMember {
				b.pend = slices.Delete(b.pend, k, k+1)
				w.feed(b, w.exec(b, act))
				break
			}
		}
	}
	return true
}

// peers reports whether all is true for each trainer of a job. Trainers wait for each other in
// every step, so none continues without the others.
func (w *world) peers(a *actor, all func(*actor) bool) bool {
	for _, b := range w.actors {
		if b.cfg.Job == a.cfg.Job && !b.drains && !b.left && (b.run != a.run || !all(b)) {
			return false
		}
	}
	return true
}

// together reports whether all members of an actor's job are in one view, so that its trainers
// have met.
func (w *world) together(a *actor) bool {
	if a.m.view.now.Digest == "" || !a.m.active() {
		return false
	}
	for _, b := range w.actors {
		if b.cfg.Job == a.cfg.Job && !b.drains && b.m.view.now.Digest != a.m.view.now.Digest {
			return false
		}
	}
	return true
}

// writes reports whether the next event of a trainer may be a save.
func (w *world) writes(a *actor) bool {
	return a.trainer == trains && a.pos < len(w.sc.saves) && w.peers(a, func(b *actor) bool { return !b.dead && b.trainer == trains && b.pos >= a.pos })
}

func (w *world) trainers(moves []move, i int, a *actor) []move {
	if a.drains || a.trainer == down && len(w.vacant) > 0 {
		return moves
	}
	if a.trainer == down {
		if !w.together(a) {
			return moves
		}
		c, b := w.clone(i)
		b.trainer, b.run, b.pos, b.half, b.whole, b.guessed = trains, w.lastRun(a.cfg.Job), 0, false, false, false
		return append(moves, move{fmt.Sprintf("node %s: the trainer has restored and starts", a.name), c, false})
	}
	if !w.writes(a) {
		return moves
	}
	if a.half && w.sc.halves && !a.guessed && (w.sc.mode == "job" || w.sc.mode == "each") {
		c, b := w.clone(i)
		b.guessed = true
		c.complete(b, SignQuiet)
		moves = append(moves, move{fmt.Sprintf("node %s: its files have been quiet for a while", a.name), c, false})
	}
	leader := a.cfg.Index == a.cfg.Count-1 && w.sc.mode == "job"
	if a.whole {
		if !w.peers(a, func(b *actor) bool { return b == a || b.pos > a.pos }) {
			return moves
		}
		c, b := w.clone(i)
		c.complete(b, SignJob)
		b.pos, b.whole, b.half, b.guessed = b.pos+1, false, false, false
		return append(moves, move{fmt.Sprintf("node %s: the trainer writes the job's sign of step %d", a.name, w.sc.saves[a.pos]), c, false})
	}
	c, b := w.clone(i)
	step := w.sc.saves[a.pos]
	writes := w.sc.mode != "rank0" || a.cfg.Index == 0
	if w.sc.halves && !a.half && writes {
		b.half = true
		c.hold(b, false)
		return append(moves, move{fmt.Sprintf("node %s: the trainer writes half of step %d", a.name, step), c, false})
	}
	if leader {
		b.whole = true
		c.hold(b, true)
		return append(moves, move{fmt.Sprintf("node %s: the trainer writes step %d", a.name, step), c, false})
	}
	switch w.sc.mode {
	case "job":
		c.hold(b, true)
	case "each":
		c.hold(b, true)
		if w.sc.misses && a.pos < len(w.sc.saves)-1 {
			d, e := c.clone(i)
			e.pos, e.half, e.guessed = e.pos+1, false, false
			moves = append(moves, move{fmt.Sprintf("node %s: the trainer writes step %d, and stager does not look before it is written again", a.name, step), d, false})
		}
		c.complete(b, SignOwn)
	case "quiet":
		c.hold(b, true)
		c.complete(b, SignQuiet)
	case "rank0":
		if a.cfg.Index == 0 {
			c.hold(b, true)
			c.complete(b, SignJob)
		}
	}
	b.pos, b.half, b.guessed = b.pos+1, false, false
	return append(moves, move{fmt.Sprintf("node %s: the trainer writes step %d", a.name, step), c, false})
}

// lastRun returns the newest run of a job's trainer.
func (w *world) lastRun(job string) int {
	run := 0
	for _, a := range w.actors {
		if a.cfg.Job == job {
			run = max(run, a.run)
		}
	}
	return run
}

// now returns the save that the trainer of an actor writes.
func (w *world) now(a *actor) (step int64, writing int) {
	step = w.sc.saves[a.pos]
	for _, s := range w.sc.saves[:a.pos+1] {
		if s == step {
			writing++
		}
	}
	return step, writing
}

// hold puts the files of the current save on the disk of an actor. It replaces an earlier state
// of the step.
func (w *world) hold(a *actor, whole bool) {
	step, writing := w.now(a)
	view, _ := a.m.Position()
	h := holding{Local{View: view, Round: a.round, Step: step}, content{step, a.run, writing, whole}}
	a.disk = append(slices.DeleteFunc(a.disk, func(o holding) bool { return o.Step == step }), h)
}

// complete takes a snapshot of the current save's files and reports it to the machine.
func (w *world) complete(a *actor, sign Sign) {
	step, _ := w.now(a)
	for _, h := range a.disk {
		if h.Step != step {
			continue
		}
		h.Sign, h.Edition = sign, 1
		h.Writing = a.counts.Number(h.Local, h.print(), a.sameAsCounted(&h), 1)
		if w.sc.off&rule(ruleOfWritings) != 0 {
			h.Writing = 1
		}
		if sign >= SignOwn {
			a.counts, _ = a.counts.Note(h.Local, h.print())
		}
		a.keep(h)
		w.feed(a, Event{What: Complete, Local: h.Local})
	}
}

// sweeper removes data that no COMMIT names.
func (w *world) sweeper(moves []move) []move {
	if w.left.sweep == 0 {
		return moves
	}
	named := ""
	for _, o := range w.store {
		if strings.HasSuffix(o.key, commitName) {
			named += o.body
		}
	}
	text, _ := w.get(ViewKey)
	view, _ := DecodeView([]byte(text))
	for _, o := range w.store {
		if !strings.HasPrefix(o.key, "data/") || strings.Contains(named, o.key) {
			continue
		}
		f := strings.Split(o.key, "/")
		still := w.stands(f[1])
		if w.sc.off&rule(10) == 0 && !Sweepable(view, f[1], still, 1) {
			continue
		}
		c, _ := w.clone(-1)
		c.left.sweep--
		c.remove(o.key)
		moves = append(moves, move{"the sweeper removes " + o.key, c, false})
	}
	return moves
}

// stands returns how long a view had no progress: forever when no member works for it.
func (w *world) stands(view string) (still time.Duration) {
	for _, a := range w.actors {
		if !a.dead && slices.ContainsFunc(a.m.saves, func(s save) bool { return s.id.View == view }) {
			return 0
		}
		if !a.dead && a.m.view.now.Digest == view && a.m.active() {
			return 0
		}
	}
	return 1
}

func (w *world) faults(moves []move) []move {
	for i, a := range w.actors {
		if a.left && w.left.crash > 0 {
			c, b := w.clone(i)
			c.left.crash--
			b.dead, b.left = false, false
			c.restart(b)
			moves = append(moves, move{fmt.Sprintf("node %s: stager is started again", a.name), c, true})
		}
		if a.dead {
			continue
		}
		if w.left.leave > 0 && a.trainer == trains && a.pos == len(w.sc.saves) && a.m.member.phase == memberBeating {
			c, b := w.clone(i)
			c.left.leave--
			c.leaves(b)
			moves = append(moves, move{fmt.Sprintf("node %s leaves: its trainer has ended, and its grace period as well", a.name), c, true})
		}
		if w.left.crash > 0 {
			c, b := w.clone(i)
			c.left.crash--
			c.restart(b)
			moves = append(moves, move{fmt.Sprintf("node %s: stager is killed and started again", a.name), c, true})
		}
		if w.left.kill > 0 {
			c, b := w.clone(i)
			c.left.kill--
			b.dead, b.m, b.pend, b.timers, b.disk, b.held = true, &Machine{}, nil, nil, nil, nil
			moves = append(moves, move{fmt.Sprintf("node %s dies", a.name), c, true})
		}
		if w.left.replace > 0 && !a.drains && a.trainer == trains && (w.sc.victim == 0 || w.sc.victim == i+1) {
			c, _ := w.clone(-1)
			c.left.replace--
			label := "the pod of node %s is replaced"
			if w.sc.brief {
				label = "the pod of node %s is gone"
			}
			c.replacePod(i)
			moves = append(moves, move{fmt.Sprintf(label, a.name), c, true})
		}
	}
	if w.left.resize > 0 && w.running() {
		c, _ := w.clone(-1)
		c.left.resize--
		for i := range c.actors {
			c.retire(i)
		}
		if w.sc.brief {
			c.runs++
			for i := range w.sc.n - 1 {
				c.vacant = append(c.vacant, Config{Job: "job-a", Index: i, Count: w.sc.n - 1})
			}
		} else {
			c.begin("job-a", w.sc.n-1)
		}
		moves = append(moves, move{fmt.Sprintf("the job comes back with %d nodes", w.sc.n-1), c, true})
	}
	if w.left.second > 0 {
		c, _ := w.clone(-1)
		c.left.second--
		c.begin("job-b", w.sc.n)
		moves = append(moves, move{"another job starts with the same destination", c, true})
	}
	return moves
}

// leaves ends the process of an actor in order. What it has not done is never done.
func (w *world) leaves(a *actor) {
	a.pend = nil
	w.feed(a, Event{What: Leave})
	for _, act := range a.pend {
		if act.For == ofMember {
			w.exec(a, act)
		}
	}
	a.left, a.dead, a.m, a.pend, a.timers = true, true, &Machine{}, nil, nil
}

// restart clears the memory of a process. The content of its volume stays.
func (w *world) restart(a *actor) {
	w.boot(a)
	for a.m.view.now.Digest == "" && len(a.pend) > 0 { // the driver waits until the view is known
		act := a.pend[0]
		a.pend = a.pend[1:]
		w.feed(a, w.exec(a, act))
	}
	for _, h := range a.held {
		if h.Sign > 0 {
			w.feed(a, Event{What: Complete, Local: h.Local})
		}
	}
}

// retire stops the trainer of an actor whose pod was replaced.
func (w *world) retire(i int) {
	a := w.own(i)
	a.trainer, a.drains = down, true
	if !w.sc.drain {
		a.dead, a.m, a.pend, a.timers, a.disk, a.held = true, &Machine{}, nil, nil, nil, nil
	}
}

// replacePod starts a new pod at the index of an actor. The trainers of the others stop and
// restart.
func (w *world) replacePod(i int) {
	cfg := w.actors[i].cfg
	w.retire(i)
	w.runs++
	for k, a := range w.actors {
		if k != i && !a.drains && a.cfg.Job == cfg.Job {
			b := w.own(k)
			b.trainer = down
		}
	}
	if w.sc.brief {
		w.vacant = append(w.vacant, cfg)
		return
	}
	w.add(cfg.Job, cfg.Index, cfg.Count)
}

// succeed starts the pods that replace the removed ones, forms the view of all nodes, and starts
// their trainers. Pending requests of saves stay pending.
func (w *world) succeed() {
	job := w.vacant[0].Job
	for _, cfg := range w.vacant {
		w.add(cfg.Job, cfg.Index, cfg.Count)
	}
	w.vacant = nil
	live := func(a *actor) bool { return !a.dead && !a.drains && a.cfg.Job == job }
	for range 10 {
		for i, a := range w.actors {
			if live(a) {
				w.poll(w.own(i))
			}
		}
	}
	for i, a := range w.actors {
		if !live(a) {
			continue
		}
		b := w.own(i)
		b.trainer, b.run, b.pos, b.half, b.whole, b.guessed = trains, w.lastRun(job), 0, false, false, false
	}
}

// poll lets an actor execute all its actions for the view.
func (w *world) poll(a *actor) {
	for range 2 {
		for k := 0; k < len(a.pend); k++ {
			if act := a.pend[k]; act.For.Of == OfView {
				a.pend = slices.Delete(a.pend, k, k+1)
				w.feed(a, w.exec(a, act))
				k = -1
			}
		}
		if k := slices.Index(a.timers, ofView); k >= 0 {
			a.timers = slices.Delete(a.timers, k, k+1)
			w.feed(a, Event{What: Fired, For: ofView})
		}
	}
}
