package trial

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"

	"github.com/dustin/go-humanize"
	"github.com/dustin/go-humanize/english"
)

// Report is what the readers' records and the watcher say.
type Report struct {
	Expected    int // shards times epochs times groups
	Delivered   int // shards that readers took, each time
	Acked       int // shards that were acknowledged
	Redelivered int // deliveries beyond the first of a shard in its epoch
	Lost        int // shards that nobody acknowledged in their epoch
	Twice       int // shards acknowledged more than once in their epoch
	Wrong       int // deliveries whose bytes were not the source's

	KilledReaders, KilledStager int
	PeakBytes, Window           int64
	Looks                       int
	VolumePeak                  int64 // bytes of the whole volume, if it was sampled
	VolumeLooks                 int
	Seconds                     float64
	StagerExit                  int
}

// report reads the records.
func (t *trial) report() (*Report, error) {
	r := &Report{
		Expected: t.total, Window: t.Window, KilledReaders: t.killedReaders, KilledStager: t.killedStager,
	}
	type delivery struct {
		group string
		epoch int
		name  string
	}
	took, acked, heard := make(map[delivery]int), make(map[delivery]int), make(map[delivery]bool)
	files, err := os.ReadDir(t.records)
	if err != nil {
		return nil, err
	}
	for _, f := range files {
		events, err := readRecord(filepath.Join(t.records, f.Name()))
		if err != nil {
			return nil, err
		}
		for _, e := range events {
			d := delivery{e.Group, e.Epoch, ShardName(e.Name)}
			switch e.What {
			case "took":
				r.Delivered++
				took[d]++
				if t.Shards[d.name] != e.SHA256 {
					r.Wrong++
				}
			case "acking":
				// When the reader was killed before it heard the answer, no second delivery
				// says that the acknowledgement had been heard.
				heard[d] = true
			case "acked":
				acked[d]++
			}
		}
	}
	r.Redelivered = r.Delivered - len(took)
	for _, n := range acked {
		if n > 1 {
			r.Twice++
		}
	}
	r.Acked = len(heard)
	r.Lost = r.Expected - len(heard)
	return r, nil
}

// ShardName takes off what the window puts in front: e0001-00000007-name.
func ShardName(path string) string {
	parts := strings.SplitN(filepath.Base(path), "-", 3)
	return parts[len(parts)-1]
}

// Broken lists the promises that did not hold.
func (r *Report) Broken() (broken []string) {
	check := func(ok bool, format string, args ...any) {
		if !ok {
			broken = append(broken, fmt.Sprintf(format, args...))
		}
	}
	check(r.Lost == 0, "%d shards were lost", r.Lost)
	check(r.Twice == 0, "%d shards were acknowledged twice", r.Twice)
	check(r.Wrong == 0, "%d shards had other bytes than the source's", r.Wrong)
	check(r.Redelivered <= r.KilledReaders, "%d deliveries were repeated, and %d readers were killed", r.Redelivered, r.KilledReaders)
	check(r.PeakBytes <= r.Window, "%d bytes were on disk and the limit is %d", r.PeakBytes, r.Window)
	check(r.VolumePeak <= r.Window, "%d bytes of the volume were in use and the limit is %d", r.VolumePeak, r.Window)
	check(r.StagerExit == 0, "stager ended with code %d", r.StagerExit)
	return broken
}

// Print writes the table.
func (r *Report) Print(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	row := func(name string, value any, note string) { fmt.Fprintf(t, "%s\t%v\t\t%s\n", name, value, note) }
	row("shards expected", r.Expected, "each once in every epoch, in each group of readers")
	row("delivered", r.Delivered, "")
	row("acknowledged", r.Acked, "")
	row("delivered again", r.Redelivered, fmt.Sprintf("killed: %s, and stager %s", english.Plural(r.KilledReaders, "reader", ""), english.Plural(r.KilledStager, "time", "")))
	row("lost", r.Lost, "")
	row("acknowledged twice", r.Twice, "")
	row("wrong bytes", r.Wrong, "by SHA-256")
	row("peak on disk", humanize.IBytes(uint64(r.PeakBytes)), fmt.Sprintf("as du counts it in %d looks, with unlinked open files", r.Looks))
	if r.VolumeLooks > 0 {
		row("peak of the volume", humanize.IBytes(uint64(r.VolumePeak)), fmt.Sprintf("in %d samples, with directories, journal and reports", r.VolumeLooks))
	}
	row("window limit", humanize.IBytes(uint64(r.Window)), "")
	row("seconds", fmt.Sprintf("%.1f", r.Seconds), "")
	return t.Flush()
}
