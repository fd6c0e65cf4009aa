package backends

import (
	"slices"
	"testing"
)

func TestOrphansAreRemovedWhenTheServerReturns(t *testing.T) {
	away, refused := Errorf(Unavailable, "abort", "", "away"), Errorf(Permission, "abort", "", "no")
	var l Orphans
	l.Keep("a", away)
	l.Keep("b", away)
	l.Keep("known not to be there", refused)
	var asked []string
	remove := func(answers ...error) func(string) error {
		asked = nil
		return func(name string) error {
			asked = append(asked, name)
			return answers[len(asked)-1]
		}
	}
	for _, step := range []struct {
		name    string
		answers []error
		want    []string
	}{
		{"while the server is away", []error{away}, []string{"a"}},
		{"when it goes in the middle", []error{nil, away}, []string{"a", "b"}},
		{"when it has come back", []error{refused}, []string{"b"}}, // it will be refused again
		{"afterwards", nil, nil},
	} {
		if l.Sweep(remove(step.answers...)); !slices.Equal(asked, step.want) {
			t.Errorf("%s: removed %q, want %q", step.name, asked, step.want)
		}
	}
}
