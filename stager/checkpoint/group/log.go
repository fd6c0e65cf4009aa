package group

import (
	"fmt"
	"math/bits"
	"slices"
	"strings"
	"time"
)

// logging is the state of reading and writing announcements.
type logging struct {
	phase logPhase
	next  int // the next number without an announcement, as far as this member knows
	delay time.Duration
	mine  Announcement // being created
	known []known      // the last announcements, oldest first
}

// known is an announcement with the sign that this node had for its files.
type known struct {
	Announcement
	sign Sign
}

// maxKnown is the maximum length of logging.known. A checkpoint is not reported complete after
// that many later ones.
const maxKnown = 32

type logPhase uint8

const (
	logIdle   logPhase = iota
	logGather          // reads all announcements of the view
	logRead            // reads the next one
	logCreate          // creates an announcement
	logWait            // waits
)

// logTask returns the task of the current view. Late responses about another view do not match it
// and are dropped.
func (m *Machine) logTask() Task { return Task{OfLog, SaveID{View: m.view.now.Digest}} }

// held is a checkpoint that is complete and not announced.
type held struct {
	Local
	waited bool // the members that go first have had their time
}

// startLog reads the announcements of a view that this member has just entered.
func (m *Machine) startLog() {
	m.log = logging{phase: logGather, next: 1}
	m.do(Action{Do: Gather, For: m.logTask(), Key: logPrefix(m.view.now.Digest)})
}

func (m *Machine) pollLog() {
	switch {
	case !m.active() || m.view.now.Digest == "":
		m.log.phase = logIdle
	case m.log.phase == logGather || m.log.next == 0:
		m.startLog()
	default:
		m.log.phase = logRead
		m.do(Action{Do: Read, For: m.logTask(), Key: announceKey(m.view.now.Digest, m.log.next)})
	}
}

// pokeLog polls immediately if the log is waiting.
func (m *Machine) pokeLog() {
	if m.log.phase == logWait {
		m.pollLog()
	}
}

func (m *Machine) logFired() {
	for i := range m.ready {
		m.ready[i].waited = true
	}
	m.pollLog()
}

func (m *Machine) logAnswered(e Event) {
	if !m.active() {
		m.log.phase = logIdle
		return
	}
	switch m.log.phase {
	case logGather:
		if e.Outcome != OK {
			m.log.phase, m.log.next = logWait, 0
			m.wait(m.logTask(), m.cfg.Retry)
			return
		}
		m.resume(e.Records)
	case logRead:
		m.logWasRead(e)
	case logCreate:
		switch e.Outcome {
		case OK:
			m.log.phase = logRead
			m.announced(m.log.mine)
			m.afterAnnounced()
		case Unavailable:
			m.waitLog(m.cfg.Retry)
		default: // another member was first, or the result is unknown
			m.pollLog()
		}
	}
}

// resume processes all announcements of a view. Only the last one can belong to an open save,
// because nothing is announced while a save is open.
func (m *Machine) resume(records []Record) {
	m.log.phase = logRead
	var last *Announcement
	for _, r := range records {
		a, err := DecodeAnnouncement(r.Body)
		number := 0
		if _, serr := fmt.Sscanf(strings.TrimPrefix(r.Key, logPrefix(m.view.now.Digest)), "%d"+ending, &number); serr != nil {
			continue
		}
		m.log.next = max(m.log.next, number+1)
		if r.Outcome != OK || err != nil || r.Key != announceKey(a.View, a.Save) {
			m.unreadable(r.Key, err)
			continue
		}
		m.know(a)
		if last == nil || a.Save > last.Save {
			last = &a
		}
	}
	if last != nil && m.open(SaveID{last.View, last.Save}) == nil {
		m.saves = append(m.saves, newSave(*last, m.view.now))
		m.enter(&m.saves[len(m.saves)-1], saveOwn)
	}
	m.pollLog()
}

func (m *Machine) logWasRead(e Event) {
	key := announceKey(m.view.now.Digest, m.log.next)
	var err error
	switch e.Outcome {
	case OK:
		var a Announcement
		if a, err = DecodeAnnouncement(e.Body); err == nil && key == announceKey(a.View, a.Save) {
			m.announced(a)
			m.afterAnnounced()
			return
		}
		fallthrough
	case Corrupt: // every member finds it corrupt, so the save never happens
		m.unreadable(key, err)
		m.log.next++
		m.pollLog()
	case NotExist:
		m.announce()
	default:
		m.waitLog(m.cfg.Retry)
	}
}

