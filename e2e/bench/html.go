package bench

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"slices"
	"strings"
	"time"
)

//go:embed report.html
var reportHTML string

var reportPage = template.Must(template.New("report").Parse(reportHTML))

// HTML writes the report as a page, which refers to no other file: the machine, the results and
// their goals, the wall times as a drawing, and all runs of each row.
func (r *Report) HTML(to io.Writer) error {
	var chart strings.Builder
	if err := Chart(&chart, r.Start.Machine, r.Results); err != nil {
		return err
	}
	var tables strings.Builder
	Table{Out: &tables}.Readings(r.Results)
	Table{Out: &tables}.Listings(r.Listings)
	var rows []reportRow
	for _, result := range r.Results {
		rows = append(rows, rowOf(result))
	}
	return reportPage.Execute(to, map[string]any{
		"Start": r.Start, "Rows": rows, "Notes": r.Notes, "Tables": strings.TrimSpace(tables.String()),
		"Chart":  template.HTML(chart.String()), // its words are escaped
		"Memory": fmt.Sprintf("%.1f GiB", float64(r.Start.Memory)/(1<<30)),
		"Date":   r.Start.Date.Format(time.RFC3339),
	})
}

// reportRow is a result as it is shown.
type reportRow struct {
	Store, Work, Peer string
	Figures           []string
	Goal              string
	Missed            bool
	Runs              template.HTML
}

func rowOf(r Result) reportRow {
	floorWall, floorCPU := r.floorFigures()
	mb := func(s Sample) string { return fmt.Sprintf("%.0f", float64(s.RSS)/1e6) }
	return reportRow{
		Store: r.Store, Work: r.Work, Peer: r.Peer, Goal: r.goal(), Missed: len(r.Missed) > 0,
		Figures: []string{
			fmt.Sprintf("%.2f", r.Ours.Wall.Seconds()), fmt.Sprintf("%.2f", r.Theirs.Wall.Seconds()), floorWall, fmt.Sprintf("%.2f", r.Ratios.Median()),
			fmt.Sprintf("%.0f", 100*r.Ratios.Uncertainty()), fmt.Sprint(len(r.Ratios)),
			fmt.Sprintf("%.2f", r.perGB(r.Ours)), fmt.Sprintf("%.2f", r.perGB(r.Theirs)), floorCPU, mb(r.Ours), mb(r.Theirs),
		},
		Runs: template.HTML(dots(r)), // it has no words but numbers
	}
}

// What a plot of dots measures, in pixels.
const dotsWidth, dotsMargin = 240, 8

// dots draws the wall time of each run, stager's above those of the peer, from 0 to the longest.
func dots(r Result) string {
	longest := max(slices.Max(append([]float64{1e-9}, r.OurRuns.Wall...)), slices.Max(append([]float64{0}, r.TheirRuns.Wall...)))
	d := newDrawing(dotsWidth+2*dotsMargin+50, 36)
	d.add(`<line x1="%d" y1="18" x2="%d" y2="18" stroke="#dddddd"/>`, dotsMargin, dotsMargin+dotsWidth)
	d.text(2*dotsMargin+dotsWidth, 22, "start", "#777777", fmt.Sprintf("%.2f s", longest))
	line := func(y int, color string, runs Runs) {
		for _, s := range runs.Wall {
			d.add(`<circle cx="%.1f" cy="%d" r="4" fill="%s" fill-opacity="0.5"><title>%.3f s</title></circle>`, dotsMargin+dotsWidth*s/longest, y, color, s)
		}
	}
	line(10, oursColor, r.OurRuns)
	line(26, "#777777", r.TheirRuns)
	return d.String()
}
