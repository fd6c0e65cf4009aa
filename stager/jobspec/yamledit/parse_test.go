package yamledit

import (
	"bytes"
	"fmt"
	"testing"

	"go.yaml.in/yaml/v3"
)

// seeds are documents in every style that manifests use.
var seeds = []string{
	"a: 1\nb:\n- x\n- y: 2\n  z: [1, two, {three: 3}]\n",
	"# head\n---\na: &x\n  k: v\nb: *x\nc: {<<: *x, d: e}\n",
	"a: |\n  text\n\n   more\n\nb: >-\n  folded\n  text\nc: |+\n  kept\n\n\nd: |2\n   two\n",
	"{\"a\": [1, 2.5, null, true, \"s\\u0041\\\"\\n\"], \"b\": {\"c\": {}}, \"d\": []}\n",
	"{\n\t\"a\": 1,\n\t\"b\": [\n\t\t{\"c\": 2}\n\t]\n}",
	"a: b\r\nc:\r\n  - d\r\n  - |\r\n    e\r\n    f\r\n",
	"\xef\xbb\xbfa: b\n",
	"a: plain\n  over two\n  lines # comment\nb: 'it''s\n\n  quoted'\nc: \"dou\\\n  ble\"\n",
	"- - a\n  - b\n- - c\n-\n  d: e\n-\n",
	"a:\nb: ~\nc: ''\nd: !!str 5\ne: !local {x: y}\n",
	"key with spaces: value with spaces\n\"quoted key\" : v\n'k': v\nurl: http://x:80/#frag\n",
	"a: [x,\n  y, # why\n  z,\n]\nb: {c, d: , e: 'f',}\n",
	"!0\n !0 00",
	"{0:} ",
	"\xff\xfe",
	"\u2000",
	"--- # comment\na: 1\n...\n# end\n",
	"%YAML 1.1\n---\na: 1\n",
	"a: -1\nb: -x\n",
	"a: ?x\nb: x ? y\nc: -x\nd: a#b\n",
}

// same compares our tree with that of a widely trusted library.
func same(ours *Node, theirs *yaml.Node) error {
	if ours == nil {
		return fmt.Errorf("nothing, want %s", theirs.Value)
	}
	if ours.Kind != Alias && ours.Anchor != theirs.Anchor {
		return fmt.Errorf("anchor %q, want %q", ours.Anchor, theirs.Anchor)
	}
	switch theirs.Kind {
	case yaml.ScalarNode:
		if ours.Kind == Null && theirs.Value == "" {
			return nil
		}
		if ours.Kind != Scalar || ours.Text() != theirs.Value {
			return fmt.Errorf("%v %q, want scalar %q in line %d", ours.Kind, ours.Text(), theirs.Value, theirs.Line)
		}
	case yaml.AliasNode:
		if ours.Kind != Alias || ours.Anchor != theirs.Value {
			return fmt.Errorf("%v, want alias %s", ours.Kind, theirs.Value)
		}
	case yaml.MappingNode:
		if ours.Kind != Mapping || len(ours.Pairs)*2 != len(theirs.Content) {
			return fmt.Errorf("%v with %d pairs, want %d", ours.Kind, len(ours.Pairs), len(theirs.Content)/2)
		}
		for i, p := range ours.Pairs {
			if err := same(p.Key, theirs.Content[2*i]); err != nil {
				return fmt.Errorf("key: %w", err)
			}
			if err := same(p.Value, theirs.Content[2*i+1]); err != nil {
				return fmt.Errorf("%s: %w", p.Key.Text(), err)
			}
		}
	case yaml.SequenceNode:
		if ours.Kind != Sequence || len(ours.Items) != len(theirs.Content) {
			return fmt.Errorf("%v with %d items, want %d", ours.Kind, len(ours.Items), len(theirs.Content))
		}
		for i, item := range ours.Items {
			if err := same(item, theirs.Content[i]); err != nil {
				return fmt.Errorf("[%d]: %w", i, err)
			}
		}
	}
	return nil
}

// reader is reused for all comparisons, so it has parsed valid and invalid documents before.
var reader Reader

// compare returns the difference between our tree and the library's. Input that either of them
// refuses is no difference.
func compare(data []byte) error {
	for _, d := range Split(data) {
		ourErr := reader.Parse(d)
		var theirs yaml.Node
		theirErr := yaml.Unmarshal(d.Text, &theirs)
		if ourErr != nil || theirErr != nil {
			continue
		}
		if len(theirs.Content) == 0 {
			if d.Root != nil {
				return fmt.Errorf("%q has a root, want none", d.Text)
			}
			continue
		}
		if d.Root == nil && theirs.Content[0].Tag == "!!null" {
			continue
		}
		if err := same(d.Root, theirs.Content[0]); err != nil {
			return fmt.Errorf("%q: %w", d.Text, err)
		}
	}
	return nil
}

// If this package parsed a tree differently from other parsers, it would edit the wrong place.
func TestTreesAreThoseOfTheLibrary(t *testing.T) {
	for _, seed := range seeds {
		for _, d := range Split([]byte(seed)) {
			if err := Parse(d); err != nil {
				t.Logf("%q: %v", seed, err)
			}
		}
		if err := compare([]byte(seed)); err != nil {
			t.Error(err)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, seed := range seeds {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if err := compare(data); err != nil {
			t.Error(err)
		}
		var all []byte
		for _, d := range Split(data) {
			all = append(all, d.Text...)
		}
		if !bytes.Equal(all, data) {
			t.Errorf("the documents of %q are %q", data, all)
		}
	})
}
