package soak

import (
	"fmt"

	"github.com/stager-dev/stager/e2e/trial"
)

// ledger counts what the readers of one window wrote down, epoch by epoch.
type ledger struct {
	shards map[string]string // name → SHA-256
	epochs map[int]map[string]*tally
	ended  int // epochs whose end a reader has seen
	done   int // those of them that are judged

	delivered, acked, redelivered, late int
	broken                              []string
}

// tally is one shard in one epoch.
type tally struct {
	took, acked int
	heard       bool // an acknowledgement was sent
}

func newLedger(shards map[string]string) *ledger {
	return &ledger{shards: shards, epochs: make(map[int]map[string]*tally)}
}

// judge judges the epochs whose end had been seen before the last records were noted: what one reader
// wrote before an end may be read after another's record of it.
func (l *ledger) judge(ended int) {
	for ; l.done < ended; l.done++ {
		for name := range l.shards {
			if of := l.epochs[l.done][name]; of == nil || of.took == 0 || !of.heard {
				l.breach("epoch %d has ended, and no reader has acknowledged %s", l.done, name)
			}
		}
		delete(l.epochs, l.done)
	}
}

// note adds events of one reader.
func (l *ledger) note(events []trial.Event) {
	for _, e := range events {
		if e.What == "end" {
			l.ended = max(l.ended, e.Epoch+1)
			continue
		}
		name := trial.ShardName(e.Name)
		if e.Epoch < l.done {
			if e.What == "took" {
				l.breach("%s was delivered after the end of epoch %d", name, e.Epoch)
			}
			continue
		}
		if l.epochs[e.Epoch] == nil {
			l.epochs[e.Epoch] = make(map[string]*tally)
		}
		of := l.epochs[e.Epoch][name]
		if of == nil {
			of = new(tally)
			l.epochs[e.Epoch][name] = of
		}
		l.count(of, e, name)
	}
}

func (l *ledger) count(of *tally, e trial.Event, name string) {
	switch e.What {
	case "took":
		l.delivered++
		if of.took++; of.took > 1 {
			l.redelivered++
		}
		if want := l.shards[name]; e.SHA256 != want {
			l.breach("epoch %d: %s has SHA-256 %q, want %q", e.Epoch, name, e.SHA256, want)
		}
	case "acking":
		of.heard = true
	case "acked":
		l.acked++
		if of.acked++; of.acked > 1 {
			l.breach("epoch %d: %s was acknowledged %d times", e.Epoch, name, of.acked)
		}
	case "late":
		l.late++
	}
}

func (l *ledger) breach(format string, args ...any) {
	if len(l.broken) < 20 {
		l.broken = append(l.broken, fmt.Sprintf(format, args...))
	}
}