// busy reports whether a save of the current view is open.
func (m *Machine) busy() bool {
	return slices.ContainsFunc(m.saves, func(s save) bool { return s.id.View == m.view.now.Digest && s.phase != saveDone })
}

// afterAnnounced waits while the save is open. Nothing is announced meanwhile, and the end of the
// save triggers a poll.
func (m *Machine) afterAnnounced() {
	if m.busy() {
		m.waitLog(m.cfg.PollMax)
		return
	}
	m.pollLog()
}

func (m *Machine) waitLog(after time.Duration) {
	m.log.phase = logWait
	m.wait(m.logTask(), after)
}

// announce announces the newest checkpoint, if it is this member's turn and no save is open. It
// is called when the next number has no announcement.
func (m *Machine) announce() {
	if m.busy() {
		m.waitLog(m.cfg.PollMax)
		return
	}
	if len(m.ready) == 0 {
		m.log.delay = min(max(2*m.log.delay, m.cfg.PollMin+time.Duration(m.cfg.Count)*m.cfg.PollMin/500), m.cfg.PollMax)
		m.waitLog(m.log.delay)
		return
	}
	h := m.newest()
	if !h.waited && (h.Sign == SignQuiet && m.on(3) || h.Sign == SignOwn && m.cfg.Index > 0) {
		m.waitLog(m.stagger() + m.cfg.PollMin)
		return
	}
	scope := ScopeNode
	if h.Sign == SignJob {
		scope = ScopeJob
	}
	m.log.mine = Announcement{
		Header: Header{APIVersion: apiVersion, Kind: kindAnnouncement}, View: m.view.now.Digest, Save: m.log.next,
		Step: h.Step, Round: h.Round, Writing: h.Writing, Edition: h.Edition, Scope: scope, By: m.cfg.Index,
		Provisional: h.Sign == SignQuiet, Before: m.seenBefore(h.writing()),
	}
	m.log.phase = logCreate
	m.do(Action{Do: Create, For: m.logTask(), Key: announceKey(m.view.now.Digest, m.log.next), Body: encode(m.log.mine)})
}

// stagger returns how long this member lets lower indices go first.
func (m *Machine) stagger() time.Duration {
	return time.Duration(bits.Len(uint(m.cfg.Index)))*m.cfg.Stagger + time.Duration(m.cfg.Index)*m.cfg.Stagger/128
}

// announced opens the save that was announced under the next number.
func (m *Machine) announced(a Announcement) {
	m.log.next++
	m.log.delay = 0
	m.know(a)
	if !m.on(5) && slices.ContainsFunc(m.ready, func(h held) bool { return h.Step > a.Step }) {
		return // each node announces independently
	}
	m.report(Report{Topic: Announced, Save: SaveID{a.View, a.Save}, Step: a.Step})
	m.scanSooner()
	m.saves = append(m.saves, newSave(a, m.view.now))
	m.begin(&m.saves[len(m.saves)-1])
}

// completed handles a checkpoint that is complete on this node.
func (m *Machine) completed(l Local) {
	if m.on(2) && (!m.active() || l.View == "" || l.View != m.view.now.Digest) {
		m.report(Report{Topic: Skipped, Local: l, Step: l.Step, Why: "it was written before the current view"})
		return
	}
	if !m.on(4) && m.replaceParts(l) {
		return
	}
	m.noteOrder(l.writing())
	if m.writtenAgain(l) || m.overtaken(l.writing()) {
		m.report(Report{Topic: Skipped, Local: l, Step: l.Step})
		return
	}
	m.hold(l)
	m.skipOlder()
	for i := range m.saves {
		s := &m.saves[i]
		if s.phase != saveWaitLocal || s.id.View != l.View {
			continue
		}
		if h := m.match(s.what); h != nil {
			m.begin(s)
		} else if m.on(5) && m.before(s.what.writing(), l.writing()) {
			why := fmt.Sprintf("node %d has saved step %d without step %d", m.cfg.Index, l.Step, s.what.Step)
			if l.Step == s.what.Step {
				why = fmt.Sprintf("node %d has a later writing of step %d", m.cfg.Index, l.Step)
			}
			m.fail(s, why)
		}
	}
	m.pokeLog()
}

// writtenAgain reports whether a later writing of l's step was announced.
func (m *Machine) writtenAgain(l Local) bool {
	return slices.ContainsFunc(m.log.known, func(k known) bool { return k.Round == l.Round && k.Step == l.Step && k.Writing > l.Writing })
}

