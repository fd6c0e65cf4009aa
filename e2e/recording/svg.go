package recording

import (
	"bytes"
	"fmt"
	"html"
	"strings"
	"time"
	"unicode/utf8"
)

// Picture is what SVG draws.
type Picture struct {
	Command string // as it was typed
	Title   string // what a screen reader says first
	Lines   []Line
	Marks   []Mark
}

// Mark colors the lines that contain a text.
type Mark struct{ Text, Class string } // the class is bad or good

const (
	longestGap = 2 * time.Second        // a longer pause is shown as this one
	typing     = 800 * time.Millisecond // until the command is typed
	stillFor   = 9 * time.Second        // how long the end stays before it begins again

	charWidth  = 7.3 // of the widest font that is asked for, at 12 pixels
	lineHeight = 18
	barHeight  = 34
	margin     = 18
	gutter     = 58 // for the times
)

// style has both themes. Without animations, and for who wants none, the picture is its last frame.
const style = `text{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono","Liberation Mono",monospace;font-size:12px;fill:#1f2328;white-space:pre}
.paper{fill:#fff;stroke:#d0d7de}.bar{fill:#f3f4f6}.edge{stroke:#d0d7de}.time,.title{fill:#59636e}.time{text-anchor:end}.title{text-anchor:middle}.command{font-weight:600}.bad{fill:#b35900}.good{fill:#1a7f37;font-weight:600}
@media(prefers-color-scheme:dark){text{fill:#e6edf3}.paper{fill:#0d1117;stroke:#30363d}.bar{fill:#161b22}.edge{stroke:#30363d}.time,.title{fill:#8d96a0}.bad{fill:#f0883e}.good{fill:#3fb950}}
@media(prefers-reduced-motion:reduce){g{animation:none!important}}
`

// SVG returns the picture. The same picture gives the same bytes.
func (p Picture) SVG() []byte {
	starts, total := p.schedule()
	columns := len("$ ") + utf8.RuneCountInString(p.Command)
	for _, l := range p.Lines {
		columns = max(columns, utf8.RuneCountInString(l.Text))
	}
	width := 2*margin + gutter + int(charWidth*float64(columns))
	height := barHeight + 2*margin + lineHeight*len(p.Lines) + 6

	var b bytes.Buffer
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%[1]d" height="%d" role="img" aria-labelledby="t d">`+"\n", width, height)
	fmt.Fprintf(&b, "<title id=\"t\">%s</title>\n<desc id=\"d\">%s</desc>\n<style>\n%s", html.EscapeString(p.Title), html.EscapeString(p.text()), style)
	for i, start := range starts {
		at := 100 * start.Seconds() / total.Seconds()
		fmt.Fprintf(&b, "@keyframes k%d{0%%,%.2f%%{opacity:0}%.2f%%,100%%{opacity:1}}#l%[1]d{animation:k%[1]d %.1[4]fs linear infinite}\n", i, at, at+0.01, total.Seconds())
	}
	b.WriteString("</style>\n")
	fmt.Fprintf(&b, `<rect class="paper" x=".5" y=".5" width="%d" height="%d" rx="8"/>`+"\n", width-1, height-1)
	fmt.Fprintf(&b, `<path class="bar" d="M1 %dV9q0-8 8-8h%dq8 0 8 8v%dz"/><path class="edge" d="M1 %[1]d.5h%[4]d"/>`+"\n", barHeight, width-18, barHeight-9, width-2)
	fmt.Fprintf(&b, `<text class="title" x="%d" y="22">%s</text>`+"\n", width/2, html.EscapeString(p.Title))
	y, before := barHeight+margin+8, ""
	fmt.Fprintf(&b, `<text class="command" x="%d" y="%d">$ %s</text>`+"\n", margin+gutter, y, html.EscapeString(p.Command))
	for i, l := range p.Lines {
		y += lineHeight
		if l.Text == "" {
			continue
		}
		fmt.Fprintf(&b, `<g id="l%d">`, i)
		if time := fmt.Sprintf("%.1f s", l.At.Seconds()); time != before {
			fmt.Fprintf(&b, `<text class="time" x="%d" y="%d">%s</text>`, margin+gutter-14, y, time)
			before = time
		}
		fmt.Fprintf(&b, `<text%s x="%d" y="%d" xml:space="preserve">%s</text></g>`+"\n", p.class(l.Text), margin+gutter, y, html.EscapeString(l.Text))
	}
	b.WriteString("</svg>\n")
	return b.Bytes()
}

// schedule returns when each line appears, and the length of a round. Long pauses are shortened.
func (p Picture) schedule() (starts []time.Duration, total time.Duration) {
	at, before := typing, time.Duration(0)
	for _, l := range p.Lines {
		at += min(l.At-before, longestGap)
		before = l.At
		starts = append(starts, at)
	}
	return starts, at + stillFor
}

func (p Picture) class(line string) string {
	for _, m := range p.Marks {
		if strings.Contains(line, m.Text) {
			return ` class="` + m.Class + `"`
		}
	}
	return ""
}

// text is what the picture says, for who cannot see it.
func (p Picture) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "$ %s\n", p.Command)
	for _, l := range p.Lines {
		fmt.Fprintln(&b, l.Text)
	}
	return strings.TrimSpace(b.String())
}
