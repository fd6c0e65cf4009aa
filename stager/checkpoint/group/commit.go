package group

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

func (s *save) commitKey() string { return StepDir(s.what.Step, s.suffix) + "/" + commitName }

// watchDelay returns how long to wait for the other members. Index 0 waits for their parts, a
// short time. The others wait for COMMIT.json, longer each time.
func (m *Machine) watchDelay(s *save) time.Duration {
	if m.cfg.Index == 0 {
		s.delay = min(max(s.waited/256, m.cfg.PollMin/4), 5*m.cfg.PollMin)
	} else {
		s.delay = min(max(2*s.delay, 4*m.cfg.PollMin+time.Duration(m.cfg.Count)*m.cfg.PollMin/100), m.cfg.PollMax)
	}
	return s.delay
}

func (m *Machine) commitAnswered(s *save, e Event) {
	switch s.phase {
	case saveRead:
		m.commitWasRead(s, e)
	case saveLookOwn:
		if e.Outcome != OK {
			m.finish(s, Damaged, "data of this node vanished while COMMIT.json was written")
			return
		}
		m.finish(s, Committed, "")
	case saveGather:
		m.gathered(s, e)
	case saveAbsent:
		if rec, err := DecodeMember(e.Body); e.Outcome == OK && err == nil && rec.Boot == s.view.Boots[s.absent] && rec.State == Left {
			s.left = true
			m.enter(s, saveGather) // it may have brought its part before it left
			return
		}
		m.enter(s, saveWatch)
	case saveLook:
		if m.invalid(s, e) {
			return
		}
		if e.Outcome != OK {
			m.finish(s, Abandoned, "data that a part names is missing")
			return
		}
		m.enter(s, saveBefore)
	case saveBefore:
		m.beforeCommit(s, e)
	case saveWrite:
		if m.invalid(s, e) {
			return
		}
		if e.Outcome == OK {
			s.guess = s.joined(m.cfg.Job).Provisional
			m.enter(s, saveGatherAgain)
			return
		}
		m.enter(s, saveBefore) // another member wrote it, or the result of this member's write is unknown
	case saveGatherAgain:
		_, digests, _, _ := m.sort(s, e.Records)
		if e.Outcome != OK || !slices.Equal(digests, s.digests) {
			m.finish(s, Damaged, "a part changed or vanished while COMMIT.json was written")
			return
		}
		m.enter(s, saveLookAgain)
	case saveNewest:
		if e.Outcome == OK && e.Found.Step > s.what.Step {
			m.finish(s, Removed, "")
			return
		}
		m.finish(s, Abandoned, "its parts were removed")
	case saveLookAgain:
		if e.Outcome != OK {
			m.finish(s, Damaged, "data vanished while COMMIT.json was written")
			return
		}
		m.finish(s, Committed, "")
	}
}

// invalid ends a save whose parts make no valid COMMIT.json. Parts are never replaced, so a retry
// cannot help.
func (m *Machine) invalid(s *save, e Event) bool {
	if e.Outcome == Corrupt {
		m.finish(s, Damaged, "its parts make no valid COMMIT.json: "+e.Why)
	}
	return e.Outcome == Corrupt
}

// scanSooner reads COMMIT.json of the open saves of the view now. The member that announces the
// next save has finished them, and retention may remove them when the next ones are committed.
func (m *Machine) scanSooner() {
	if m.cfg.Index == 0 { // its wait is short
		return
	}
	for i := range m.saves {
		if s := &m.saves[i]; s.phase == saveWatch && s.id.View == m.view.now.Digest {
			m.enter(s, saveRead)
		}
	}
}

// commitWasRead handles the COMMIT.json that a member read while it waits for another to commit.
func (m *Machine) commitWasRead(s *save, e Event) {
	joined, err := DecodeJoined(e.Body)
	switch {
	case e.Outcome == OK && err == nil && joined != nil && joined.View == s.id.View && joined.Save == s.id.Number:
		s.guess = joined.Provisional
		m.enter(s, saveLookOwn)
	case e.Outcome == OK && err == nil && joined != nil && joined.View == s.id.View && joined.Save > s.id.Number:
		s.guess = joined.Provisional
		m.finish(s, Superseded, "a later save of the step is committed")
	case s.removed:
		m.enter(s, saveNewest)
	case s.overdue || m.patienceOver(s):
		m.enter(s, saveGather)
	default:
		m.enter(s, saveWatch)
	}
}

// absentAfter returns how long a part may be missing before its node's member record is read, and
// read again. It grows with the number of members, each of which reads it.
func (m *Machine) absentAfter() time.Duration {
	return m.cfg.TakeOver + time.Duration(m.cfg.Count)*m.cfg.PollMin*6/100
}

func (m *Machine) patienceOver(s *save) bool { return s.old && s.waited >= m.cfg.Patience }

