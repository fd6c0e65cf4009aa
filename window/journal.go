package window

import (
	"bufio"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/stager-dev/stager/window/disk"
)

// The journal is a text file, a fact a line, each with its own sum, so that a line
// that was torn or overwritten is no fact and harms no other. Facts only add up:
// their order matters for leases alone.
//
//	plan "digest"                      what all of it is about; first
//	low E P                            all before is settled
//	ack E P "ID"                       settled, by this lease if any
//	span E P Q                         P to Q are settled
//	skip E P "name" "reason"           settled, by giving up
//	try E P attempts failures used     of a position that is not settled
//	recut                              the number of nodes has changed since the first epoch
//	lease "ID" "reader" E P            given
//	share "ID" "reader" E P GROUP      given to a group of several
//	gone "ID" E P                      ended without acknowledgement
//	part E P GROUP "ID"                acknowledged by a group of several
//	acked "ID"                         a lease that was acknowledged lately
//	reader "name" E                    was told all ends before epoch E
//	sum E P "digest" INODE TIME        what was verified of a file, and what tells it from others

// memory is what a journal tells.
type memory struct {
	low     seq
	settled map[seq]bool
	skipped []skip
	history map[seq]history
	leases  map[seq]grant
	shares  map[shareKey]grant
	parts   map[shareKey]bool
	acked   []string
	readers map[string]int
	sums    map[seq]staged
	recut   bool
	about   bool // it says that it is of this plan
}

type (
	skip struct {
		seq
		name, reason string
	}
	// history is what befell a position before it was settled.
	history struct {
		attempts, failures int
		used               int       // of its samples, the first, before a Rewind
		died               time.Time // when the last death counted; a restart forgets it
	}
	grant struct{ id, reader string }
	// staged is what tells a file that was verified.
	staged struct {
		digest string // empty where the plan has it
		mark   disk.Mark
	}
)

func newMemory() memory {
	return memory{
		settled: map[seq]bool{}, history: map[seq]history{}, leases: map[seq]grant{},
		shares: map[shareKey]grant{}, parts: map[shareKey]bool{},
		readers: map[string]int{}, sums: map[seq]staged{},
	}
}

// readJournal is what the journal tells about the plan: nothing when it is of
// another one, or unreadable.
func readJournal(r io.Reader, plan string) (memory, error) {
	m := newMemory()
	lines := bufio.NewReaderSize(r, longestLine)
	for skip := false; ; {
		line, err := lines.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) {
			skip = true // no fact is as long
			continue
		}
		if fields, ok := parseLine(string(line)); ok && !skip {
			if fields[0] == "plan" {
				m.about = len(fields) == 2 && fields[1] == plan
			} else if m.about {
				m.learn(fields)
			}
		}
		skip = false
		if errors.Is(err, io.EOF) {
			return m, nil
		}
		if err != nil {
			return m, err
		}
	}
}

// parseLine splits a whole line with the right sum into its words.
func parseLine(line string) (fields []string, ok bool) {
	line, whole := strings.CutSuffix(line, "\n")
	at := strings.LastIndexByte(line, ' ')
	if !whole || at < 0 || line[at+1:] != lineSum(line[:at]) {
		return nil, false
	}
	for rest := line[:at]; rest != ""; rest = strings.TrimPrefix(rest, " ") {
		var word string
		if rest[0] == '"' {
			quoted, err := strconv.QuotedPrefix(rest)
			if err != nil {
				return nil, false
			}
			rest = rest[len(quoted):]
			if word, err = strconv.Unquote(quoted); err != nil {
				return nil, false
			}
		} else if word, _, _ = strings.Cut(rest, " "); word == "" {
			return nil, false
		} else {
			rest = rest[len(word):]
		}
		fields = append(fields, word)
	}
	return fields, len(fields) > 0
}

func lineSum(text string) string {
	return fmt.Sprintf("%08x", crc32.ChecksumIEEE([]byte(text)))
}

