package bench

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
	"time"
)

func TestChartIsOneBarForEachRun(t *testing.T) {
	var svg strings.Builder
	results := []Result{
		{Store: "s3 & more", Work: "get 1 GiB", Peer: "<peer>", Ours: Sample{Wall: time.Second}, Theirs: Sample{Wall: 2 * time.Second}},
		{Store: "nfs", Work: "put 1 GiB", Peer: "cp", Ours: Sample{Wall: 3 * time.Second}, Theirs: Sample{Wall: time.Second}},
	}
	if err := Chart(&svg, Machine{CPU: "any"}, results); err != nil {
		t.Fatal(err)
	}
	var widths []string
	for dec := xml.NewDecoder(strings.NewReader(svg.String())); ; {
		token, err := dec.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("it is no XML: %v", err)
		}
		if start, ok := token.(xml.StartElement); ok && start.Name.Local == "rect" {
			for _, a := range start.Attr {
				if a.Name.Local == "width" {
					widths = append(widths, a.Value)
				}
			}
		}
	}
	if got, want := strings.Join(widths, " "), "100% 210 420 420 140"; got != want {
		t.Errorf("the widths are %s, want %s", got, want)
	}
}
