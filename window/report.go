package window

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"os"
	"slices"
	"time"

	"github.com/stager-dev/stager/window/disk"
)

// An epoch's report is a file of JSON lines in .stager/reports, one per finished position. A line
// is written before the journal record: a kill between the two leaves one line more, never one
// less. The last line of a position counts.
//
// Which reader received a shard, and when, differs from run to run. The Position that starts each
// line, and the set of positions, are the same in all runs of a plan: the reports of all nodes
// together are the plan. [ReportSum] is computed from nothing else.

// keepReports is the number of epochs whose reports are retained.
const keepReports = 4

// reports writes the reports.
type reports struct {
	root  *os.Root
	epoch int
	file  *os.File // of that epoch; nil before the first line

	most  int64         // total bytes of all reports; 0: no limit
	sizes map[int]int64 // file sizes by epoch

	last    *ReportSum    // of the last complete epoch; nil before it was asked for
	summing chan struct{} // closed once last is computed; nil while it is not being computed
}

const reportsDir = disk.Private + "/reports"

// reportLimit is the maximum number of bytes of a report that are read.
const reportLimit = math.MaxUint32

// openReports creates the directory of the reports. If bounded, the reports take at most an eighth
// of the window's size.
func openReports(root *os.Root, bounded bool, size int64) (*reports, error) {
	r := &reports{root: root, sizes: map[int]int64{}}
	if bounded {
		r.most = size / 8
	}
	if err := root.MkdirAll(reportsDir, 0o755); err != nil {
		return nil, err
	}
	files, err := fs.ReadDir(disk.FS(root), reportsDir)
	for _, file := range files {
		var epoch int
		if _, serr := fmt.Sscanf(file.Name(), "e%d.jsonl", &epoch); serr == nil && r.name(epoch) == reportsDir+"/"+file.Name() {
			if info, err := file.Info(); err == nil {
				r.sizes[epoch] = info.Size()
			}
		}
	}
	return r, err
}

// fit removes the oldest reports until there is space for more bytes. It keeps the report of the
// epoch itself, and returns an error if that is too large.
func (r *reports) fit(epoch int, more int64) error {
	if r.most == 0 {
		return nil
	}
	for _, old := range slices.Sorted(maps.Keys(r.sizes)) {
		sum := more
		for _, size := range r.sizes {
			sum += size
		}
		if sum <= r.most {
			return nil
		}
		if old == epoch {
			return fmt.Errorf("the report of epoch %d is limited to %d bytes, an eighth of the window's size: later positions are missing; raise the size", epoch, r.sizes[epoch])
		}
		if err := r.root.RemoveAll(r.name(old)); err != nil {
			return err
		}
		delete(r.sizes, old)
	}
	return nil
}

func (r *reports) name(epoch int) string { return fmt.Sprintf("%s/e%04d.jsonl", reportsDir, epoch) }

func (r *reports) add(d Delivery) error {
	if r.file == nil || r.epoch != d.Epoch {
		file, err := disk.OpenOwn(r.root, r.name(d.Epoch), os.O_WRONLY|os.O_APPEND, 0o644)
		if err != nil {
			return err
		}
		if err := errors.Join(r.close(), r.root.RemoveAll(r.name(d.Epoch-keepReports))); err != nil {
			return errors.Join(err, file.Close())
		}
		delete(r.sizes, d.Epoch-keepReports)
		r.file, r.epoch = file, d.Epoch
	}
	line, err := json.Marshal(d)
	if err == nil {
		err = r.fit(d.Epoch, int64(len(line))+1)
	}
	if err == nil {
		r.sizes[d.Epoch] += int64(len(line)) + 1
		_, err = r.file.Write(append(line, '\n'))
	}
	return err
}

func (r *reports) close() error {
	if r.file == nil {
		return nil
	}
	file := r.file
	r.file = nil
	return file.Close()
}

// reportLocked adds a finished position to the report.
func (w *Window) reportLocked(e *entry, d Delivery) {
	d.Position, d.Part, d.Acked = Position{e.epoch, e.pos, e.itemName(), e.bytes}, w.cfg.Part, time.Now().UTC()
	d.Digest = e.digest
	if e.lease != nil && d.Reader == "" {
		d.Reader, d.Leased = e.lease.reader.name, e.lease.since.UTC()
	}
	d.Attempt = max(d.Attempt, w.deliveries.history[e.seq].attempts)
	if err := w.reports.add(d); err != nil {
		w.troubleLocked("cannot write the epoch report", err) // the journal is authoritative
	}
}
