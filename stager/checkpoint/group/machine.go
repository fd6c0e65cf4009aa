package group

import (
	"encoding/json"
	"time"
)

// Config says which member a Machine is. Zero durations mean the defaults.
type Config struct {
	Job   string // identity from the scheduler
	Index int    // of this node
	Count int    // of nodes
	Boot  string // random, kept on the pod's volume
	Pod   string // this run of the pod; empty: unknown
	// Conflict says what happens to another save's COMMIT of the same step.
	Conflict Conflict
	// View and Round are where this member was before its process restarted; see
	// [Machine.Position].
	View  string
	Round int

	Lease       time.Duration // how long a record of another job must stand still
	Beat        time.Duration // between heartbeats
	Retry       time.Duration // after a store was unavailable
	PollMin     time.Duration // first wait for an announcement, a view or a COMMIT
	PollMax     time.Duration // longest
	Stagger     time.Duration // by how much each index lets the one before go first
	TakeOver    time.Duration // how long COMMIT.json may be missing before others look
	Patience    time.Duration // how long a save of a former view is watched
	QuietPeriod time.Duration // how long a node without files waits before it says so
}

// Conflict says what happens to another save's COMMIT of the same step.
type Conflict string

// The conflicts.
const (
	ConflictFail      Conflict = "fail"
	ConflictOverwrite Conflict = "overwrite"
	ConflictSuffix    Conflict = "suffix"
)

// complete checks a Config and fills in the defaults. With more nodes members poll
// more rarely, so that all of them together make about 30 requests per second at most.
func (c *Config) complete() error {
	if err := checkIdentity(c.Job, c.Boot, c.Index, c.Count); err != nil {
		return err
	}
	set := func(d *time.Duration, def time.Duration) {
		if *d <= 0 {
			*d = def
		}
	}
	set(&c.Beat, max(15*time.Second, time.Duration(c.Count)*100*time.Millisecond))
	set(&c.Lease, 4*c.Beat)
	set(&c.Retry, 2*time.Second)
	set(&c.PollMin, time.Second)
	set(&c.PollMax, max(30*time.Second, time.Duration(c.Count)*60*time.Millisecond))
	set(&c.Stagger, 2*time.Second)
	set(&c.TakeOver, 15*time.Second)
	set(&c.Patience, time.Minute)
	set(&c.QuietPeriod, 10*time.Second)
	if c.Conflict == "" {
		c.Conflict = ConflictFail
	}
	return nil
}

// SaveID names a save.
type SaveID struct {
	View   string
	Number int
}

// Task is what an Action is done for. The Event that answers it carries the same
// Task. A task has one action at a time: either a request or a timer.
type Task struct {
	Of   Concern
	Save SaveID // of OfSave; of OfLog its View alone
}

// Concern is the kind of a Task.
type Concern uint8

// The concerns.
const (
	OfMember  Concern = iota + 1 // this node's member record
	OfView                       // the current view
	OfLog                        // announcements
	OfSave                       // one save
	OfRestore                    // what to restore; see Restorer
)

// Verb says what an Action does.
type Verb uint8

// The verbs. All but Wait and Tell are answered by an Event with What == Answer.
const (
	Read    Verb = iota + 1 // read Key
	Create                  // create Key with Body if it is absent
	Replace                 // replace Key with Body if it is there in Version
	Gather                  // list the keys that begin with Key, and read each
	// Look looks up the data that Parts name: OK when all is there, NotExist when
	// something is missing, Corrupt with Why when Parts make no valid COMMIT.json.
	Look
	// Commit joins Parts to a COMMIT.json with Joined, and creates Key, or replaces it
	// if Version is not empty. It answers Corrupt as Look does.
	Commit
	// Scan looks for this node's files of Save after the announcement was read. It
	// answers when all are closed and unchanged: OK when there are some and they are
	// held, NotExist when there are none, Changed when they are lost. Files of the
	// step that are of another view, round or writing are lost, too: this node has some.
	Scan
	// Upload sends what was held for Save and answers OK with the part's payload in
	// Body when it is durable, or Changed when it is lost.
	Upload
	// Newest finds the newest valid checkpoint: OK with Found, or NotExist. For a
	// Restorer it is none of the contents that Bad names, and of Step if that is not
	// [Nothing]; Since has what was committed after Past.
	Newest
	// Last reads the last agreement below Key: OK with Body, or NotExist.
	Last
	// Fetch restores Past: OK, or Corrupt when the checkpoint is damaged, gone or another.
	Fetch
	// Wait replaces the timer of the task. When it fires, the Event has What == Fired.
	Wait
	// Tell reports something to the user.
	Tell
)

