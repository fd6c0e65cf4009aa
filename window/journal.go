package window

import (
	"bufio"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"maps"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/stager-dev/stager/window/disk"
)

// The journal is a text file with one record per line. Each line has its own checksum, so that a
// torn or overwritten line is ignored and does not affect others. Records accumulate: their order
// matters only for leases.
//
//	plan "digest"                      the plan that all records are about; first line
//	low E P                            all positions before are finished
//	ack E P "ID"                       finished, by this lease if any
//	span E P Q                         P to Q are finished
//	skip E P "name" "reason"           finished by skipping
//	try E P attempts failures used     history of an unfinished position
//	recut                              the number of nodes has changed since the first epoch
//	lease "ID" "reader" E P            leased
//	share "ID" "reader" E P GROUP      leased to one of several groups
//	gone "ID" E P                      a lease ended without acknowledgement
//	part E P GROUP "ID"                acknowledged by one of several groups
//	acked "ID"                         a lease that was acknowledged recently
//	reader "name" E                    has received the ends of all epochs before E
//	sum E P "digest" INODE TIME        digest of a verified file, and what identifies the file

// memory is the content of a journal.
type memory struct {
	low     seq
	settled map[int]spans // by epoch
	skipped []skip
	history map[seq]history
	leases  map[seq]grant
	shares  map[shareKey]grant
	parts   map[shareKey]bool
	acked   []string
	readers map[string]int
	sums    map[seq]staged
	recut   bool
	about   bool // it is about the current plan
}

type (
	skip struct {
		seq
		name, reason string
	}
	// history counts the deliveries and failures of an unfinished position.
	history struct {
		attempts, failures int
		used               int       // the number of its first samples that were used before a Rewind
		died               time.Time // the last death that counted; not kept over a restart
	}
	grant struct{ id, reader string }
	// staged identifies a verified file.
	staged struct {
		digest string // empty if the plan has it
		mark   disk.Mark
	}
)

func newMemory() memory {
	return memory{
		settled: map[int]spans{}, history: map[seq]history{}, leases: map[seq]grant{},
		shares: map[shareKey]grant{}, parts: map[shareKey]bool{},
		readers: map[string]int{}, sums: map[seq]staged{},
	}
}

// readJournal reads the records about a plan that is ours. The result is empty if the journal is about
// another plan or is unreadable.
func readJournal(r io.Reader, ours func(plan string) bool) (memory, error) {
	m := newMemory()
	lines := bufio.NewReaderSize(r, longestLine)
	for skip := false; ; {
		line, err := lines.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) {
			skip = true // no record is that long
			continue
		}
		if fields, ok := parseLine(string(line)); ok && !skip {
			if fields[0] == "plan" {
				m.about = len(fields) == 2 && ours(fields[1])
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

// parseLine splits a complete line with a valid checksum into its words.
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

// learn applies one record; unknown records are ignored.
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
			m.finish(a.epoch, a.pos, a.pos)
			delete(m.leases, a)
			m.ackedBy(f[3])
		}
	case kind == "span" && words(4):
		if a, last := at(1), num(f[3]); !bad {
			m.finish(a.epoch, a.pos, last)
		}
	case kind == "skip" && words(5):
		if a := at(1); !bad {
			m.finish(a.epoch, a.pos, a.pos)
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

// finish adds a range of finished positions, unless it is none that an epoch has.
func (m *memory) finish(epoch, first, last int) {
	if first >= 0 && first <= last && last < math.MaxInt {
		m.settled[epoch] = m.settled[epoch].add(first, last)
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
	// longestLine is longer than any record: names of readers and items are bounded.
	longestLine = 256 << 10
	// journalLimit is how many bytes of a journal are read. Compaction happens long before.
	journalLimit = 1 << 30
)
