package bench

import (
	"encoding/xml"
	"fmt"
	"io"
	"strings"
)

// The colors of stager and of the other client.
const oursColor, theirsColor = "#2a6fbb", "#b9b9b9"

// drawing is an SVG, of which text is escaped. Numbers are pixels.
type drawing struct{ out strings.Builder }

// newDrawing begins one with a white background.
func newDrawing(width, height int) *drawing {
	d := new(drawing)
	d.add(`<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="12">`, width, height)
	d.add(`<rect width="100%%" height="100%%" fill="white"/>`)
	return d
}

// add adds a line as fmt.Sprintf returns it.
func (d *drawing) add(format string, args ...any) { fmt.Fprintf(&d.out, format+"\n", args...) }

// text adds words, whose anchor is start, middle or end.
func (d *drawing) text(x, y int, anchor, color, words string) {
	d.add(`<text x="%d" y="%d" text-anchor="%s" fill="%s">%s</text>`, x, y, anchor, color, escaped(words))
}

// String ends it.
func (d *drawing) String() string { return d.out.String() + "</svg>\n" }

func (d *drawing) writeTo(to io.Writer) error {
	_, err := io.WriteString(to, d.String())
	return err
}

func escaped(words string) string {
	var out strings.Builder
	xml.EscapeText(&out, []byte(words)) //nolint:errcheck // a Builder has no errors
	return out.String()
}
