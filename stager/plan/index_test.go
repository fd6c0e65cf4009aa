package plan

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestIndexCounts(t *testing.T) {
	m := Manifest{Objects: List{{Key: "b.tar"}, {Key: "a.tar"}, {Key: "c.tar"}}}
	var x Index
	err := x.ReadLines(strings.NewReader(`{"key": "a.tar", "samples": 10, "classes": {"dog": 3, "cat": 7}}
{"classes":{"emu":5,"dog":1},"samples":6,"key":"b.tar"}

{"key": "other.tar", "samples": 1, "classes": {"ant": 1}}
`))
	if err != nil {
		t.Fatal(err)
	}
	if err := x.ReadBeside("c.tar", []byte("{\"samples\": 0,\n \"classes\": {}}\n")); err != nil {
		t.Fatal(err)
	}
	if err := m.Count(&x, true); err != nil {
		t.Fatal(err)
	}
	if want := []string{"ant", "cat", "dog", "emu"}; !cmp.Equal(m.Classes, want) {
		t.Errorf("got the classes %q, want %q", m.Classes, want)
	}
	want := []Counts{{6, []ClassCount{{2, 1}, {3, 5}}}, {10, []ClassCount{{1, 7}, {2, 3}}}, {0, []ClassCount{}}}
	if diff := cmp.Diff(want, m.Counts); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestIndexFaults(t *testing.T) {
	const form = `; write {"key": "a.tar", "samples": 100, "classes": {"cat": 60, "dog": 40}}`
	for _, tt := range []struct{ text, want string }{
		{`{"key": "a", "samples": 1}` + "\n" + `{"key": "a", "samples": 1}`, `line 2: duplicate "a", see line 1; write it once`},
		{`{"key": "a"}`, `line 1: "samples" is missing`},
		{`{"samples": 1}`, `line 1: "key" is missing`},
		{`{"key": "a", "samples": -1}`, `line 1: invalid "samples": -1`},
		{`{"key": "a", "samples": 1, "classes": {"cat": -1}}`, `line 1: class "cat" has an invalid number of samples: -1`},
		{`{"key": "a", "samples": 1, "classs": {}}`, `line 1: unknown field "classs"` + form},
		{`{"key": "a", "samples": 1} {}`, `line 1: unexpected data after the object; write one object per line`},
		{"\n[]\n{}", `line 2: cannot unmarshal array into Go value of type plan.indexLine` + form + "\n" + `line 3: "samples" is missing`},
		{strings.Repeat(" ", 1<<20+1), "line 1: the line is longer than 1 MiB; an index has one object per line"},
	} {
		var x Index
		if got := errorText(x.ReadLines(strings.NewReader(tt.text))); got != tt.want {
			t.Errorf("%.60s: got %s, want %s", tt.text, got, tt.want)
		}
	}
}

func TestCountsThatAreMissing(t *testing.T) {
	m := Manifest{Objects: List{{Key: "x/a.tar"}, {Key: "b.tar"}, {Key: "c"}, {Key: "d"}, {Key: "e"}}}
	var x Index
	if err := x.ReadLines(strings.NewReader(`{"key": "b.tar", "samples": 1}`)); err != nil {
		t.Fatal(err)
	}
	err := m.Count(&x, true)
	want := "the counts of classes are missing for 5 of 5 shards, such as x/a.tar, b.tar, c: add them to the input's index, or next to each shard, as in x/a.json"
	var env *EnvError
	if !errors.As(err, &env) || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestBeside(t *testing.T) {
	for key, want := range map[string]string{"a.tar": "a.json", "x.y/a": "x.y/a.json", "a.tar.gz": "a.tar.json", "a.json": "", "x/.json": ""} {
		if got := Beside(key); got != want {
			t.Errorf("beside %q lies %q, want %q", key, got, want)
		}
	}
}

// FuzzIndex checks that no input causes a panic, and that accepted input can be counted and
// ordered.
func FuzzIndex(f *testing.F) {
	f.Add([]byte(`{"key": "a", "samples": 10, "classes": {"dog": 3, "cat": 7}}` + "\n" + `{"key": "b", "samples": 2147483647, "classes": {"": 2147483647}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var x Index
		if err := x.ReadLines(strings.NewReader(string(text))); err != nil {
			if err.Error() == "" {
				t.Error("a fault without words")
			}
			return
		}
		m := Manifest{Objects: List{{Key: "a"}, {Key: "b"}}}
		if m.Count(&x, true) == nil {
			if got := orderOf(OrderSpec{By: Balanced}, m)(0); len(got) != 2 {
				t.Errorf("%q orders %v", text, got)
			}
		}
	})
}
