package bench

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/html"
)

// elements returns all elements of a name below a node.
func elements(n *html.Node, name string) (all []*html.Node) {
	for c := range n.Descendants() {
		if c.Type == html.ElementNode && c.Data == name {
			all = append(all, c)
		}
	}
	return all
}

func words(n *html.Node) (all string) {
	for c := range n.Descendants() {
		if c.Type == html.TextNode {
			all += c.Data
		}
	}
	return strings.TrimSpace(all)
}

func attribute(n *html.Node, name string) string {
	for _, a := range n.Attr {
		if a.Key == name {
			return a.Val
		}
	}
	return ""
}

func page(t *testing.T, r Report) (text string, root *html.Node) {
	var out strings.Builder
	if err := r.HTML(&out); err != nil {
		t.Fatal(err)
	}
	root, err := html.Parse(strings.NewReader(out.String()))
	if err != nil {
		t.Fatal(err)
	}
	return out.String(), root
}

func TestPageHasRowsAndRuns(t *testing.T) {
	evil := "<script>alert('1')</script>&amp;"
	r := Report{
		Start: Start{Machine: Machine{CPU: evil, Cores: 2, Memory: 3 << 29, Stager: evil}, Date: time.Date(2026, 11, 29, 10, 0, 0, 0, time.UTC), Only: evil},
		Results: []Result{
			{
				Store: evil, Work: "get 1 GB", Peer: evil, Bytes: 1e9, Goal: Goal{Ratio: 3}, Missed: []string{"wall 2.00×"},
				Ours: Sample{Wall: time.Second, CPU: time.Second / 2, RSS: 40e6}, Theirs: Sample{Wall: 2 * time.Second, CPU: time.Second, RSS: 20e6}, Ratios: Ratios{2, 2},
				OurRuns: Runs{Wall: []float64{1, 1.25}}, TheirRuns: Runs{Wall: []float64{2, 2.5, 0}},
				Floor: Sample{Wall: time.Second / 2, CPU: time.Second / 4}, FloorRuns: Runs{Wall: []float64{0.5}},
			},
			{Store: "nfs", Work: "put 1 GB", Peer: "cp", Bytes: 1e9, Goal: Goal{Ratio: 3}, Ratios: Ratios{3}},
		},
		Listings: []Listing{{Objects: 1_000_000, Order: "by name"}},
		Notes:    []string{evil},
	}
	text, root := page(t, r)
	if len(elements(root, "script")) > 0 {
		t.Error("a name became an element")
	}
	var rows [][]string
	var missed []bool
	for _, tr := range elements(elements(root, "table")[1], "tr")[1:] {
		var cells []string
		for _, td := range elements(tr, "td") {
			cells = append(cells, words(td))
		}
		rows = append(rows, cells[:15])
		missed = append(missed, attribute(tr, "class") == "missed")
	}
	want := [][]string{
		{evil, "get 1 GB", evil, "1.00", "2.00", "0.50", "2.00", "0", "2", "0.50", "1.00", "0.25", "40", "20", "≥ 3.0×; missed: wall 2.00×"},
		{"nfs", "put 1 GB", "cp", "0.00", "0.00", "", "3.00", "0", "1", "0.00", "0.00", "", "0", "0", "≥ 3.0×"},
	}
	if !reflect.DeepEqual(rows, want) || !slices.Equal(missed, []bool{true, false}) {
		t.Errorf("got rows\n%q, missed %v, want\n%q, only the first missed", rows, missed, want)
	}
	var dots []string
	for _, c := range elements(root, "circle") {
		dots = append(dots, attribute(c, "cx")+","+attribute(c, "cy")+" "+words(c))
	}
	if want := []string{"104.0,10 1.000 s", "128.0,10 1.250 s", "200.0,26 2.000 s", "248.0,26 2.500 s", "8.0,26 0.000 s"}; !slices.Equal(dots, want) {
		t.Errorf("got dots %q, want %q", dots, want)
	}
	if got := len(elements(root, "svg")); got != 2+1 {
		t.Errorf("got %d drawings, want one of each row and one of all", got)
	}
	if got := words(elements(root, "table")[0]); !strings.Contains(got, evil+", 2 cores") || !strings.Contains(got, "1.5 GiB") || !strings.Contains(got, "2026-11-29T10:00:00Z") {
		t.Errorf("got the facts %q, want processor, memory and date in them", got)
	}
	if got := words(elements(root, "pre")[0]); !strings.Contains(got, "| 1,000,000 | by name |") {
		t.Errorf("got other figures %q, want the listing in them", got)
	}
	if got := words(elements(root, "li")[0]); got != evil {
		t.Errorf("got the note %q, want %q", got, evil)
	}
	// A namespace is a name, and nothing is fetched from it.
	for _, foreign := range []string{"src=", "href", "url(", "@import", "http"} {
		if strings.Contains(strings.ReplaceAll(text, `xmlns="http://www.w3.org/2000/svg"`, ""), foreign) {
			t.Errorf("the page contains %q, want nothing from elsewhere", foreign)
		}
	}
}

func TestPageOfListingsHasNoRows(t *testing.T) {
	_, root := page(t, Report{Listings: []Listing{{Objects: 1}}})
	if got := len(elements(root, "svg")); got != 0 {
		t.Errorf("got %d drawings, want none", got)
	}
}
