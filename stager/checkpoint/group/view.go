package group

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// viewing is the state of forming and following the view.
type viewing struct {
	phase   viewPhase
	now     View // the view of this member; no Digest: none
	missing string
	want    View // being written by index 0
	delay   time.Duration
}

type viewPhase uint8

const (
	viewIdle   viewPhase = iota
	viewGather           // index 0 reads all member records
	viewRead             // reads the view
	viewWrite            // index 0 writes it
	viewWait             // waits
)

var ofView = Task{Of: OfView}

// keeper reports whether this member forms the views.
func (m *Machine) keeper() bool { return m.cfg.Index == 0 }

func (m *Machine) pollView() {
	switch {
	case !m.active():
		m.view.phase = viewIdle
	case m.keeper():
		m.view.phase = viewGather
		m.do(Action{Do: Gather, For: ofView, Key: MembersPrefix})
	default:
		m.readView()
	}
}

func (m *Machine) readView() {
	m.view.phase = viewRead
	m.do(Action{Do: Read, For: ofView, Key: ViewKey})
}

// waitView waits for the next poll. Without a view the delay grows each time; with a view it is
// one heartbeat.
func (m *Machine) waitView() {
	m.view.phase = viewWait
	m.view.delay = min(max(2*m.view.delay, m.cfg.PollMin), m.cfg.Beat)
	m.wait(ofView, m.view.delay)
}

func (m *Machine) viewAnswered(e Event) {
	if !m.active() {
		m.view.phase = viewIdle
		return
	}
	switch m.view.phase {
	case viewGather:
		if e.Outcome != OK {
			m.waitView()
			return
		}
		m.formView(e.Records)
	case viewRead:
		m.viewWasRead(e)
	case viewWrite:
		switch e.Outcome {
		case OK:
			m.adopt(m.view.want)
			m.waitView()
		case Unavailable:
			m.waitView()
		default:
			m.readView()
		}
	}
}

// formView compares the members with the view that index 0 knows.
func (m *Machine) formView(records []Record) {
	boots := make([]string, m.cfg.Count)
	var others []string // members with another count
	for _, r := range records {
		rec, err := DecodeMember(r.Body)
		switch {
		case r.Outcome != OK || err != nil:
			m.unreadable(r.Key, err)
		case rec.Job == m.cfg.Job && rec.Count == m.cfg.Count && r.Key == memberKey(rec.Index):
			boots[rec.Index] = rec.Boot
		case rec.Job == m.cfg.Job && rec.State != Left:
			others = append(others, fmt.Sprintf("node %d, which counts %d nodes and not %d", rec.Index, rec.Count, m.cfg.Count))
		}
	}
	var missing []int
	for i, boot := range boots {
		if boot == "" {
			missing = append(missing, i)
		}
	}
	switch {
	case len(missing) > 0 || boots[0] != m.cfg.Boot:
		m.waitsFor(missing, others)
		m.waitView()
	case digestOf(m.cfg.Job, boots) == m.view.now.Digest:
		m.waitView()
	default:
		m.view.missing = ""
		m.view.want = View{
			Header: Header{APIVersion: apiVersion, Kind: kindView}, Job: m.cfg.Job, Count: m.cfg.Count,
			Digest: digestOf(m.cfg.Job, boots), Boots: boots,
		}
		m.readView()
	}
}

// waitsFor reports the members that a view lacks, and those with another count, once for each
// set.
func (m *Machine) waitsFor(missing []int, others []string) {
	words := make([]string, len(missing))
	for i, index := range missing {
		words[i] = strconv.Itoa(index)
	}
	why := ""
	if len(others) > 0 {
		why = others[0]
	}
	if now := strings.Join(append(words, why), " "); now != m.view.missing && len(missing) > 0 {
		m.view.missing = now
		m.report(Report{Topic: Waiting, Missing: missing, Why: why})
	}
}

func (m *Machine) viewWasRead(e Event) {
	var rec View
	var err error
	switch e.Outcome {
	case OK:
		rec, err = DecodeView(e.Body)
	case NotExist:
	case Corrupt:
		m.unreadable(ViewKey, nil)
		m.waitView()
		return
	default:
		m.waitView()
		return
	}
	switch {
	case err != nil:
		m.unreadable(ViewKey, err)
		m.waitView()
	case m.keeper() && rec.Digest != m.view.want.Digest:
		m.view.want.Seq, m.view.want.Former = rec.Seq+1, nil
		if rec.Job == m.cfg.Job {
			former := slices.DeleteFunc(append([]string{rec.Digest}, rec.Former...), func(d string) bool { return d == m.view.want.Digest })
			m.view.want.Former = former[:min(len(former), maxFormer)]
		}
		m.view.phase = viewWrite
		a := Action{Do: Replace, For: ofView, Key: ViewKey, Body: encode(m.view.want), Version: e.Version}
		if e.Outcome == NotExist {
			a.Do = Create
		}
		m.do(a)
	default:
		if rec.Job == m.cfg.Job && rec.Count == m.cfg.Count && rec.Boots[m.cfg.Index] == m.cfg.Boot {
			m.adopt(rec)
		}
		m.waitView()
	}
}

// adopt makes a view the current one.
func (m *Machine) adopt(v View) {
	if v.Digest == m.view.now.Digest {
		return
	}
	m.endView("the members of its view changed")
	v.Boots = slices.Clone(v.Boots)
	m.view.now, m.view.delay = v, 0
	if m.on(2) {
		m.skip(func(h *held) bool { return h.View != v.Digest })
		m.forgetOrder()
	}
	m.report(Report{Topic: Viewed, View: v})
	m.startLog()
}
