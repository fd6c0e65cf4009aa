package yamledit

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

// A control character or an invalid byte is refused at its position, wherever it stands in the eight
// bytes that are examined at once.
func TestParseRefusesControlCharactersEverywhere(t *testing.T) {
	for at := range 24 {
		for _, c := range []byte{0, 1, '\v', 0x1f, 0x80, 0xff} {
			text := []byte("a: " + strings.Repeat("x", 30) + "\n")
			text[3+at] = c
			var refused *SyntaxError
			if err := Parse(&Document{Text: text, Line: 1}); !errors.As(err, &refused) || refused.Column != 4+at {
				t.Errorf("%q: got %v, want an error in column %d", text, err, 4+at)
			}
		}
	}
	for _, text := range []string{"a: \t1\n", "a: \x7f2345678\n", "a: b\r\nc: d\r\n", "a: 1234\u00e4\n"} {
		if err := Parse(&Document{Text: []byte(text), Line: 1}); err != nil {
			t.Errorf("%q: got %v, want no error", text, err)
		}
	}
}

// An editor that is used again has nothing of the document before.
func TestEditorYieldsItsText(t *testing.T) {
	edit := new(Editor)
	for _, text := range []string{"a: 1\nb:\n- x\n", "{\"a\": [1, 2]}", "a: {b: c}\r\n"} {
		d := &Document{Text: []byte(text), Line: 1}
		if err := Parse(d); err != nil {
			t.Fatal(err)
		}
		edit.Reset(d)
		if !edit.Yields(d.Text) {
			t.Errorf("%q: an editor without changes does not yield the text", text)
		}
		edit.Insert(d.Root, d.Root.Len()-1, Map{{Key: "k", Value: "v"}, {Key: "n", Value: int64(1)}})
		edit.Replace(d.Root, &d.Root.Pairs[0], []any{"new"})
		got := edit.Text()
		if !edit.Yields(got) {
			t.Errorf("%q: Yields is false for the result of Text, %q", text, got)
		}
		for _, other := range [][]byte{d.Text, got[1:], got[:len(got)-1], slices.Concat(got, []byte("x")), nil} {
			if edit.Yields(other) {
				t.Errorf("%q: Yields is true for %q, want it for %q only", text, other, got)
			}
		}
		fresh := &Document{Text: got, Line: 1}
		if err := Parse(fresh); err != nil || !fresh.Root.Get("k").Is("v") || fresh.Root.Get("a").All()[0].Text() != "new" {
			t.Errorf("%q became %q (%v), want a, k and n in it", text, got, err)
		}
	}
}

func TestNodesWithTheSameTextAreTheSame(t *testing.T) {
	d := &Document{Text: []byte("- a\n- 'a'\n- \"\\x61\"\n- b\n- 'it''s a text'\n- it's a\n  text\n- |-\n  a\n"), Line: 1}
	if err := Parse(d); err != nil {
		t.Fatal(err)
	}
	for _, a := range d.Root.All() {
		for _, b := range d.Root.All() {
			if want := a.Text() == b.Text(); a.Same(b) != want || a.Is(b.Text()) != want {
				t.Errorf("%q and %q: Same is %v, Is is %v; want %v", a.Raw(), b.Raw(), a.Same(b), a.Is(b.Text()), want)
			}
		}
		for _, part := range []string{"a", "it's", "text", "x61", "''"} {
			if got, want := a.Contains(part), strings.Contains(a.Text(), part); got != want {
				t.Errorf("%q contains %q: got %v, want %v", a.Raw(), part, got, want)
			}
		}
	}
}
