package group

import (
	"encoding/json"
	"time"
)

// Config configures a Machine. Zero durations mean the defaults.
type Config struct {
	Job   string // identity from the scheduler
	Index int    // of this node
	Count int    // number of nodes
	Boot  string // random, stored on the pod's volume
	Pod   string // this run of the pod; empty: unknown
	// Conflict selects the handling of another save's COMMIT of the same step.
	Conflict    Conflict
	Lease       time.Duration // how long a record of another job must be unchanged
	Beat        time.Duration // between heartbeats
	Retry       time.Duration // after a store was unavailable
	PollMin     time.Duration // first wait for an announcement, a view or a COMMIT
	PollMax     time.Duration // longest such wait
	Stagger     time.Duration // delay per index, so that lower indices go first
	TakeOver    time.Duration // how long COMMIT.json may be missing before others take over
	Patience    time.Duration // how long a save of a former view is watched
	QuietPeriod time.Duration // how long a node without files waits before it reports so
}

// Conflict selects the handling of another save's COMMIT of the same step.
type Conflict string

// The values of Conflict.
const (
	ConflictFail      Conflict = "fail"
	ConflictOverwrite Conflict = "overwrite"
	ConflictSuffix    Conflict = "suffix"
)

// complete checks a Config and fills in the defaults. With more nodes, each member polls less
// often, so that all of them together make at most about 50 requests per second while nothing is
// saved.
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

// SaveID identifies a save.
type SaveID struct {
	View   string
	Number int
}

// Task identifies the purpose of an Action. The Event with its result carries the same Task. A
// task has one action at a time: either a request or a timer.
type Task struct {
	Of   Concern
	Save SaveID // of OfSave; of OfLog only its View
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

// Verb is the operation of an Action.
type Verb uint8

// The operations. Each except Wait and Tell results in an Event with What == Answer.
const (
	Read    Verb = iota + 1 // read Key
	Create                  // create Key with Body if it is absent
	Replace                 // replace Key with Body if it exists in Version
	Gather                  // list the keys that begin with Key, and read each
	// Look checks the data that Parts name. The outcome is OK when all exist, NotExist when
	// something is missing, and Corrupt with Why when Parts make no valid COMMIT.json.
	Look
	// Commit joins Parts to a COMMIT.json with Joined, and creates Key, or replaces it if Version
	// is not empty. The outcome is Corrupt under the same condition as for Look.
	Commit
	// Scan looks for this node's files of Save after the announcement was read. It completes when
	// all are closed and unchanged. The outcome is OK when files exist and a snapshot holds them,
	// NotExist when there are none, and Changed when they are lost. Files of the step that belong
	// to another view, round or writing also count as lost, because this node has files.
	Scan
	// Upload sends the snapshot for Save. The outcome is OK with the part's payload in Body when
	// it is durable, or Changed when it is lost.
	Upload
	// Newest finds the newest valid checkpoint. The outcome is OK with Found, or NotExist. For a
	// Restorer, it excludes contents that Bad names, and all steps but Step if that is not
	// [Nothing]. Since lists what was committed after Past.
	Newest
	// Last reads the last agreement below Key. The outcome is OK with Body, or NotExist.
	Last
	// Fetch restores Past. The outcome is OK, or Corrupt when the checkpoint is damaged, removed
	// or another one.
	Fetch
	// Wait replaces the timer of the task. When it fires, the Event has What == Fired.
	Wait
	// Tell reports something to the user.
	Tell
)

// Action is an operation that the caller must execute.
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

// Outcome is the result of a request.
type Outcome uint8

// The outcomes.
const (
	OK          Outcome = iota + 1
	Exists              // Create: the key already exists
	Changed             // Replace: the key has another version; Scan, Upload: the files are lost
	NotExist            // the key, data or files do not exist
	Unknown             // the response was lost: a write may have happened, or may happen later
	Unavailable         // nothing happened; retry later
	Corrupt             // the bytes cannot be read, or are invalid
	Denied              // Create, Replace: this process has no write permission; nothing happened
)

// What is the kind of an Event.
type What uint8

// The kinds of events.
const (
	Start    What = iota + 1 // once, first
	Leave                    // the process exits in order
	Answer                   // a request completed
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

// Event is the input of a state machine.
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
	Why     string      // for users: of Look and Commit with Corrupt, of Scan with Changed
	// Provisional belongs to Scan and Upload: no sign proves that the files are complete.
	Provisional bool
}

// Sign is how a node knows that its checkpoint is complete.
type Sign uint8

// The signs, weakest first.
const (
	SignQuiet Sign = iota + 1 // nothing changed for a while
	SignOwn                   // conclusive for this node's files
	SignJob                   // conclusive for all nodes' files
)

// Local is a checkpoint that is complete on this node and held in a snapshot.
type Local struct {
	View    string // when its first file appeared; see Machine.Position
	Round   int    // the number of the job's last restore agreement then; 0: none
	Step    int64
	Writing int // how often the step was written in this round, from 1; see Writings
	Edition int // which files of the writing, from 1: files may be added after it was saved
	Sign    Sign
}

// Topic is the kind of a Report.
type Topic uint8

// The topics.
const (
	Registered    Topic = iota + 1
	Refused             // Who: the live job; final
	Fenced              // Who: the boot id that replaced this member; final
	Unreadable          // Key, Why: a record that cannot be read and is left unchanged
	Viewed              // View: this member is now in it
	Waiting             // Missing: the indices that a view, a save or a restore waits for
	Announced           // Save: will be saved next
	Skipped             // Local: will not be saved
	Committed           // Save: safe, unless it is Provisional
	Abandoned           // Save, Why: will not be committed
	Superseded          // Save: a later save of the step is committed
	Removed             // Save: it was removed, and a later step is committed
	Conflicted          // Save: the step has another COMMIT
	Damaged             // Save, Why: what the nodes saved makes no COMMIT.json, or vanished while it was written
	RestoreAgreed       // Agreement: the checkpoint to restore; final
	RestoreNone         // there is nothing to restore; Agreement: the agreement on that; final
	RestoreAlone        // Why: no agreement can be made; final
)

// Report is a message for the user.
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
	// Provisional belongs to Committed and Superseded: no sign proves that the content of the
	// COMMIT is complete, so it must not be reported safe.
	Provisional bool
}

