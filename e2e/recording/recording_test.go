package recording

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"
)

// most is what a page may load for a picture.
const most = 60 << 10

func TestRunReturnsLinesWithTheirTimes(t *testing.T) {
	var echo bytes.Buffer
	lines, err := Run(exec.Command("sh", "-c", "echo one; echo two >&2"), &echo)
	if err != nil || len(lines) != 2 || lines[0].Text != "one" || lines[1].Text != "two" || lines[1].At < lines[0].At || lines[0].At <= 0 {
		t.Errorf("got %v, %v, want two lines in their order", lines, err)
	}
	if echo.String() != "one\ntwo\n" {
		t.Errorf("got %q echoed, want both lines", echo.String())
	}
	if _, err := Run(exec.Command("false"), io.Discard); err == nil {
		t.Error("got no error from a command that failed")
	}
}

func TestSVGShowsEachLineAtItsTime(t *testing.T) {
	p := Picture{Command: "run <it>", Title: "a & b", Marks: []Mark{{"bad", "bad"}}, Lines: []Line{
		{time.Second, "first"}, {time.Second, ""}, {61 * time.Second, "  a bad <line>"},
	}}
	text := string(p.SVG())
	wellFormed(t, []byte(text))
	for _, want := range []string{
		"$ run &lt;it&gt;</text>", "<title id=\"t\">a &amp; b</title>",
		">1.0 s</text>", ">61.0 s</text>", "class=\"bad\"", "  a bad &lt;line&gt;</text>",
		"#l2{animation:k2 12.8s", // 0.8 s of typing, 1 s, 2 s of the pause of a minute, 9 s at the end
		"@keyframes k0{0%,14.06%{opacity:0}14.07%,100%{opacity:1}}",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
	if again := string(p.SVG()); again != text {
		t.Error("the same picture has other bytes")
	}
}

// The picture of the manual must be one of a run that held its promises, and stand alone.
func TestSVGOfTheDemoStandsAlone(t *testing.T) {
	text, err := os.ReadFile("../../docs/assets/demo.svg")
	if err != nil {
		t.Fatal(err)
	}
	wellFormed(t, text)
	if len(text) > most {
		t.Errorf("got %d bytes, want at most %d", len(text), most)
	}
	for _, want := range []string{"every promise held", "lost       0", "prefers-color-scheme:dark", "prefers-reduced-motion:reduce"} {
		if !bytes.Contains(text, []byte(want)) {
			t.Errorf("%q is not in the picture", want)
		}
	}
	for _, other := range regexp.MustCompile(`(?i)href|url\(|@import|<script|https?://[^"]*`).FindAllString(string(text), -1) {
		if other != "http://www.w3.org/2000/svg" {
			t.Errorf("the picture has %q, which needs something besides it", other)
		}
	}
}

func wellFormed(t *testing.T, text []byte) {
	t.Helper()
	for d := xml.NewDecoder(bytes.NewReader(text)); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatal(err)
		}
	}
}
