package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/stager-dev/stager/stager/check"
)

// The report of a check: the verdict first, then the capabilities, the speed, and every promise.
// For a promise that does not hold it states what was found, the consequence and what to do. Lines
// are wrapped at reportWidth.
const reportWidth = 100

var marks = map[check.State]string{check.Holds: "✓", check.Fails: "✗", check.Unknown: "–"}

// printReport prints a report as text.
func printReport(to io.Writer, r *check.Report) error {
	out := tabwriter.NewWriter(to, 0, 0, 3, ' ', 0)
	fmt.Fprintf(out, "%s, checked %s in %.0f s\n\n", r.Store, r.Began.UTC().Format("2 January 2006 15:04 UTC"), r.Seconds)
	for _, says := range verdict(r) {
		paragraph(out, "", says)
	}
	fmt.Fprintln(out, "\nFacts")
	printCapabilities(out, r)
	if r.Speed.Stat.Requests > 0 {
		fmt.Fprintln(out, "\nSpeed, measured from here")
		printSpeed(out, r.Speed)
	}
	for _, area := range check.Areas {
		first := true
		for _, p := range r.Promises {
			if p.Area != area {
				continue
			}
			if first {
				fmt.Fprintf(out, "\n%s\n", area)
				first = false
			}
			printPromise(out, p)
		}
	}
	return out.Flush()
}

// verdict summarises the report in a few sentences.
func verdict(r *check.Report) (says []string) {
	if r.Refused != "" {
		says = append(says, strings.ToUpper(r.Refused[:1])+r.Refused[1:]+". Prefetch and windows need no more than reading; outputs do.")
	}
	holds, fails, all := r.Count(check.Holds), r.Count(check.Fails), len(r.Promises)
	switch {
	case fails > 0:
		says = append(says, fmt.Sprintf("%d of %d promises %s NOT hold. Each ✗ below explains the consequences and what to do.", fails, all, do(fails)))
	case r.ReadOnly:
		says = append(says, fmt.Sprintf("All promises that reading can check hold (%d of %d).", holds, all))
	case holds == all:
		says = append(says, fmt.Sprintf("All %d promises hold: prefetch, windows, checkpoints and restore work on this store.", all))
	default:
		says = append(says, fmt.Sprintf("All promises of this store hold: %d of %d. Those it does not make are marked –.", holds, all))
	}
	if r.Left != "" {
		says = append(says, "NOT CLEAN: "+r.Left+".")
	}
	return says
}

// do returns "do" or "does" to match n.
func do(n int) string {
	if n == 1 {
		return "does"
	}
	return "do"
}

func printCapabilities(out io.Writer, r *check.Report) {
	f := r.Capabilities
	either := func(yes bool, so, not string) string {
		switch {
		case !yes:
			return not
		case r.ReadOnly:
			return "yes, by its protocol; not tested"
		}
		return so
	}
	fact := func(name, value string) { fmt.Fprintf(out, "  %s\t%s\n", name, value) }
	fact("replaces an object at once", either(f.AtomicReplace, "yes: readers see the old or the new version", "NO: readers may temporarily find none"))
	fact("creates only if absent", either(f.ConditionalCreate, "yes: of several writers one wins", "NO: two jobs that save the same step need separate destinations"))
	fact("pins reads to a version", either(f.PinnedReads, "yes", "no: compared before and after each read"))
	switch {
	case f.Checksum != "":
		fact("checksum", f.Checksum+", compared on each read")
	default:
		fact("checksum", "none; sizes are compared")
	}
	cut := size(f.PartBytes)
	if f.MaxParts > 0 {
		cut += fmt.Sprintf(", at most %s of them", humanize.Comma(f.MaxParts))
	}
	fact("parts of large objects", cut)
	fact("concurrent requests", fmt.Sprint(f.Connections))
	if f.LongestKey > 0 {
		fact("longest key", upTo(f.LongestKey, check.MostKey)+" bytes below this URL")
	}
	if f.LongestName > 0 && f.LongestName < f.LongestKey/2 { // otherwise the key limits it
		fact("longest name", upTo(f.LongestName, check.MostName)+" bytes between two slashes")
	}
	if len(f.RefusedNames) > 0 {
		var names []string
		for _, n := range f.RefusedNames {
			names = append(names, fmt.Sprintf("%q", short(n)))
		}
		fact("unsupported names", "such as "+strings.Join(names, " "))
	}
	if f.ClockAheadSeconds != nil {
		fact("clock", clock(*f.ClockAheadSeconds))
	}
}

