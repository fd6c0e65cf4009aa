package group

import (
	"fmt"
	"slices"
)

// membership is the state of this node's member record.
type membership struct {
	phase   memberPhase
	version string // as last seen or written
	beat    int64
	former  []string
	watched Member // a record of another job that may be dead
	after   bool   // the watched record was seen a lease time ago
	joined  bool   // this process was registered
	leaves  bool   // it leaves; Left is recorded as soon as the version of the record is known
}

type memberPhase uint8

const (
	memberIdle    memberPhase = iota
	memberRead                // reads the record to register
	memberWrite               // creates or replaces it
	memberWatch               // waits for a change of another job's record
	memberRetry               // waits for the store
	memberRefused             // final: another job is alive
	memberFenced              // final: replaced by a newer member
	memberLeft                // final
	// In the following phases the member is registered.
	memberBeating // waits for the next heartbeat
	memberBeat    // writes it
	memberCheck   // reads the record after an uncertain heartbeat
	memberAgain   // waits for the store
	memberLeaving // writes that it left
)

var ofMember = Task{Of: OfMember}

func (m *Machine) readMember() {
	m.member.phase = memberRead
	if m.member.joined {
		m.member.phase = memberCheck
	}
	m.do(Action{Do: Read, For: ofMember, Key: memberKey(m.cfg.Index)})
}

// writeMember writes the record and replaces the given version, or creates it if version is
// empty.
func (m *Machine) writeMember(phase memberPhase, version, state string) {
	m.member.phase = phase
	m.member.beat++
	rec := Member{
		Header: Header{APIVersion: apiVersion, Kind: kindMember}, Job: m.cfg.Job, Index: m.cfg.Index, Count: m.cfg.Count,
		Boot: m.cfg.Boot, Beat: m.member.beat, State: state, Former: m.member.former,
	}
	a := Action{Do: Replace, For: ofMember, Key: memberKey(m.cfg.Index), Body: encode(rec), Version: version}
	if version == "" {
		a.Do = Create
	}
	m.do(a)
}

func (m *Machine) memberAnswered(e Event) {
	switch m.member.phase {
	case memberRead, memberCheck:
		m.memberWasRead(e)
	case memberWrite, memberBeat:
		switch e.Outcome {
		case OK:
			m.registered(e.Version)
		case Unavailable:
			m.retryMember()
		default: // another member wrote it, or the result of this member's write is unknown
			m.readMember()
		}
	case memberLeaving:
		switch e.Outcome {
		case OK:
			m.member.phase = memberLeft
		case Unavailable:
			m.retryMember()
		default:
			m.readMember()
		}
	}
}

func (m *Machine) memberWasRead(e Event) {
	switch e.Outcome {
	case OK:
		rec, err := DecodeMember(e.Body)
		if err == nil && rec.Index != m.cfg.Index {
			err = fmt.Errorf("it is the record of node %d", rec.Index)
		}
		if err != nil {
			m.unreadableMember(err)
			return
		}
		m.decide(rec, e.Version)
	case NotExist:
		m.writeMember(memberWrite, "", "")
	case Corrupt:
		m.unreadableMember(nil)
	default:
		m.retryMember()
	}
}

// unreadableMember reports a record that is left unchanged, and retries later.
func (m *Machine) unreadableMember(err error) {
	m.unreadable(memberKey(m.cfg.Index), err)
	m.retryMember()
}

func (m *Machine) retryMember() {
	m.member.phase = memberRetry
	if m.member.joined {
		m.member.phase = memberAgain
	}
	m.wait(ofMember, m.cfg.Retry)
}

// decide processes the record that was read at this node's index.
func (m *Machine) decide(rec Member, version string) {
	same := rec.Job == m.cfg.Job
	switch {
	case same && rec.Boot == m.cfg.Boot: // of this process, or of one before its restart
		m.member.beat, m.member.former = rec.Beat, rec.Former
		switch {
		case rec.State != Left:
			m.registered(version)
		case m.member.leaves:
			m.member.phase = memberLeft
		default: // others must not give up what this node will bring
			m.writeMember(memberWrite, version, "")
		}
	case same && slices.Contains(rec.Former, m.cfg.Boot), m.member.joined:
		if m.on(1) {
			m.member.phase = memberFenced
			m.report(Report{Topic: Fenced, Who: rec.Boot})
			m.fenced()
			return
		}
		m.replaceMember(rec, version)
	case same, rec.State == Left, !m.on(1):
		m.replaceMember(rec, version)
	case m.member.after && m.member.watched.Boot == rec.Boot && m.member.watched.Beat == rec.Beat:
		m.replaceMember(rec, version)
	case m.member.after:
		m.member.phase = memberRefused
		m.report(Report{Topic: Refused, Who: rec.Job})
	default:
		m.member.watched, m.member.phase = rec, memberWatch
		m.report(Report{Topic: Waiting, Who: rec.Job, Missing: []int{m.cfg.Index}})
		m.wait(ofMember, m.cfg.Lease)
	}
}

func (m *Machine) replaceMember(rec Member, version string) {
	m.member.former = nil
	if rec.Job == m.cfg.Job {
		former := slices.DeleteFunc(append(slices.Clone(rec.Former), rec.Boot), func(b string) bool { return b == m.cfg.Boot })
		m.member.former = former[max(0, len(former)-maxFormer):]
	}
	m.writeMember(memberWrite, version, "")
}

// registered continues after this member owns the record.
func (m *Machine) registered(version string) {
	first := !m.member.joined
	m.member.version, m.member.joined, m.member.phase = version, true, memberBeating
	if m.member.leaves {
		m.writeMember(memberLeaving, version, Left)
		return
	}
	m.wait(ofMember, m.cfg.Beat)
	if first {
		m.report(Report{Topic: Registered})
		m.pollView()
	}
}

func (m *Machine) memberFired() {
	switch m.member.phase {
	case memberBeating:
		m.writeMember(memberBeat, m.member.version, "")
	case memberWatch:
		m.member.after = true
		m.readMember()
	case memberRetry, memberAgain:
		m.readMember()
	}
}

// leave records that this member exited in order. While the version of its record is not known,
// because a heartbeat is in flight or its result is in doubt, registered records it later.
func (m *Machine) leave() {
	m.member.leaves = true
	switch m.member.phase {
	case memberBeating:
		m.writeMember(memberLeaving, m.member.version, Left)
	case memberAgain:
		m.readMember()
	case memberRefused, memberFenced, memberLeaving:
	default:
		if !m.member.joined {
			m.member.phase = memberLeft // others see that the record does not change
		}
	}
}

// fenced stops what a replaced member must not continue: it announces nothing and forms no view.
// Its open saves continue.
func (m *Machine) fenced() {
	m.view.phase, m.log.phase = viewIdle, logIdle
	m.skip(func(*held) bool { return true })
	m.endView("this member was replaced")
}
