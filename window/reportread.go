package window

import (
	"bufio"
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/stager-dev/stager/window/disk"
)

// A report has a line for each position of an epoch, millions perhaps, and is read where memory is
// limited. So it is read twice: the first time for where the line of each position is.

// Report returns how the positions of an epoch were finished, in order. The reports of the last few
// epochs are retained. A report covers this node's part as it is now: before you change the number
// of nodes, save the earlier reports with the cursors. An error is the last value; fs.ErrNotExist, if
// there is no report, is the only one. Report takes eight bytes of memory for each line.
func (w *Window) Report(epoch int) iter.Seq2[Delivery, error] {
	return func(yield func(Delivery, error) bool) {
		none, err := true, error(nil)
		for d, derr := range w.report(epoch) {
			if err = derr; err != nil {
				break
			}
			if none = false; !yield(d, nil) {
				return
			}
		}
		if none && err == nil {
			err = fs.ErrNotExist
		}
		if err != nil {
			yield(Delivery{}, err)
		}
	}
}

// report is Report without an error if there are no lines.
func (w *Window) report(epoch int) iter.Seq2[Delivery, error] {
	return func(yield func(Delivery, error) bool) {
		file, err := disk.OpenFile(w.stage.Root(), w.reports.name(epoch), os.O_RDONLY, 0)
		if err != nil {
			yield(Delivery{}, err)
			return
		}
		defer file.Close() // opened for reading
		lines, err := reportLines(file, w.cfg.Part)
		if err != nil {
			yield(Delivery{}, err)
			return
		}
		pages := pageReader{file: file}
		for _, line := range lines {
			w.mu.Lock()
			finished := w.progress.finished(seq{epoch, int(line.pos)}) // rewound positions are not finished any more
			w.mu.Unlock()
			if !finished {
				continue
			}
			text, err := pages.line(int64(line.at))
			var d Delivery
			if err == nil {
				err = json.Unmarshal(text, &d)
			}
			if err == nil && (d.Pos != int(line.pos) || d.Part != w.cfg.Part) {
				continue // another process wrote it
			}
			if !yield(d, err) || err != nil {
				return
			}
		}
	}
}

// pageReader reads lines of a file that are near each other, in any order.
type pageReader struct {
	file io.ReaderAt
	page []byte
	at   int64 // of page in the file
}

// line returns the line that begins at an offset, until the next call.
func (r *pageReader) line(at int64) ([]byte, error) {
	for range 2 {
		if in := at - r.at; in >= 0 && in < int64(len(r.page)) {
			if n := bytes.IndexByte(r.page[in:], '\n'); n >= 0 {
				return r.page[in : in+int64(n)], nil
			}
		}
		r.at = max(at-longestReport, 0) // the next one may be before this one
		if r.page == nil {
			r.page = make([]byte, 4*longestReport)
		}
		n, err := r.file.ReadAt(r.page[:cap(r.page)], r.at)
		if r.page = r.page[:n]; err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
	}
	return nil, io.ErrUnexpectedEOF
}

// reportLine is where a report has the line of a position.
type reportLine struct{ pos, at uint32 }

const (
	// longestReport is the length of the longest line of a report that counts: names are bounded.
	longestReport = 64 << 10
	// shortestReport is the length of the shortest, that of an empty Delivery.
	shortestReport = len(`{"epoch":0,"pos":0,"name":"","bytes":0,"attempt":0,"acked":"0001-01-01T00:00:00Z"}`)
)

// reportLines returns the last line of each position of a part, by position. A kill may have torn some.
func reportLines(file *os.File, part string) (lines []reportLine, err error) {
	n, err := countLines(file)
	if err != nil {
		return nil, err
	}
	lines = make([]reportLine, 0, n)
	at := int64(0)
	whole := io.NewSectionReader(file, 0, reportLimit)
	for read, torn := bufio.NewReaderSize(whole, longestReport), false; ; {
		text, err := read.ReadSlice('\n')
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			if errors.Is(err, io.EOF) {
				break
			}
			return nil, err
		}
		if pos, ok := positionIn(text, part); ok && !torn && err == nil {
			lines = append(lines, reportLine{pos, uint32(at)}) // reportLimit fits
		}
		torn = err != nil
		at += int64(len(text))
	}
	slices.SortFunc(lines, func(a, b reportLine) int {
		return cmp.Or(cmp.Compare(a.pos, b.pos), cmp.Compare(b.at, a.at)) // the last one first
	})
	return slices.CompactFunc(lines, func(a, b reportLine) bool { return a.pos == b.pos }), nil
}

