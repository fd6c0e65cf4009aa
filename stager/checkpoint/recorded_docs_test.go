package checkpoint

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stager-dev/stager/stager/internal/golden"
)

const completionPage = "../../docs/when-a-checkpoint-is-complete.md"

// The user documentation has a table of the recordings. It must match the results of the replays.
func TestDocumentedEvidenceIsThatOfReplays(t *testing.T) {
	type row struct {
		way, versions, first, later string
		seconds                     float64
	}
	var rows []row
	for _, r := range recordings(t) {
		count := &tally{evidence: make(map[string]bool)}
		inBubble(t, func(t *testing.T) { measure(newReplay(t, r, count)) })
		way, version := r.name[:strings.LastIndex(r.name, "-")], r.name[strings.LastIndex(r.name, "-")+1:]
		first, later := count.words[0], ""
		if len(count.words) > 1 {
			rest := make(map[string]bool)
			for _, word := range count.words[1:] {
				word, _, _ = strings.Cut(word, ",") // without what made it final later
				rest[word] = true
			}
			later = strings.Join(slices.Sorted(maps.Keys(rest)), ", ")
		}
		if n := len(rows); n > 0 && rows[n-1].way == way && rows[n-1].first == first && rows[n-1].later == later {
			rows[n-1].versions += ", " + version
			rows[n-1].seconds = max(rows[n-1].seconds, count.seconds)
			continue
		}
		rows = append(rows, row{way, version, first, later, count.seconds})
	}
	table := "| way of saving | versions | evidence of the first | of later ones | seconds, at most |\n|---|---|---|---|---|\n"
	for _, r := range rows {
		table += fmt.Sprintf("| `%s` | %s | %s | %s | %.0f |\n", r.way, r.versions, r.first, r.later, r.seconds)
	}
	text, err := os.ReadFile(completionPage)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, ok := strings.Cut(string(text), "-update -->\n")
	_, tail, ended := strings.Cut(rest, "<!-- end -->")
	if !ok || !ended {
		t.Fatalf("%s has no table of recordings", completionPage)
	}
	want := head + "-update -->\n\n" + table + "\n<!-- end -->" + tail
	if *golden.Update {
		if err := os.WriteFile(completionPage, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if string(text) != want {
		t.Errorf("%s: go test ./stager/checkpoint -run TestDocumentedEvidence -update writes it; replays give\n%s", completionPage, table)
	}
}
