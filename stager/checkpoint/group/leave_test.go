package group

import (
	"slices"
	"strings"
	"testing"
)

// leaver is a member, its record, and its requests for it.
type leaver struct {
	m        *Machine
	pend     []Action // at most one
	timer    bool
	limbo    []Action // writes that may still happen after their response was lost
	record   string   // its version is its content
	leaves   bool
	beats    int // that may still begin
	faults   int
	replaced bool // by a newer member of the job
	schedule []string
}

const newerBoot = "b2"

func (l *leaver) feed(e Event) {
	for _, a := range l.m.Step(e) {
		if a.Do == Tell || a.For != ofMember {
			continue
		}
		if l.timer = a.Do == Wait; !l.timer {
			l.pend = append(l.pend, a)
		}
	}
}

// after returns a copy of l after a move.
func (l *leaver) after(label string, move func(*leaver)) *leaver {
	c := *l
	c.m, c.pend, c.limbo = l.m.clone(), slices.Clone(l.pend), slices.Clone(l.limbo)
	c.schedule = append(slices.Clone(l.schedule), label)
	move(&c)
	return &c
}

// write executes a write, unless the record has changed.
func (l *leaver) write(a Action) Event {
	e := Event{What: Answer, For: ofMember, Outcome: OK, Version: string(a.Body)}
	switch {
	case a.Do == Create && l.record != "":
		e.Outcome = Exists
	case a.Do == Replace && a.Version != l.record:
		e.Outcome = Changed
	default:
		l.record = string(a.Body)
	}
	return e
}

func (l *leaver) answer() Event {
	a := l.pend[0]
	l.pend = nil
	switch {
	case a.Do != Read:
		return l.write(a)
	case l.record == "":
		return Event{What: Answer, For: ofMember, Outcome: NotExist}
	}
	return Event{What: Answer, For: ofMember, Outcome: OK, Body: []byte(l.record), Version: l.record}
}

// next returns l after each move that is possible.
func (l *leaver) next() (all []*leaver) {
	add := func(label string, move func(*leaver)) { all = append(all, l.after(label, move)) }
	answered := func(o Outcome) Event { return Event{What: Answer, For: ofMember, Outcome: o} }
	if len(l.pend) > 0 {
		add(describe(l.pend[0]), func(c *leaver) { c.feed(c.answer()) })
	}
	if len(l.pend) > 0 && l.faults > 0 {
		add("the store is unavailable", func(c *leaver) { c.faults, c.pend = c.faults-1, nil; c.feed(answered(Unavailable)) })
		if l.pend[0].Do != Read {
			add("the reply is lost", func(c *leaver) { c.faults--; c.answer(); c.feed(answered(Unknown)) })
			add("no reply, and the request is delayed", func(c *leaver) {
				c.faults, c.limbo, c.pend = c.faults-1, append(c.limbo, c.pend...), nil
				c.feed(answered(Unknown))
			})
		}
	}
	for i := range l.limbo {
		add("the delayed request arrives", func(c *leaver) { c.write(c.limbo[i]); c.limbo = slices.Delete(c.limbo, i, i+1) })
	}
	if beats := l.m.member.phase == memberBeating; l.timer && (!beats || l.beats > 0) {
		add("the timer fires", func(c *leaver) {
			if c.timer = false; beats {
				c.beats--
			}
			c.feed(Event{What: Fired, For: ofMember})
		})
	}
	if !l.leaves && l.m.member.joined {
		add("it leaves", func(c *leaver) { c.leaves = true; c.feed(Event{What: Leave}) })
	}
	if rec, err := DecodeMember([]byte(l.record)); err == nil && !l.replaced && l.faults > 0 && l.m.member.joined {
		add("a newer member replaces it", func(c *leaver) {
			c.faults, c.replaced = c.faults-1, true
			rec.Boot, rec.State, rec.Former = newerBoot, "", []string{l.m.cfg.Boot}
			c.record = string(encode(rec))
		})
	}
	return all
}

// wrong returns how l violates what leaving promises, or "".
func (l *leaver) wrong(before *leaver, last bool) string {
	rec, _ := DecodeMember([]byte(l.record))
	was, _ := DecodeMember([]byte(before.record))
	switch {
	case before.replaced && l.record != before.record:
		return "it replaced the record of a newer member"
	case before.leaves && was.State == Left && rec.State != Left && !l.replaced:
		return "it took back that it has left"
	case last && l.leaves && !l.m.HasLeft():
		return "Leave is never done"
	case last && l.leaves && !l.replaced && rec.State != Left:
		return "the record does not say that it has left"
	}
	return ""
}

// A member that left while its heartbeat was in flight, or in doubt, recorded nothing. Whatever is
// under way when a member leaves, and whatever happens to its requests, its record says so at the
// end, unless it is that of a newer member.
func TestMemberThatLeavesRecordsIt(t *testing.T) {
	m, err := New(Config{Job: "job-a", Index: 1, Count: 2, Boot: "b1"})
	if err != nil {
		t.Fatal(err)
	}
	start := &leaver{m: m, beats: 2, faults: 2}
	start.feed(Event{What: Start})
	runs, phases := 0, map[memberPhase]bool{} // in which it left
	var visit func(l *leaver)
	visit = func(l *leaver) {
		all := l.next()
		for _, to := range all {
			if to.leaves && !l.leaves {
				phases[l.m.member.phase] = true
			}
			if bad := to.wrong(l, len(to.next()) == 0); bad != "" {
				t.Fatalf("%s\n  %s", bad, strings.Join(to.schedule, "\n  "))
			}
			visit(to)
		}
		if len(all) == 0 {
			runs++
		}
	}
	visit(start)
	for _, p := range []memberPhase{memberBeating, memberBeat, memberCheck, memberAgain, memberFenced} {
		if !phases[p] {
			t.Errorf("it never left in phase %d", p)
		}
	}
	t.Logf("%d runs", runs)
}
