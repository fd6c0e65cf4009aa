package group

// restoring is the state of the agreement on what to restore.
type restoring struct {
	phase  restorePhase
	wanted bool // the trainer waits
	round  int  // how many restores of the view this node took part in
	rounds int  // how many the view has
	at     int  // which view is looked at: 0 the current one, from 1 on former ones
	last   Agreement
	mine   Agreement // being created, or followed
}

type restorePhase uint8

const (
	restoreIdle    restorePhase = iota
	restoreRounds               // reads all agreements of a view
	restoreLog                  // reads all announcements of a view
	restoreNewest               // finds the newest checkpoint
	restoreCreate               // creates the agreement
	restoreConfirm              // reads whether the view is still the current one
	restoreWait                 // waits for the store
)

// restoreTask is of one view, so that late answers about another are dropped.
func (m *Machine) restoreTask() Task { return Task{OfRestore, SaveID{View: m.view.now.Digest}} }

// wantRestore begins a restore; without a view it begins when there is one.
func (m *Machine) wantRestore() {
	m.restore.wanted = true
	if m.view.now.Digest != "" && m.active() && m.restore.phase == restoreIdle {
		m.beginRestore()
	}
}

func (m *Machine) beginRestore() {
	m.restore.rounds = 0
	m.readRounds(0)
}

// looked is the view whose agreements are read.
func (m *Machine) looked() string {
	if m.restore.at == 0 {
		return m.view.now.Digest
	}
	return m.view.now.Former[m.restore.at-1]
}

func (m *Machine) readRounds(at int) {
	m.restore.phase, m.restore.at = restoreRounds, at
	m.do(Action{Do: Gather, For: m.restoreTask(), Key: roundsPrefix(m.looked())})
}

func (m *Machine) waitRestore() {
	m.restore.phase = restoreWait
	m.wait(m.restoreTask(), m.cfg.Retry)
}

func (m *Machine) restoreAnswered(e Event) {
	switch {
	case !m.active():
		m.restore.phase = restoreIdle
	case m.restore.phase == restoreRounds && e.Outcome == OK:
		m.roundsWereRead(e.Records)
	case m.restore.phase == restoreLog && e.Outcome == OK:
		m.logForRestore(e.Records)
	case m.restore.phase == restoreNewest:
		m.newestFound(e)
	case m.restore.phase == restoreConfirm && e.Outcome == OK:
		m.confirmed(e)
	case m.restore.phase == restoreCreate && e.Outcome == OK:
		m.confirm(m.restore.mine)
	case m.restore.phase == restoreCreate && e.Outcome != Unavailable:
		m.beginRestore() // another was first, or nobody knows
	case m.restore.phase != restoreIdle && m.restore.phase != restoreWait:
		m.waitRestore()
	}
}

// roundsWereRead looks for the last agreement of a view.
func (m *Machine) roundsWereRead(records []Record) {
	m.restore.last = Agreement{}
	for _, r := range records {
		a, err := DecodeAgreement(r.Body)
		if r.Outcome != OK || err != nil || r.Key != roundKey(m.looked(), a.Round) || a.View != m.looked() {
			m.unreadable(r.Key, err)
			m.waitRestore()
			return
		}
		if a.Round > m.restore.last.Round {
			m.restore.last = a
		}
	}
	if m.restore.at == 0 {
		m.restore.rounds = m.restore.last.Round
	}
	m.restore.phase = restoreLog
	m.do(Action{Do: Gather, For: m.restoreTask(), Key: logPrefix(m.looked())})
}

// logForRestore follows the last agreement, unless a save was announced that the
// trainer wrote after it: then all members had restored it, and this is a new round.
// A view without either says nothing, and the view before it is looked at: a member
// may have restored there already, which is still a member. A member that restored
// this round before restores the same step in a new round, so that what its trainer
// writes now is not taken for what it wrote before.
func (m *Machine) logForRestore(records []Record) {
	last := m.restore.last
	for _, r := range records {
		if a, err := DecodeAnnouncement(r.Body); r.Outcome == OK && err == nil && a.Round >= last.Round {
			m.findNewest()
			return
		}
	}
	switch {
	case last.Round > m.restore.round && m.restore.at == 0:
		m.confirm(last)
	case last.Round > 0:
		m.propose(Found{last.Step, last.Dir, last.Digest})
	case m.restore.at < len(m.view.now.Former):
		m.readRounds(m.restore.at + 1)
	default:
		m.findNewest()
	}
}

func (m *Machine) findNewest() {
	m.restore.phase = restoreNewest
	m.do(Action{Do: Newest, For: m.restoreTask()})
}

func (m *Machine) newestFound(e Event) {
	switch e.Outcome {
	case OK:
		m.propose(e.Found)
	case NotExist:
		m.propose(Found{Step: Nothing})
	default:
		m.waitRestore()
	}
}

// propose creates the agreement of the next round.
func (m *Machine) propose(found Found) {
	m.restore.mine = Agreement{
		Header: Header{APIVersion: apiVersion, Kind: kindAgreement}, View: m.view.now.Digest, Round: m.restore.rounds + 1,
		Step: found.Step, Dir: found.Dir, Digest: found.Digest, By: m.cfg.Index,
	}
	if !m.on(8) {
		m.confirm(m.restore.mine)
		return
	}
	m.restore.phase = restoreCreate
	m.do(Action{Do: Create, For: m.restoreTask(), Key: roundKey(m.view.now.Digest, m.restore.mine.Round), Body: encode(m.restore.mine)})
}

// confirm reads the current view again. Whoever decides in a later view has written
// that view first and reads this agreement afterwards, or this member reads that view.
func (m *Machine) confirm(a Agreement) {
	m.restore.mine, m.restore.phase = a, restoreConfirm
	m.do(Action{Do: Read, For: m.restoreTask(), Key: ViewKey})
}

func (m *Machine) confirmed(e Event) {
	now, err := DecodeView(e.Body)
	if err != nil || now.Digest != m.view.now.Digest {
		m.waitRestore() // adopting the new view begins anew
		return
	}
	m.restore.phase, m.restore.wanted, m.restore.round = restoreIdle, false, m.restore.mine.Round
	m.tell(Report{Topic: RestoreAgreed, Agreement: m.restore.mine, Step: m.restore.mine.Step})
}
