package bench

import (
	"fmt"
	"io"
	"strings"
)

// What a diagram of lines measures, in pixels.
const (
	linesWidth, linesHeight = 900, 200
	linesLeft, linesTop     = 70, 40
	linesRight, linesBottom = 160, 30
)

// lineColors are of the lines of a diagram, in their order.
var lineColors = []string{"#2a6fbb", "#d1772b", "#3c9a5f", "#9a3c7d"}

// Line is a line of a diagram, a value after so many seconds.
type Line struct {
	Name    string
	Seconds []float64
	Values  []float64
}

// Lines draws values over time as SVG, with a common scale from 0.
func Lines(to io.Writer, title string, lines []Line) error {
	var longest, highest float64
	for _, l := range lines {
		for i, v := range l.Values {
			longest, highest = max(longest, l.Seconds[i]), max(highest, v)
		}
	}
	longest, highest = max(longest, 1), max(highest, 1e-9)*1.05
	const width, height = linesLeft + linesWidth + linesRight, linesTop + linesHeight + linesBottom
	d := newDrawing(width, height)
	d.text(8, 20, "start", "black", title)
	for i := range 5 {
		y := linesTop + linesHeight*(4-i)/4
		d.add(`<line x1="%d" y1="%d" x2="%d" y2="%d" stroke="#dddddd"/>`, linesLeft, y, linesLeft+linesWidth, y)
		d.text(linesLeft-6, y+4, "end", "black", fmt.Sprintf("%.3g", highest*float64(i)/4))
		d.text(linesLeft+linesWidth*i/4, height-10, "middle", "black", fmt.Sprintf("%.3g min", longest/60*float64(i)/4))
	}
	for n, l := range lines {
		color := lineColors[n%len(lineColors)]
		var points strings.Builder
		for i, v := range l.Values {
			fmt.Fprintf(&points, "%.1f,%.1f ", linesLeft+linesWidth*l.Seconds[i]/longest, linesTop+linesHeight*(1-v/highest))
		}
		d.add(`<polyline fill="none" stroke="%s" stroke-width="1" points="%s"/>`, color, points.String())
		d.text(linesLeft+linesWidth+8, linesTop+14+16*n, "start", color, l.Name)
	}
	return d.writeTo(to)
}
