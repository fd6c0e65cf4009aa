package window

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// withReport returns a window of n positions, all finished, whose first epoch has this report.
func withReport(t *testing.T, n int, text string) *bench {
	t.Helper()
	b := newBench(t, Config{Items: sameItems(n), Size: 1 << 20, Epochs: 2, Part: "0/2"})
	b.progress.low = seq{1, 0}
	b.ok(os.WriteFile(filepath.Join(b.cfg.Dir, b.reports.name(0)), []byte(text), 0o644))
	return b
}

// Whatever a kill, a rewind or another process left in a report: the last line of each finished position
// of this part counts.
func TestReportHasTheLastLineOfEachPosition(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		const n = 30
		want := map[int]Delivery{}
		var text strings.Builder
		for i := range rapid.IntRange(0, 60).Draw(rt, "lines") {
			d := Delivery{Position: Position{Pos: rapid.IntRange(0, n-1).Draw(rt, "position"), Name: strings.Repeat("n", rapid.IntRange(0, 200).Draw(rt, "name"))}, Part: "0/2", Attempt: i}
			kind := rapid.IntRange(0, 9).Draw(rt, "kind")
			if kind == 0 {
				d.Part = "1/2"
			}
			line, err := json.Marshal(d)
			if err != nil {
				rt.Fatal(err)
			}
			switch kind {
			case 0:
			case 1:
				line = line[:len(line)/2] // a kill
			case 2:
				line = []byte(strings.Repeat("x", longestReport+rapid.IntRange(-2, 2).Draw(rt, "long")))
			case 3:
				line = fmt.Appendf(nil, `{"pos":%d,"part":"0/2"}`, rapid.SampledFrom([]int{-1, 1 << 40}).Draw(rt, "no position"))
			case 4:
				line = append([]byte(strings.Repeat(" ", 2*longestReport)), line...)
			default:
				want[d.Pos] = d
			}
			text.Write(append(line, '\n'))
		}
		b := withReport(t, n, text.String()+rapid.SampledFrom([]string{"", "{", `{"pos":1,"part":"0/2"}`}).Draw(rt, "torn"))
		defer b.Close()
		got, err := gather(b.Report(0))
		if len(want) == 0 != errors.Is(err, fs.ErrNotExist) || len(want) > 0 && err != nil {
			rt.Fatalf("got the error %v with %d lines", err, len(want))
		}
		if positions := slices.Sorted(maps.Keys(want)); len(got) != len(positions) {
			rt.Fatalf("got %+v, want the positions %v", got, positions)
		}
		for i, pos := range slices.Sorted(maps.Keys(want)) {
			if got[i] != want[pos] {
				rt.Fatalf("got %+v, want %+v", got[i], want[pos])
			}
		}
	})
}

// Who asked whether a window was ready waited until the report of the last epoch was read.
func TestStatusDoesNotWaitForALongReport(t *testing.T) {
	virtual(t, func(t *testing.T) {
		b := withReport(t, 10, `{"epoch":0,"pos":3,"name":"shard","bytes":10,"part":"0/2","attempt":1}`+"\n")
		reading := make(chan struct{})
		b.reports.summing = reading
		began := time.Now()
		if s := b.Status(); s.Report != nil || time.Since(began) != reportPatience {
			t.Errorf("got the report %+v after %v, want none after %v", s.Report, time.Since(began), reportPatience)
		}
		b.reports.summing = nil
		began = time.Now()
		for range 2 {
			if s := b.Status(); s.Report == nil || s.Report.Shards != 1 || time.Since(began) != 0 {
				t.Errorf("got the report %+v after %v, want one of a shard at once", s.Report, time.Since(began))
			}
		}
	})
}

// Another process in the volume may fill the report with lines that are none.
func TestReportOfEmptyLinesTakesNoMemory(t *testing.T) {
	const n = 8 << 20
	b := withReport(t, 10, strings.Repeat("\n", n))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, err := gather(b.Report(0)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v, want fs.ErrNotExist", err)
	}
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; took > n/2 {
		t.Errorf("%d empty lines take %d bytes", n, took)
	}
}

// The summary of an epoch of a million shards, which a status asks for, took 500 bytes a shard.
func TestReportIsNotInMemory(t *testing.T) {
	const n = 64_000
	var text strings.Builder
	for i := range n {
		pos := i ^ 63 // neighbours are finished in another order
		fmt.Fprintf(&text, `{"epoch":0,"pos":%d,"name":"shard-%d","bytes":10,"part":"0/2","attempt":1}`+"\n", pos, pos)
	}
	b := withReport(t, n+64, text.String())
	heap := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before, read := heap(), 0
	for d, err := range b.Report(0) {
		if err != nil {
			t.Fatal(err)
		}
		if read++; read == n/2 {
			if took := heap() - before; took > 16*n {
				t.Errorf("a report of %d lines takes %d bytes, want at most 16 for each", n, took)
			}
		}
		if d.Pos != read-1 {
			t.Fatalf("got %+v as number %d", d, read)
		}
	}
	if read != n {
		t.Errorf("read %d positions, want %d", read, n)
	}
	runtime.KeepAlive(&text)
}