// learn takes one fact; one that it doesn't understand is none.
func (m *memory) learn(f []string) {
	words := func(n int) bool { return len(f) == n }
	var bad bool
	num := func(s string) int {
		n, err := strconv.Atoi(s)
		bad = bad || err != nil || n < 0
		return n
	}
	at := func(i int) seq { return seq{num(f[i]), num(f[i+1])} }
	switch kind := f[0]; {
	case kind == "low" && words(3):
		if a := at(1); !bad && m.low.before(a) {
			m.low = a
		}
	case kind == "ack" && words(4):
		if a := at(1); !bad {
			m.settled[a] = true
			delete(m.leases, a)
			m.ackedBy(f[3])
		}
	case kind == "span" && words(4):
		if a, last := at(1), num(f[3]); !bad && last-a.pos < longestSpan {
			for ; a.pos <= last; a.pos++ {
				m.settled[a] = true
			}
		}
	case kind == "skip" && words(5):
		if a := at(1); !bad {
			m.settled[a] = true
			m.skipped = append(m.skipped, skip{a, f[3], f[4]})
		}
	case kind == "try" && words(6):
		a, h := at(1), history{attempts: num(f[3]), failures: num(f[4]), used: num(f[5])}
		if !bad {
			m.history[a] = h
		}
	case kind == "lease" && words(5):
		if a := at(3); !bad {
			m.leases[a] = grant{f[1], f[2]}
		}
	case kind == "share" && words(6):
		if a, group := at(3), num(f[5]); !bad {
			m.shares[shareKey{a, group}] = grant{f[1], f[2]}
		}
	case kind == "part" && words(5):
		if a, group := at(1), num(f[3]); !bad {
			m.parts[shareKey{a, group}] = true
			delete(m.shares, shareKey{a, group})
			m.ackedBy(f[4])
		}
	case kind == "gone" && words(4):
		if a := at(2); !bad {
			mine := func(g grant) bool { return g.id == f[1] }
			if mine(m.leases[a]) {
				delete(m.leases, a)
			}
			maps.DeleteFunc(m.shares, func(k shareKey, g grant) bool { return k.seq == a && mine(g) })
		}
	case kind == "acked" && words(2):
		m.ackedBy(f[1])
	case kind == "reader" && words(3):
		if n := num(f[2]); !bad {
			m.readers[f[1]] = max(n, m.readers[f[1]])
		}
	case kind == "recut" && words(1):
		m.recut = true
	case kind == "sum" && words(6):
		ino, err := strconv.ParseUint(f[4], 10, 64)
		changed, terr := strconv.ParseInt(f[5], 10, 64)
		if a := at(1); !bad && err == nil && terr == nil {
			m.sums[a] = staged{f[3], disk.Mark{Inode: ino, Time: changed}}
		}
	}
}

func (m *memory) ackedBy(id string) {
	if id != "" {
		m.acked = append(m.acked, id)
	}
}

func appendFact(b []byte, kind string, words ...any) []byte {
	b = append(b, kind...)
	for _, word := range words {
		b = append(b, ' ')
		switch v := word.(type) {
		case int:
			b = strconv.AppendInt(b, int64(v), 10)
		case int64:
			b = strconv.AppendInt(b, v, 10)
		case uint64:
			b = strconv.AppendUint(b, v, 10)
		case seq:
			b = strconv.AppendInt(b, int64(v.epoch), 10)
			b = append(b, ' ')
			b = strconv.AppendInt(b, int64(v.pos), 10)
		case string:
			b = strconv.AppendQuote(b, v)
		default:
			panic(fmt.Sprintf("window: %T in a journal", word))
		}
	}
	return b
}

func sealLine(b []byte, from int) []byte {
	const digits = "0123456789abcdef"
	sum := crc32.ChecksumIEEE(b[from:])
	b = append(b, ' ')
	for shift := 28; shift >= 0; shift -= 4 {
		b = append(b, digits[sum>>shift&15])
	}
	return append(b, '\n')
}

const (
	journalName = disk.Private + "/journal"
	// longestLine is longer than any fact: names of readers and items are bounded.
	longestLine = 256 << 10
	// journalLimit is how many bytes of a journal are read. It is written anew long before.
	journalLimit = 1 << 30
	// longestSpan is how many positions a span has at most.
	longestSpan = 1 << 20
)