// Machine is the state machine of one member. It is not safe for concurrent use.
type Machine struct {
	cfg Config
	off rules // disabled by tests

	member membership
	view   viewing
	log    logging
	order  []WritingOf // complete on this node, oldest first
	ready  []held      // not announced
	saves  []save      // open

	out []Action
}

// rules is a set of rules of the protocol.
type rules uint16

func rule(n int) rules { return 1 << n }

// Parts of rules that have a number of their own.
const (
	ruleOfRewrites = 12 // part of rule 5: writings of a step are in the order of their numbers
	ruleOfOrder    = 13 // part of rule 5: checkpoints are in the order in which they were written
	ruleOfWritings = 14 // part of rule 4: nodes compare which writing of a step they hold
	ruleOfLeaving  = 15 // part of rule 7: a node that has left brings no more parts
)

func (m *Machine) on(n int) bool { return m.off&rule(n) == 0 }

// New returns the machine of a member, or an error about its Config.
func New(cfg Config) (*Machine, error) {
	if err := cfg.complete(); err != nil {
		return nil, err
	}
	return &Machine{cfg: cfg}, nil
}

// Position returns the view of the snapshots that the node takes from now on. ok is false while
// there is no view; nothing can be saved then.
func (m *Machine) Position() (view string, ok bool) {
	return m.view.now.Digest, m.view.now.Digest != ""
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

// HasLeft reports whether Leave is done: this member has recorded that it left, or is not to do so.
func (m *Machine) HasLeft() bool {
	return m.member.phase == memberLeft || m.member.phase == memberRefused || m.member.phase == memberFenced
}

// Step processes an event and returns the resulting actions. An event that does not match a
// pending task has no effect.
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

// active reports whether this member may start new work.
func (m *Machine) active() bool { return m.member.phase >= memberBeating }

func (m *Machine) do(a Action) { m.out = append(m.out, a) }

func (m *Machine) wait(t Task, after time.Duration) { m.do(Action{Do: Wait, For: t, After: after}) }

func (m *Machine) report(r Report) { m.do(Action{Do: Tell, Report: r}) }

// unreadable reports a record that cannot be used and is left unchanged. A nil err means that its
// bytes could not be read, or are those of another record.
func (m *Machine) unreadable(key string, err error) {
	why := "it is not the record that belongs there"
	if err != nil {
		why = err.Error()
	}
	m.report(Report{Topic: Unreadable, Key: key, Why: why})
}

// payload returns body as the payload of a part, or nil unless it is valid JSON.
func payload(body []byte) json.RawMessage {
	if len(body) == 0 || !json.Valid(body) {
		return nil
	}
	return json.RawMessage(body)
}