// hold records a checkpoint that may be announced. If it was announced already, only a save that
// waits for it needs it. An earlier writing of the step is no longer on the volume.
func (m *Machine) hold(l Local) {
	for i := range m.ready {
		if r := &m.ready[i]; r.View == l.View && r.of(l.Round, l.Step, l.Writing) {
			r.Sign, r.Edition = max(r.Sign, l.Sign), max(r.Edition, l.Edition)
			return
		}
	}
	m.ready = slices.DeleteFunc(slices.Clone(m.ready), func(h held) bool {
		return h.View == l.View && h.Round == l.Round && h.Step == l.Step && h.Writing < l.Writing
	})
	announced, before := m.knownFiles(l)
	waiting := slices.ContainsFunc(m.saves, func(s save) bool {
		return (s.phase == saveWaitLocal || s.phase == saveOwn) && l.of(s.what.Round, s.what.Step, s.what.Writing)
	})
	if !announced || waiting || before < SignOwn && l.Sign >= SignOwn && m.guessed(l) || l.Sign == SignJob && !m.forJob(l) {
		m.ready = append(m.ready, held{Local: l})
	}
}

// knownSign returns the best sign that this node had for an announced writing.
func (m *Machine) knownSign(a Announcement) (sign Sign) {
	for _, k := range m.log.known {
		if k.Round == a.Round && k.Step == a.Step && k.Writing == a.Writing {
			sign = max(sign, k.sign)
		}
	}
	return sign
}

// knownFiles reports whether exactly the files of l were announced, and the best sign that this
// node had for them.
func (m *Machine) knownFiles(l Local) (announced bool, sign Sign) {
	for _, k := range m.log.known {
		if l.is(k.Announcement) {
			announced, sign = true, max(sign, k.sign)
		}
	}
	return announced, sign
}

// guessed reports whether this node took part in a save of l without a sign, so that its COMMIT
// is only provisional.
func (m *Machine) guessed(l Local) bool {
	return slices.ContainsFunc(m.log.known, func(k known) bool { return k.Scope == ScopeNode && l.of(k.Round, k.Step, k.Writing) })
}

// forJob reports whether l was announced for all nodes.
func (m *Machine) forJob(l Local) bool {
	return slices.ContainsFunc(m.log.known, func(k known) bool { return k.Scope == ScopeJob && l.is(k.Announcement) })
}

// sameFiles reports whether a save of the view was announced for the same files.
func (m *Machine) sameFiles(number int, a Announcement) bool {
	return slices.ContainsFunc(m.log.known, func(k known) bool {
		return k.View == a.View && k.Save == number && k.Round == a.Round && k.Step == a.Step && k.Writing == a.Writing && k.Edition == a.Edition
	})
}

// noteSign records the sign that this node had for a save.
func (m *Machine) noteSign(a Announcement, sign Sign) {
	for i := range m.log.known {
		if k := &m.log.known[i]; k.View == a.View && k.Save == a.Save {
			k.sign = max(k.sign, sign)
		}
	}
}

// of reports whether l belongs to a writing.
func (l *Local) of(round int, step int64, writing int) bool {
	return l.Round == round && l.Step == step && l.Writing == writing
}

// is reports whether l has the announced files.
func (l *Local) is(a Announcement) bool {
	return l.of(a.Round, a.Step, a.Writing) && l.Edition == a.Edition
}

// match returns the held checkpoint that belongs to an announcement, or nil.
func (m *Machine) match(a Announcement) *held {
	for i := range m.ready {
		if h := &m.ready[i]; h.of(a.Round, a.Step, a.Writing) && (h.View == a.View || !m.on(2)) {
			return h
		}
	}
	return nil
}

// replaced reports whether this node holds a later writing of an announced step instead of the
// announced one.
func (m *Machine) replaced(a Announcement) bool {
	return slices.ContainsFunc(m.ready, func(h held) bool {
		return h.View == a.View && h.Round == a.Round && h.Step == a.Step && h.Writing > a.Writing
	})
}

// know records an announcement and skips what the trainer wrote before it.
func (m *Machine) know(a Announcement) {
	m.log.known = append(slices.Clone(m.log.known[max(0, len(m.log.known)-maxKnown+1):]), known{Announcement: a})
	m.learnOrder(a)
	m.skipOlder()
}

// skip drops held checkpoints and reports them.
func (m *Machine) skip(drop func(*held) bool) {
	m.ready = slices.DeleteFunc(slices.Clone(m.ready), func(h held) bool {
		if !drop(&h) {
			return false
		}
		m.report(Report{Topic: Skipped, Local: h.Local, Step: h.Step})
		return true
	})
}
