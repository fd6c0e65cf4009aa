package main

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/dustin/go-humanize/english"

	"github.com/stager-dev/stager/stager/api"
	"github.com/stager-dev/stager/stager/checkpoint"
	"github.com/stager-dev/stager/window"
)

// printStatus prints a snapshot as a table.
func printStatus(w io.Writer, s api.Snapshot) error {
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	state := string(s.Phase)
	if s.Waiting != "" {
		state += "; " + s.Waiting
	}
	fmt.Fprintf(out, "%s: %s, for %s\n", s.Plan, state, time.Since(s.Started).Round(time.Second))
	for _, in := range s.Inputs {
		fmt.Fprintf(out, "input %s\t%s\t%s\n", in.Name, in.Mode, in.Source)
		if in.Listing != nil {
			fmt.Fprintf(out, "  listing\t%s so far\n", english.Plural(int(*in.Listing), "object", ""))
		}
		switch {
		case in.Window != nil:
			printWindow(out, *in.Window)
		case in.Prefetch != nil:
			p := in.Prefetch
			fmt.Fprintf(out, "  %s\t%d of %d files\t%s of %s, %s/s\n", p.Phase, p.Files, p.FilesTotal,
				size(p.Bytes), size(p.BytesTotal), size(p.BytesPerSecond))
		}
		if in.Error != "" {
			fmt.Fprintf(out, "  error\t%s\n", in.Error)
		}
	}
	for _, o := range s.Outputs {
		printOutput(out, o)
	}
	return out.Flush()
}

func printWindow(out io.Writer, s window.Status) {
	of := strconv.Itoa(s.Positions)
	if s.Beginning {
		of = "the first " + of
	}
	epochs := "(unlimited)"
	if s.Epochs > 0 {
		epochs = fmt.Sprintf("of %d", s.Epochs)
	}
	if s.Epochs > 0 && s.Epoch >= s.Epochs {
		fmt.Fprintf(out, "  epoch\t%d %s\tall done\n", s.Epochs, epochs)
	} else {
		fmt.Fprintf(out, "  epoch\t%d %s\t%d of %s shards done\n", s.Epoch+1, epochs, s.Finished, of)
	}
	fmt.Fprintf(out, "  on disk\t%s of %s\t%d ready, %d leased, %d fetching, %d lingering; peak %s\n",
		size(s.Used), size(s.Limit), s.Items[window.Ready], s.Items[window.Leased],
		s.Items[window.Reserved]+s.Items[window.Fetching]+s.Items[window.Verifying], s.Items[window.Zombie], size(s.Peak))
	stayed := ""
	if s.Reused > 0 {
		stayed = fmt.Sprintf(", %d reused", s.Reused)
	}
	fmt.Fprintf(out, "  delivered\t%d\t%d acknowledged, %d redelivered%s\n", s.Delivered, s.Acknowledged, s.Redelivered, stayed)
	if r := s.Report; r != nil {
		fmt.Fprintf(out, "  epoch %d was\t%s\t%d redelivered, %d skipped; %s\n", r.Epoch+1, english.Plural(r.Shards, "shard", ""), r.Redelivered, r.Skipped, r.Digest)
	}
	for _, r := range s.Readers {
		var waits []string
		for cause, seconds := range r.Waits {
			waits = append(waits, fmt.Sprintf("%.1f s for %s", seconds, cause))
		}
		slices.Sort(waits)
		if len(waits) == 0 {
			waits = []string{"nothing"}
		}
		fmt.Fprintf(out, "  reader %s\tholds %d\twaited %s\n", r.ID, r.Held, strings.Join(waits, ", "))
	}
	for _, words := range s.Cautions {
		fmt.Fprintf(out, "  caution\t%s\n", words)
	}
	if s.Starvation != nil {
		fmt.Fprintf(out, "  starved\t%s\n", s.Starvation.Words)
	}
	if s.LastError != "" {
		fmt.Fprintf(out, "  last error\t%s\n", s.LastError)
	}
}

func printOutput(out io.Writer, o checkpoint.Status) {
	fmt.Fprintf(out, "output %s\t%s\t%s\n", o.Output, o.Mode, o.Destination)
	if o.Committed != nil {
		fmt.Fprintf(out, "  committed\tstep %d\tlag %.0f s%s\n", o.Committed.Step, o.LagSeconds, evidenceOf(o.Committed))
	}
	for _, m := range o.Missed {
		fmt.Fprintf(out, "  missed\t%s\t%s\n", m.Name, m.Reason)
	}
	if u := o.Uploading; u != nil {
		fmt.Fprintf(out, "  uploading\tstep %d\t%s of %s, %s/s\n", u.Step, size(u.BytesDone), size(u.BytesTotal), size(int64(u.BytesPerSecond)))
	}
	for _, f := range o.Failed {
		fmt.Fprintf(out, "  failed\t%s\t%s\n", f.Name, f.Reason)
	}
	for _, f := range o.Waiting {
		fmt.Fprintf(out, "  not complete\t%s\t%s\n", f.Name, f.Reason)
	}
	if o.Mirrored.Files > 0 {
		fmt.Fprintf(out, "  mirrored\t%s\t%s\n", english.Plural(int(o.Mirrored.Files), "file", ""), size(o.Mirrored.Bytes))
	}
	for _, f := range o.NotSaved {
		fmt.Fprintf(out, "  cannot be saved\t%q\t%s\n", f.Name, f.Reason)
	}
	if o.LastError != "" {
		fmt.Fprintf(out, "  last error\t%s\n", o.LastError)
	}
}

// size formats a number of bytes.
func size(n int64) string { return humanize.IBytes(uint64(max(n, 0))) }

// evidenceOf returns what shows that a step is complete, after a comma, or "".
func evidenceOf(s *checkpoint.StepTime) string {
	switch {
	case s.Evidence == "":
		return ""
	case s.Provisional:
		return ", provisional: " + s.Evidence
	}
	return ", " + s.Evidence
}
