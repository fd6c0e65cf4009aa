package group

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// save is the state of one open save in a member.
type save struct {
	what  Announcement
	id    SaveID
	view  View
	phase savePhase
	then  savePhase // after saveRetry

	own         Part // this node's
	provisional bool
	settled     bool // a node without a sign has waited

	old     bool          // its view has ended
	waited  time.Duration // for the others
	delay   time.Duration
	overdue bool          // other members list the parts, too
	parts   []Part        // of all nodes
	digests []string      // of the parts
	version string        // of another save's existing COMMIT.json
	suffix  int           // of the directory of COMMIT.json
	missing string        // reported
	removed bool          // the own part was removed
	absent  int           // the node whose member record is read because its part is missing
	asked   time.Duration // what waited was then
	left    bool          // that node has left the job
	guess   bool          // the COMMIT.json that ends it is provisional
}

type savePhase uint8

const (
	saveOwn       savePhase = iota + 1 // after a restart: reads the own part
	saveScan                           // scans files again after the announcement
	saveWaitLocal                      // waits for a sign on this node
	saveUpload                         // uploads
	savePart                           // creates the own part
	saveRetry                          // waits for the store
	saveWatch                          // waits for the others
	saveRead                           // reads COMMIT.json
	saveLookOwn                        // checks the own data after COMMIT
	saveGather                         // reads all parts
	saveAbsent                         // reads the member record of a node whose part is missing
	saveLook                           // checks all data
	saveBefore                         // reads COMMIT.json before it is written
	saveWrite                          // writes it
	saveGatherAgain
	saveLookAgain
	saveNewest // its parts are gone: searches for a later checkpoint
	saveDone
)

func newSave(a Announcement, v View) save {
	return save{what: a, id: SaveID{a.View, a.Save}, view: v}
}

// open returns the open save with an id, or nil.
func (m *Machine) open(id SaveID) *save {
	for i := range m.saves {
		if m.saves[i].id == id {
			return &m.saves[i]
		}
	}
	return nil
}

func (s *save) task() Task { return Task{Of: OfSave, Save: s.id} }

// enter enters a phase and adds its action.
func (m *Machine) enter(s *save, p savePhase) {
	s.phase = p
	a := Action{For: s.task(), Save: s.what}
	switch p {
	case saveOwn:
		a.Do, a.Key = Read, PartKey(s.what.Step, s.id, m.cfg.Index)
	case saveScan:
		a.Do = Scan
	case saveWaitLocal:
		a.Do, a.After = Wait, m.cfg.QuietPeriod
	case saveUpload:
		a.Do = Upload
	case savePart:
		a.Do, a.Key, a.Body = Create, PartKey(s.what.Step, s.id, m.cfg.Index), encode(s.own)
		if !m.on(4) {
			a.Do, a.Version = Replace, anyVersion
		}
	case saveRetry:
		a.Do, a.After = Wait, m.cfg.Retry
	case saveWatch:
		a.Do, a.After = Wait, m.watchDelay(s)
	case saveRead, saveBefore:
		a.Do, a.Key = Read, s.commitKey()
	case saveGather, saveGatherAgain:
		a.Do, a.Key = Gather, PartsPrefix(s.what.Step, s.id)
	case saveAbsent:
		a.Do, a.Key = Read, memberKey(s.absent)
	case saveNewest:
		a.Do = Newest
	case saveLook, saveLookAgain:
		a.Do, a.Parts = Look, s.parts
	case saveLookOwn:
		a.Do, a.Parts = Look, []Part{s.own}
	case saveWrite:
		a.Do, a.Key, a.Version, a.Parts, a.Joined = Commit, s.commitKey(), s.version, s.parts, s.joined(m.cfg.Job)
	}
	m.do(a)
}

// anyVersion replaces any version. The protocol never uses it.
const anyVersion = "*"

// begin starts this node's part of a save.
func (m *Machine) begin(s *save) {
	sign := m.knownSign(s.what)
	if h := m.match(s.what); h != nil {
		sign = max(sign, h.Sign)
		m.ready = slices.DeleteFunc(slices.Clone(m.ready), func(h held) bool {
			return h.of(s.what.Round, s.what.Step, s.what.Writing) && (h.Sign < SignJob || s.what.Scope == ScopeJob)
		})
	}
	m.noteSign(s.what, sign)
	switch {
	case m.overtaken(s.what.writing()):
		m.fail(s, fmt.Sprintf("node %d has saved another step since step %d", m.cfg.Index, s.what.Step))
	case m.replaced(s.what) && m.on(ruleOfWritings):
		m.fail(s, fmt.Sprintf("node %d has a later writing of step %d", m.cfg.Index, s.what.Step))
	case sign >= SignOwn || sign > 0 && !m.on(3):
		m.enter(s, saveUpload)
	case sign > 0 && s.what.Scope == ScopeNode && (s.what.By == m.cfg.Index || s.what.Provisional):
		s.provisional = true // no node has a sign so far: waiting for one here changes nothing
		m.enter(s, saveUpload)
	case s.what.Scope == ScopeJob:
		m.enter(s, saveScan)
	default:
		m.enter(s, saveWaitLocal)
	}
}

func (m *Machine) saveAnswered(s *save, e Event) {
	if s.phase == saveWatch || s.phase == saveRetry || s.phase == saveWaitLocal || s.phase == saveDone {
		return
	}
	if e.Outcome == Unavailable || e.Outcome == Unknown && s.phase != saveWrite {
		s.then = s.phase // everything except the write of COMMIT can be repeated
		m.enter(s, saveRetry)
		return
	}
	switch s.phase {
	case saveOwn:
		m.ownWasRead(s, e)
	case saveScan:
		m.scanned(s, e)
	case saveUpload:
		if e.Outcome != OK {
			m.fail(s, fmt.Sprintf("the files of node %d changed or vanished before they were uploaded", m.cfg.Index))
			return
		}
		m.upload(s, e)
	case savePart:
		m.brought(s, e)
	default:
		m.commitAnswered(s, e)
	}
}