// gathered continues with the parts that exist.
func (m *Machine) gathered(s *save, e Event) {
	if e.Outcome != OK {
		m.enter(s, saveWatch)
		return
	}
	parts, digests, missing, failed := m.sort(s, e.Records)
	enough := len(missing) == 0 || !m.on(6) && len(missing) < len(parts)
	switch {
	case failed != "":
		m.finish(s, Abandoned, failed)
	case enough:
		s.parts, s.digests = parts, digests
		m.enter(s, saveLook)
	case m.patienceOver(s):
		m.finish(s, Abandoned, fmt.Sprintf("the members changed, and the parts of nodes %s are missing", words(missing)))
	case s.left && slices.Contains(missing, s.absent):
		m.finish(s, Abandoned, fmt.Sprintf("node %d has left the job without its part", s.absent))
	case slices.Contains(missing, m.cfg.Index): // or the step is committed, and they are no longer needed
		s.removed = true
		m.enter(s, saveRead)
	default:
		if now := words(missing); s.missing != now {
			s.missing = now
			m.report(Report{Topic: Waiting, Save: s.id, Step: s.what.Step, Missing: missing})
		}
		s.left = false
		if s.waited-s.asked >= m.absentAfter() && m.on(ruleOfLeaving) {
			s.absent, s.asked = missing[0], s.waited
			m.enter(s, saveAbsent)
			return
		}
		m.enter(s, saveWatch)
	}
}

func words(indices []int) string {
	text := make([]string, len(indices))
	for i, index := range indices {
		text[i] = strconv.Itoa(index)
	}
	return strings.Join(text, " ")
}

// sort sorts the parts of a save by index. A part is valid if it belongs to this save and to the
// member that the view has at its index. failed is the reason why the save cannot complete: a
// node reported it, or its part cannot be read. Parts are never replaced.
func (m *Machine) sort(s *save, records []Record) (parts []Part, digests []string, missing []int, failed string) {
	parts, digests = make([]Part, s.view.Count), make([]string, s.view.Count)
	for _, r := range records {
		p, err := DecodePart(r.Body)
		switch {
		case r.Outcome != OK || err != nil:
			m.unreadable(r.Key, err)
			if i, ok := s.partOf(r.Key); ok {
				failed = fmt.Sprintf("the part of node %d cannot be read", i)
			}
		case p.View != s.id.View || p.Save != s.id.Number || p.Step != s.what.Step || p.Count != s.view.Count ||
			s.view.Boots[p.Index] != p.Boot || r.Key != PartKey(s.what.Step, s.id, p.Index):
			if i, ok := s.partOf(r.Key); ok {
				failed = fmt.Sprintf("what is in the place of the part of node %d is not of this save", i)
			}
		case p.Failed != "":
			failed = p.Failed
		default:
			parts[p.Index], digests[p.Index] = p, digestBytes(r.Body)
		}
	}
	for i, digest := range digests {
		if digest == "" {
			missing = append(missing, i)
		}
	}
	return parts, digests, missing, failed
}

// partOf returns the node whose part of this save has the given key.
func (s *save) partOf(key string) (index int, ok bool) {
	id, index, ok := ParsePartKey(strings.TrimPrefix(key, StepDir(s.what.Step, 0)+"/"))
	return index, ok && id == s.id && index < s.view.Count && key == PartKey(s.what.Step, s.id, index)
}

// joined returns the group object of this save's COMMIT.json.
func (s *save) joined(job string) Joined {
	j := Joined{Job: job, View: s.id.View, Seq: s.view.Seq, Save: s.id.Number, Count: s.view.Count, Parts: s.digests}
	for _, p := range s.parts {
		j.Provisional = j.Provisional || p.Provisional
	}
	return j
}

// beforeCommit decides how to proceed, based on the existing COMMIT.json.
func (m *Machine) beforeCommit(s *save, e Event) {
	if e.Outcome == NotExist {
		s.version = ""
		m.enter(s, saveWrite)
		return
	}
	there, err := DecodeJoined(e.Body)
	if e.Outcome != OK || err != nil {
		m.unreadable(s.commitKey(), err)
		m.finish(s, Conflicted, "the step has a COMMIT.json that cannot be read")
		return
	}
	sameJob := there != nil && there.Job == m.cfg.Job
	s.guess = there != nil && there.Provisional
	switch {
	case there != nil && there.View == s.id.View && there.Save == s.id.Number:
		m.enter(s, saveGatherAgain)
	case sameJob && !there.Provisional && there.Save < s.id.Number && m.sameFiles(there.Save, s.what) && there.View == s.id.View:
		m.finish(s, Superseded, "the same files are committed by an earlier save")
	case sameJob && (there.Seq > s.view.Seq || there.View == s.id.View && there.Save > s.id.Number):
		m.finish(s, Superseded, "a later save of the step is committed")
	case m.cfg.Conflict == ConflictOverwrite, sameJob && there.Provisional && there.View == s.id.View:
		s.version = e.Version
		m.enter(s, saveWrite)
	case m.cfg.Conflict == ConflictSuffix:
		s.suffix++
		m.enter(s, saveBefore)
	default:
		m.finish(s, Conflicted, "the step has another COMMIT.json")
	}
}
