package bench

import (
	"fmt"
	"io"
)

// What a chart measures, in pixels.
const (
	chartRow, chartBar    = 44, 14 // from row to row, and the height of a bar
	chartLabel, chartMost = 300, 420
	chartTop              = 56
)

// Chart draws the wall times of all rows, stager's bar above the peer's, as SVG. Each
// row has a scale of its own, since a large file and many small ones share none.
func Chart(to io.Writer, m Machine, results []Result) error {
	d := newDrawing(chartLabel+chartMost+120, chartTop+chartRow*len(results))
	text := func(x, y int, anchor, words string) { d.text(x, y, anchor, "black", words) }
	bar := func(y int, s, longest float64, color, words string) {
		width := max(int(chartMost*s/longest), 1)
		d.add(`<rect x="%d" y="%d" width="%d" height="%d" fill="%s"/>`, chartLabel, y, width, chartBar, color)
		text(chartLabel+width+6, y+chartBar-3, "start", fmt.Sprintf("%.2f s %s", s, words))
	}
	text(8, 20, "start", "Seconds, stager above and the other client below; shorter is better")
	text(8, 38, "start", fmt.Sprintf("%s, %d cores, Linux %s, %s", m.CPU, m.Cores, m.Kernel, m.Stager))
	for i, r := range results {
		y := chartTop + i*chartRow
		ours, theirs := r.Ours.Wall.Seconds(), r.Theirs.Wall.Seconds()
		longest := max(ours, theirs, 1e-9)
		text(chartLabel-10, y+chartBar+4, "end", r.Store+", "+r.Work)
		bar(y, ours, longest, oursColor, "stager")
		bar(y+chartBar+2, theirs, longest, theirsColor, r.Peer)
	}
	return d.writeTo(to)
}