func (m *Machine) saveFired(s *save) {
	switch s.phase {
	case saveRetry:
		m.enter(s, s.then)
	case saveWaitLocal:
		if !s.settled || m.on(0) {
			s.settled = true
			m.enter(s, saveScan)
		}
	case saveWatch:
		s.waited += s.delay
		s.overdue = s.overdue || s.waited >= m.cfg.TakeOver+m.stagger()
		if m.cfg.Index == 0 {
			m.enter(s, saveGather)
		} else {
			m.enter(s, saveRead)
		}
	}
}

// ownWasRead continues a save that was announced before this process started.
func (m *Machine) ownWasRead(s *save, e Event) {
	if e.Outcome == NotExist {
		m.begin(s)
		return
	}
	p, err := DecodePart(e.Body)
	if e.Outcome != OK || err != nil || p.Boot != m.cfg.Boot || p.View != s.id.View || p.Save != s.id.Number || p.Step != s.what.Step {
		m.unreadable(PartKey(s.what.Step, s.id, m.cfg.Index), err)
		m.finish(s, Abandoned, "the part of this node cannot be read")
		return
	}
	s.own = p
	m.brought(s, Event{Outcome: OK})
}

func (m *Machine) scanned(s *save, e Event) {
	s.provisional = e.Provisional
	switch e.Outcome {
	case OK:
		if !e.Provisional {
			m.proved(s)
		}
		m.enter(s, saveUpload)
	case NotExist: // files may still appear, unless a sign is for all nodes
		s.provisional = s.what.Scope == ScopeNode
		if !m.on(0) {
			m.enter(s, saveWaitLocal)
			return
		}
		m.upload(s, Event{Provisional: s.provisional})
	default:
		m.fail(s, fmt.Sprintf("node %d %s", m.cfg.Index, cmp.Or(e.Why, "no longer has the files of this save")))
	}
}

// proved records that a scan found files that a sign of this node completes. They no longer need
// their own save.
func (m *Machine) proved(s *save) {
	m.noteSign(s.what, SignOwn)
	m.ready = slices.DeleteFunc(slices.Clone(m.ready), func(h held) bool {
		return h.View == s.id.View && h.is(s.what) && (h.Sign < SignJob || s.what.Scope == ScopeJob)
	})
}

// upload creates this node's part.
func (m *Machine) upload(s *save, e Event) {
	s.own = Part{
		Header: Header{APIVersion: apiVersion, Kind: kindPart}, View: s.id.View, Save: s.id.Number, Step: s.what.Step,
		Index: m.cfg.Index, Count: m.cfg.Count, Boot: m.cfg.Boot, Pod: m.cfg.Pod, Payload: payload(e.Body),
		Provisional: s.provisional || e.Provisional,
	}
	m.enter(s, savePart)
}

// fail creates a part that ends the save for all members.
func (m *Machine) fail(s *save, why string) {
	s.own = Part{
		Header: Header{APIVersion: apiVersion, Kind: kindPart}, View: s.id.View, Save: s.id.Number, Step: s.what.Step,
		Index: m.cfg.Index, Count: m.cfg.Count, Boot: m.cfg.Boot, Failed: why,
	}
	m.enter(s, savePart)
}

// brought continues when the own part exists. An existing part belongs to this member, because
// its name contains the view and the index.
func (m *Machine) brought(s *save, e Event) {
	switch {
	case e.Outcome == Exists: // by this process, whose response was lost, or by an earlier one
		m.enter(s, saveOwn)
	case e.Outcome != OK:
		s.then = savePart
		m.enter(s, saveRetry)
	case s.own.Failed != "":
		m.finish(s, Abandoned, s.own.Failed)
	case m.cfg.Index == 0:
		m.enter(s, saveGather)
	default:
		m.enter(s, saveWatch)
	}
}

// endView abandons the saves of the current view that have not begun to upload. The others
// continue for a while, because all parts may exist.
func (m *Machine) endView(why string) {
	if !m.on(7) {
		return
	}
	for i := range m.saves {
		s := &m.saves[i]
		switch {
		case s.id.View != m.view.now.Digest || s.old:
		case s.phase == saveScan || s.phase == saveWaitLocal:
			m.finish(s, Abandoned, why)
		default:
			s.old, s.waited, s.asked = true, 0, 0
		}
	}
}

// finish ends a save with a report.
func (m *Machine) finish(s *save, topic Topic, why string) {
	s.phase = saveDone
	m.report(Report{Topic: topic, Save: s.id, Step: s.what.Step, Why: why, Provisional: s.guess})
}

// forgetDone removes finished saves, so that the next save can be announced.
func (m *Machine) forgetDone() {
	before := len(m.saves)
	m.saves = slices.DeleteFunc(m.saves, func(s save) bool { return s.phase == saveDone })
	switch {
	case len(m.saves) == before || m.log.phase != logWait:
	case len(m.ready) > 0:
		m.pokeLog()
	default:
		m.waitLog(4 * m.cfg.PollMin)
	}
}

// replaceParts replaces the part of a step that was written again. No member may do so: tests
// disable rule 4 to observe the result.
func (m *Machine) replaceParts(l Local) bool {
	for i := range m.saves {
		s := &m.saves[i]
		if s.what.Step == l.Step && s.what.Round == l.Round && s.phase > savePart {
			s.what.Writing = l.Writing
			m.enter(s, saveUpload)
			return true
		}
	}
	return false
}
