package bench

import (
	"encoding/xml"
	"fmt"
	"io"
	"strings"
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
	var out strings.Builder
	fmt.Fprintf(&out, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="12">`+"\n",
		chartLabel+chartMost+120, chartTop+chartRow*len(results))
	fmt.Fprintln(&out, `<rect width="100%" height="100%" fill="white"/>`)
	text := func(x, y int, anchor, words string) {
		fmt.Fprintf(&out, `<text x="%d" y="%d" text-anchor="%s">%s</text>`+"\n", x, y, anchor, escaped(words))
	}
	bar := func(y int, s, longest float64, color, words string) {
		width := max(int(chartMost*s/longest), 1)
		fmt.Fprintf(&out, `<rect x="%d" y="%d" width="%d" height="%d" fill="%s"/>`+"\n", chartLabel, y, width, chartBar, color)
		text(chartLabel+width+6, y+chartBar-3, "start", fmt.Sprintf("%.2f s %s", s, words))
	}
	text(8, 20, "start", "Seconds, stager above and the other client below; shorter is better")
	text(8, 38, "start", fmt.Sprintf("%s, %d cores, Linux %s, %s", m.CPU, m.Cores, m.Kernel, m.Stager))
	for i, r := range results {
		y := chartTop + i*chartRow
		ours, theirs := r.Ours.Wall.Seconds(), r.Theirs.Wall.Seconds()
		longest := max(ours, theirs, 1e-9)
		text(chartLabel-10, y+chartBar+4, "end", r.Store+", "+r.Work)
		bar(y, ours, longest, "#2a6fbb", "stager")
		bar(y+chartBar+2, theirs, longest, "#b9b9b9", r.Peer)
	}
	fmt.Fprintln(&out, "</svg>")
	_, err := io.WriteString(to, out.String())
	return err
}

func escaped(words string) string {
	var out strings.Builder
	xml.EscapeText(&out, []byte(words)) //nolint:errcheck // a Builder has no errors
	return out.String()
}