// upTo formats the longest length that worked; at the limit, longer ones may work.
func upTo(n, limit int) string {
	if n >= limit {
		return humanize.Comma(int64(n)) + " or more"
	}
	return humanize.Comma(int64(n))
}

// short shortens a name to fit into a line.
func short(name string) string {
	if len(name) > 24 {
		return name[:20] + "…"
	}
	return name
}

// clock compares the store's clock with this machine's.
func clock(ahead float64) string {
	d := time.Duration(ahead * float64(time.Second)).Round(100 * time.Millisecond)
	switch {
	case d < 0:
		return spaced(-d) + " behind this machine's"
	case d > 0:
		return spaced(d) + " ahead of this machine's"
	}
	return "agrees with this machine's"
}

func printSpeed(out io.Writer, s check.Speed) {
	row := func(name, write, read, of string) {
		fmt.Fprintf(out, "  %s\t%15s  %15s\t%s\n", name, write, read, of)
	}
	fmt.Fprintf(out, "  \t%15s  %15s\n", "write", "read")
	rate := func(name, of string, write, read float64, unit func(float64) string) {
		cell := func(v float64) string {
			if v <= 0 {
				return "–"
			}
			return unit(v)
		}
		row(name, cell(write), cell(read), of)
	}
	bytes := func(v float64) string { return size(int64(v)) + "/s" }
	if s.One.FileBytes > 0 {
		rate("one request at a time", "a file of "+size(s.One.FileBytes), s.One.Write, s.One.Read, bytes)
	}
	if s.Many.FileBytes > 0 {
		rate(fmt.Sprintf("%d in parallel", s.Many.Requests), "files of "+size(s.Many.FileBytes), s.Many.Write, s.Many.Read, bytes)
	}
	if each := float64(s.Tiny.FileBytes); each > 0 {
		rate(fmt.Sprintf("%d in parallel, small", s.Tiny.Requests), "files of "+size(s.Tiny.FileBytes), s.Tiny.Write/each, s.Tiny.Read/each,
			func(v float64) string { return humanize.Comma(int64(v+0.5)) + " files/s" })
	}
	row("one response", "", brief(s.Stat.Median), fmt.Sprintf("stat: median of %d, the slowest took %s", s.Stat.Requests, brief(s.Stat.Slowest)))
}

// brief formats a short time with two significant digits.
func brief(seconds float64) string {
	d := time.Duration(seconds * float64(time.Second))
	for unit := time.Duration(1); ; unit *= 10 {
		if d < 100*unit {
			return spaced(d.Round(unit))
		}
	}
}

// spaced puts a space before the unit of a duration, if it has only one unit.
func spaced(d time.Duration) string {
	text := d.String()
	if d >= time.Minute {
		return text
	}
	digits := strings.LastIndexAny(text, "0123456789") + 1
	return text[:digits] + " " + text[digits:]
}

// mostFound is how many failures of one promise are shown.
const mostFound = 3

func printPromise(out io.Writer, p check.Promise) {
	line := fmt.Sprintf("  %s %s", marks[p.State], p.Sentence)
	if p.State == check.Unknown {
		line += ": " + strings.Join(p.Found, "; ")
	}
	paragraph(out, "", line)
	if p.State != check.Fails {
		return
	}
	for i, found := range p.Found {
		if i == mostFound {
			paragraph(out, "      found   ", fmt.Sprintf("… and %d more like these", len(p.Found)-mostFound))
			break
		}
		paragraph(out, "      found   ", found)
	}
	paragraph(out, "      means   ", p.Means)
	paragraph(out, "      do      ", p.Do)
}

// paragraph wraps a text. Its first line begins with the label, the others are indented to match.
func paragraph(out io.Writer, label, text string) {
	indent := strings.Repeat(" ", len(label))
	lead := len(text) - len(strings.TrimLeft(text, " "))
	if label == "" {
		indent = strings.Repeat(" ", lead+2*min(lead, 1))
	}
	line := label + text[:lead]
	width, empty := len([]rune(line)), true
	for _, word := range strings.Fields(text) {
		n := len([]rune(word))
		if !empty && width+1+n > reportWidth {
			fmt.Fprintln(out, line)
			line, width, empty = indent, len(indent), true
		}
		if !empty {
			line, width = line+" ", width+1
		}
		line, width, empty = line+word, width+n, false
	}
	fmt.Fprintln(out, line)
}
