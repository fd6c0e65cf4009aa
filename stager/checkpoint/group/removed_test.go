package group

import (
	"slices"
	"testing"
)

// topics returns the topics of a machine's reports.
func topics(actions []Action) (all []Topic) {
	for _, a := range actions {
		if a.Do == Tell {
			all = append(all, a.Report.Topic)
		}
	}
	return all
}

// waiting returns a member that has created its part of a save and waits for COMMIT.json.
func waiting(t *testing.T) (*Machine, *save) {
	t.Helper()
	m, err := New(Config{Job: "job-a", Index: 1, Count: 2, Boot: "b1"})
	if err != nil {
		t.Fatal(err)
	}
	boots := []string{"b0", "b1"}
	v := View{Job: "job-a", Count: 2, Boots: boots, Digest: digestOf("job-a", boots)}
	m.member.phase, m.view.now = memberBeating, v
	m.saves = []save{newSave(Announcement{View: v.Digest, Save: 1, Step: 7, Writing: 1, Scope: ScopeJob}, v)}
	m.enter(&m.saves[0], saveWatch)
	m.log = logging{phase: logRead, next: 2}
	return m, &m.saves[0]
}

// A save was committed and then removed by retention before a member read the COMMIT. The member
// reported it as abandoned. That is correct only when nothing later is committed.
func TestSaveThatRetentionRemoved(t *testing.T) {
	for _, tt := range []struct {
		name  string
		found Event
		want  Topic
	}{
		{"a later step is committed", Event{Outcome: OK, Found: Found{Step: 9}}, Removed},
		{"an earlier step is committed", Event{Outcome: OK, Found: Found{Step: 5}}, Abandoned},
		{"nothing is committed", Event{Outcome: NotExist}, Abandoned},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m, s := waiting(t)
			s.overdue = true
			task := s.task()
			m.Step(Event{What: Fired, For: task})                            // COMMIT.json
			m.Step(Event{What: Answer, For: task, Outcome: NotExist})        // all parts
			m.Step(Event{What: Answer, For: task, Outcome: OK})              // COMMIT.json again
			got := m.Step(Event{What: Answer, For: task, Outcome: NotExist}) // the newest checkpoint
			if len(got) != 1 || got[0].Do != Newest {
				t.Fatalf("got %+v, want a look for the newest checkpoint", got)
			}
			e := tt.found
			e.What, e.For = Answer, task
			if got := topics(m.Step(e)); !slices.Equal(got, []Topic{tt.want}) {
				t.Errorf("got the reports %v, want %v", got, tt.want)
			}
			if len(m.Open()) != 0 {
				t.Errorf("got %v open, want none", m.Open())
			}
		})
	}
}

// The next announcement implies that earlier saves are finished. A member that polled only at its
// own pace found them removed when saves followed quickly.
func TestAnnouncementEndsWaitForCommit(t *testing.T) {
	m, s := waiting(t)
	next := s.what
	next.Header, next.Save, next.Step = Header{APIVersion: apiVersion, Kind: kindAnnouncement}, 2, 8
	reads := func(actions []Action) bool {
		return slices.ContainsFunc(actions, func(a Action) bool { return a.Do == Read && a.Key == "step-00000007/COMMIT.json" })
	}
	if got := m.Step(Event{What: Answer, For: m.logTask(), Outcome: OK, Body: encode(next)}); !reads(got) {
		t.Errorf("got %+v, want that COMMIT.json of step 7 is read", got)
	}
}