// positionIn returns the position of a line that json.Marshal has made of a Delivery, if the line is
// complete and of a part. It takes a quarter of the time of json.Unmarshal: in no text of JSON is a quote
// that no backslash precedes.
func positionIn(line []byte, part string) (pos uint32, ok bool) {
	_, rest, ok := bytes.Cut(line, []byte(`,"pos":`))
	_, of, named := bytes.Cut(rest, []byte(`,"part":`))
	if named != (part != "") || named && !bytes.HasPrefix(of, strconv.AppendQuote(nil, part)) || !json.Valid(line) {
		return 0, false
	}
	digits := bytes.IndexByte(rest, ',')
	n, err := strconv.ParseUint(string(rest[:max(digits, 0)]), 10, 32)
	return uint32(n), ok && err == nil
}

// countLines returns how many lines of a report count at most: another process may have written it.
func countLines(file *os.File) (n int, err error) {
	whole, page := io.NewSectionReader(file, 0, reportLimit), make([]byte, longestReport)
	for size := 0; ; {
		read, err := whole.Read(page)
		n += bytes.Count(page[:read], []byte("\n"))
		size += read
		if errors.Is(err, io.EOF) {
			return min(n, size/shortestReport), nil
		}
		if err != nil {
			return 0, err
		}
	}
}

// ReportSum summarizes the report of a finished epoch.
type ReportSum struct {
	Epoch       int `json:"epoch"`
	Shards      int `json:"shards"` // delivered
	Redelivered int `json:"redelivered,omitempty"`
	Skipped     int `json:"skipped,omitempty"`
	// Digest covers the Positions of the delivered shards, each as a line of JSON, in order.
	Digest string `json:"digest"`
}

func sumOf(epoch int, report iter.Seq2[Delivery, error]) (*ReportSum, error) {
	sum, digest := &ReportSum{Epoch: epoch}, sha256.New()
	lines := json.NewEncoder(digest)
	lines.SetEscapeHTML(false) // as other programs do
	for d, err := range report {
		switch {
		case err != nil:
			return nil, err
		case d.Skipped != "":
			sum.Skipped++
			continue
		case d.Attempt > 1:
			sum.Redelivered++
		}
		sum.Shards++
		_ = lines.Encode(d.Position) // cannot fail: numbers and a string
	}
	sum.Digest = fmt.Sprintf("sha256:%x", digest.Sum(nil))
	return sum, nil
}

// reportPatience is how long a status waits for the summary of a report: that of a million shards takes
// seconds, and those who ask whether a window is ready do not wait that long.
const reportPatience = 200 * time.Millisecond

// lastReport returns the summary of the epoch before the current one, or nil while it is not known yet.
// The report is read once.
func (w *Window) lastReport() *ReportSum {
	w.mu.Lock()
	sum, wanted := w.lastReportLocked()
	if wanted && w.reports.summing == nil {
		w.reports.summing = make(chan struct{})
		go w.summarize(w.progress.low.epoch - 1)
	}
	done := w.reports.summing
	w.mu.Unlock()
	if !wanted {
		return sum
	}
	select {
	case <-done:
	case <-time.After(reportPatience):
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	sum, _ = w.lastReportLocked()
	return sum
}

// lastReportLocked returns the summary of the epoch before the current one, nil if there is none, and
// whether it is still to be computed.
func (w *Window) lastReportLocked() (sum *ReportSum, wanted bool) {
	epoch := w.progress.low.epoch - 1
	if last := w.reports.last; last != nil && last.Epoch == epoch {
		return last, false
	}
	return nil, epoch >= 0
}

func (w *Window) summarize(epoch int) {
	sum, err := sumOf(epoch, w.Report(epoch))
	w.mu.Lock()
	defer w.mu.Unlock()
	if err == nil {
		w.reports.last = sum
	}
	close(w.reports.summing)
	w.reports.summing = nil
}