// Action is something to do.
type Action struct {
	Do      Verb
	For     Task
	Key     string
	Body    []byte
	Version string
	After   time.Duration // Wait

	Save   Announcement // Scan, Upload, Look, Commit
	Parts  []Part       // Look, Commit
	Joined Joined       // Commit
	Report Report       // Tell
	Past   Agreement    // Newest, Fetch
	Step   int64        // Newest
	Bad    []string     // Newest
}

// Outcome is how a request ended.
type Outcome uint8

// The outcomes.
const (
	OK          Outcome = iota + 1
	Exists              // Create: the key is there already
	Changed             // Replace: the key has another version; Scan, Upload: the files are lost
	NotExist            // nothing there
	Unknown             // the reply was lost: a write may have happened, or happen yet
	Unavailable         // nothing happened; try later
	Corrupt             // the bytes cannot be read, or cannot be right
	Denied              // Create, Replace: this process may not write; nothing happened
)

// What says what an Event is.
type What uint8

// The events.
const (
	Start    What = iota + 1 // once, first
	Leave                    // the process ends in order
	Answer                   // a request ended
	Fired                    // a timer fired
	Complete                 // a checkpoint is complete on this node
	Expect                   // files of a new checkpoint appeared: poll sooner
)

// Record is one object that Gather read.
type Record struct {
	Key     string
	Body    []byte
	Version string
	Outcome Outcome // OK or Corrupt
}

// Found is the checkpoint that Newest found.
type Found struct {
	Step   int64
	Dir    string
	Digest string
}

// Event is something that happened.
type Event struct {
	What    What
	For     Task
	Outcome Outcome
	Version string // Read, Create, Replace, Commit
	Body    []byte // Read, Upload
	Records []Record
	Found   Found
	Since   []Candidate // Newest: committed after the Action's Past, newest first
	Local   Local       // Complete
	Why     string      // for people: of Look and Commit with Corrupt, of Scan with Changed
	// Provisional is that of Scan and Upload: no sign proves that the files are
	// complete.
	Provisional bool
}

// Sign says how a node knows that its checkpoint is complete.
type Sign uint8

// The signs, weakest first.
const (
	SignQuiet Sign = iota + 1 // nothing changed for a while
	SignOwn                   // conclusive for this node's files
	SignJob                   // conclusive for all nodes' files
)

// Local is a checkpoint that is complete and held on this node.
type Local struct {
	View    string // when its first file was held; see Machine.Position
	Round   int    // the same
	Step    int64
	Writing int // how often the step was written in this round, from 1; see Writings
	Edition int // which files of the writing, from 1: some may be added after it was saved
	Sign    Sign
}

// Topic is the kind of a Report.
type Topic uint8

// The topics.
const (
	Registered    Topic = iota + 1
	Refused             // Who: the job that is alive; final
	Fenced              // Who: the boot id that replaced this member; final
	Unreadable          // Key, Why: a record that cannot be read and stays as it is
	Viewed              // View: this member is in it now
	Waiting             // Missing: the indices that a view, a save or a restore waits for
	Announced           // Save: will be saved next
	Skipped             // Local: will not be saved
	Committed           // Save: safe, unless it is Provisional
	Abandoned           // Save, Why: will not be committed
	Superseded          // Save: a later save of the step is committed
	Removed             // Save: it is no longer there, and a later step is committed
	Conflicted          // Save: the step has another COMMIT
	Damaged             // Save, Why: what the nodes saved makes no COMMIT.json, or vanished while it was written
	RestoreAgreed       // Agreement: this is restored; final
	RestoreNone         // there is nothing to restore; Agreement: that was agreed on; final
	RestoreAlone        // Why: no agreement can be made; final
)

