package window

import (
	"maps"
	"slices"
	"time"
)

// scans schedules the scans of the directories, which find out what readers did through the file
// protocol, and remembers the foreign files in ready/. A scan runs at a fixed time, or earlier if
// one was requested. Scanning large directories takes long, so the pauses between scans are
// multiples of the time that the last one took. The zero value has a scan due at once. The window's
// mutex guards it.
type scans struct {
	at        time.Time // of the next scan
	soon      time.Time // earliest time of a requested scan
	requested bool
	foreign   map[string]bool // foreign files in ready/
}

// request asks for a scan soon.
func (s *scans) request() { s.requested = true }

// due reports whether to scan now. Otherwise it sets alarm to the time of the next scan.
func (s *scans) due(now time.Time, alarm func(time.Time)) bool {
	at := s.at
	if s.requested && s.soon.Before(at) {
		at = s.soon
	}
	if now.Before(at) {
		alarm(at)
		return false
	}
	s.requested = false
	return true
}

// done schedules the next scan after one that ran from began to now.
func (s *scans) done(began, now time.Time) {
	s.at = now.Add(max(pollEvery, 20*now.Sub(began)))
	s.soon = now.Add(max(pollEvery/50, 5*now.Sub(began)))
}

// saw stores the foreign files that a scan found, and returns those that the last one did not find.
func (s *scans) saw(names []string) (added []string) {
	foreign := make(map[string]bool, len(names))
	for _, name := range names {
		foreign[name] = true
		if !s.foreign[name] {
			added = append(added, name)
		}
	}
	s.foreign = foreign
	return added
}

// foreignNames returns the names of the foreign files, sorted; not nil.
func (s *scans) foreignNames() []string {
	names := slices.AppendSeq(make([]string, 0, len(s.foreign)), maps.Keys(s.foreign))
	slices.Sort(names)
	return names
}