// Report is something that the user must know.
type Report struct {
	Topic     Topic
	Who       string
	Key       string
	View      View
	Save      SaveID
	Step      int64
	Missing   []int
	Why       string
	Local     Local
	Agreement Agreement
	// Provisional is of Committed and Superseded: no sign proves that what the COMMIT
	// holds is complete, so that it must not be reported safe.
	Provisional bool
}

// Machine is one member. It is not safe for concurrent use.
type Machine struct {
	cfg Config
	off rules // switched off by tests

	member membership
	view   viewing
	log    logging
	round  int
	ready  []held // not announced, in the order in which they became complete
	saves  []save // open

	out []Action
}

// rules is a set of rules of the protocol.
type rules uint16

func rule(n int) rules { return 1 << n }

// ruleOfWritings is that nodes compare which writing of a step they hold, a part of rule 4.
const ruleOfWritings = 14

func (m *Machine) on(n int) bool { return m.off&rule(n) == 0 }

// New returns the machine of a member, or an error about its Config.
func New(cfg Config) (*Machine, error) {
	if err := cfg.complete(); err != nil {
		return nil, err
	}
	return &Machine{cfg: cfg}, nil
}

// Position is where what the node holds from now on belongs: the view and the round.
// ok is false while there is no view, and then nothing can be saved.
func (m *Machine) Position() (view string, round int, ok bool) {
	return m.view.now.Digest, m.round, m.view.now.Digest != ""
}

// Open returns the saves that are neither committed nor abandoned.
func (m *Machine) Open() []Announcement {
	var open []Announcement
	for i := range m.saves {
		open = append(open, m.saves[i].what)
	}
	return open
}

// Announced returns the last announcements of the current view, oldest first.
func (m *Machine) Announced() []Announcement {
	known := make([]Announcement, len(m.log.known))
	for i := range m.log.known {
		known[i] = m.log.known[i].Announcement
	}
	return known
}

// HasLeft reports whether Leave is done.
func (m *Machine) HasLeft() bool { return m.member.phase == memberLeft }

// Step takes an event and returns the actions that follow. An event that nothing waits
// for has no effect.
func (m *Machine) Step(e Event) []Action {
	m.out = nil
	switch e.What {
	case Start:
		if m.member.phase == memberIdle {
			m.readMember()
		}
	case Leave:
		m.leave()
	case Complete:
		m.completed(e.Local)
	case Expect:
		m.log.delay = 0
		m.pokeLog()
	case Answer:
		m.answered(e)
	case Fired:
		m.fired(e.For)
	}
	m.forgetDone()
	return m.out
}

func (m *Machine) answered(e Event) {
	switch e.For.Of {
	case OfMember:
		m.memberAnswered(e)
	case OfView:
		m.viewAnswered(e)
	case OfLog:
		if e.For == m.logTask() {
			m.logAnswered(e)
		}
	case OfSave:
		if s := m.open(e.For.Save); s != nil {
			m.saveAnswered(s, e)
		}
	}
}

func (m *Machine) fired(t Task) {
	switch t.Of {
	case OfMember:
		m.memberFired()
	case OfView:
		if m.view.phase == viewWait {
			m.pollView()
		}
	case OfLog:
		if m.log.phase == logWait && t == m.logTask() {
			m.logFired()
		}
	case OfSave:
		if s := m.open(t.Save); s != nil {
			m.saveFired(s)
		}
	}
}

// active reports whether this member may begin something.
func (m *Machine) active() bool { return m.member.phase >= memberBeating }

func (m *Machine) do(a Action) { m.out = append(m.out, a) }

func (m *Machine) wait(t Task, after time.Duration) { m.do(Action{Do: Wait, For: t, After: after}) }

func (m *Machine) report(r Report) { m.do(Action{Do: Tell, Report: r}) }

// unreadable reports a record that cannot be used and stays as it is. Without err its bytes
// could not be read, or are those of another record.
func (m *Machine) unreadable(key string, err error) {
	why := "it is not the record that belongs there"
	if err != nil {
		why = err.Error()
	}
	m.report(Report{Topic: Unreadable, Key: key, Why: why})
}

// payload returns what stands in a part, which must be JSON.
func payload(body []byte) json.RawMessage {
	if len(body) == 0 || !json.Valid(body) {
		return nil
	}
	return json.RawMessage(body)
}
