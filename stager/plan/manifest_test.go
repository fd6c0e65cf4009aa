package plan

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stager-dev/stager/backends"
)

func TestDigest(t *testing.T) {
	m := Manifest{Objects: List{{Key: "a.tar", Size: 10, Version: "v1"}, {Key: "b.tar", Size: 20, Version: "v2"}}}
	order, part := OrderSpec{By: Shuffle, Seed: 17, Epochs: 3}, Shard{0, 2}
	first := digestOf(m, order, part)
	if want := "067addd641abafe8a380debc494189b176cafb1adbe7c716b306a838e298e461"; first != want {
		t.Errorf("got %s, want %s: every running job would begin anew", first, want)
	}
	longer := order
	longer.Epochs = 9
	if got := digestOf(m, longer, part); got != first {
		t.Error("more epochs make another plan")
	}
	counted := m
	counted.Classes, counted.Counts = []string{"cat"}, []Counts{{1, []ClassCount{{0, 1}}}, {2, nil}}
	if got := digestOf(counted, order, part); got != first {
		t.Error("counts make another plan of an order that does not look at them")
	}
	if whole := digestOf(m, order, Shard{}); whole != digestOf(m, order, Shard{0, 1}) {
		t.Error("one node of one and the whole are two plans")
	}

	digests := []string{first}
	other := func(m Manifest, order OrderSpec, part Shard) {
		t.Helper()
		d := digestOf(m, order, part)
		if slices.Contains(digests, d) {
			t.Errorf("%v %v %v has the digest of another plan", m, order, part)
		}
		digests = append(digests, d)
	}
	other(Manifest{Objects: listOf(m)[:1]}, order, part)
	other(Manifest{Objects: List{listOf(m)[1], listOf(m)[0]}}, order, part)
	for _, change := range []func(*backends.Object){
		func(o *backends.Object) { o.Key = "c.tar" },
		func(o *backends.Object) { o.Size = 11 },
		func(o *backends.Object) { o.Version = "v3" },
		func(o *backends.Object) { o.Key = "a.tar\" 10 \"v1\"\n\"b.tar" },
	} {
		changed := slices.Clone(listOf(m))
		change(&changed[0])
		other(Manifest{Objects: changed}, order, part)
	}
	other(m, OrderSpec{By: ByName, Seed: 17}, part)
	other(m, OrderSpec{By: ByList, Seed: 17}, part)
	other(m, OrderSpec{By: Shuffle, Seed: 18}, part)
	other(m, order, Shard{1, 2})
	other(m, order, Shard{0, 3})
	other(m, OrderSpec{By: ByBlock, Seed: 17, Block: 4}, part)
	other(m, OrderSpec{By: ByBlock, Seed: 17, Block: 5}, part)
	equal := OrderSpec{By: Shuffle, Seed: 17, Equalize: EqualizeDrop}
	other(counted, equal, part)
	counted.Counts = []Counts{{1, []ClassCount{{0, 1}}}, {3, nil}}
	other(counted, equal, part)
	blended := m
	blended.Shares = []Share{{"a", 1, 1}, {"b", 1, 1}}
	weighted := OrderSpec{By: Weighted, Seed: 17}
	other(blended, weighted, part)
	other(blended, OrderSpec{By: Weighted, Seed: 17, Within: ByName}, part)
	blended.Shares = []Share{{"a", 1, 1}, {"b", 1, 2}}
	other(blended, weighted, part)
	blended.Counts = counted.Counts
	other(blended, weighted, part)
	balanced := OrderSpec{By: Balanced, Seed: 17}
	other(counted, balanced, part)
	other(counted, OrderSpec{By: Balanced, Seed: 17, Over: 100}, part)
	other(counted, OrderSpec{By: Balanced, Seed: 17, Candidates: 100}, part)
	counted.Classes = []string{"dog"}
	other(counted, balanced, part)
	counted.Counts = []Counts{{1, []ClassCount{{0, 1}}}, {2, []ClassCount{{0, 2}}}}
	other(counted, balanced, part)
}

func TestArrange(t *testing.T) {
	m := Manifest{Objects: List{{Key: "a"}, {Key: "b c"}, {Key: "d"}, {Key: "#e"}}}
	for _, tt := range []struct{ list, want, wrong string }{
		{list: "d\na\n", want: "d a"},
		{list: "d\r\n\r\n#e", want: "d #e"},
		{list: "\n\nb c\n", want: "b c"},
		{list: "a\nx\nd\na\n", wrong: "line 2: \"x\" is not in the source, or the input's include and exclude skip it\nline 4: duplicate \"a\", see line 1; write it once"},
		{list: "x\nx\n", wrong: "line 1: \"x\" is not in the source, or the input's include and exclude skip it\nline 2: duplicate \"x\", see line 1; write it once"},
		{list: " a\n", wrong: "line 1: \" a\" is not in the source, or the input's include and exclude skip it"},
		{list: "\n", wrong: "the list is empty; write one name per line"},
		{list: "", wrong: "the list is empty; write one name per line"},
		{list: "a\n" + strings.Repeat("x", 10_000), wrong: "line 2: the line is longer than any name; a list has one name per line"},
	} {
		got, err := m.Arrange(strings.NewReader(tt.list))
		var names []string
		for _, o := range listOf(got) {
			names = append(names, o.Key)
		}
		if text := errorText(err); text != tt.wrong || err == nil && strings.Join(names, " ") != tt.want {
			t.Errorf("%.20q: got %q, %s; want %q, %s", tt.list, names, text, tt.want, tt.wrong)
		}
	}
	_, err := m.Arrange(strings.NewReader(strings.Repeat("?\n", 100)))
	if lines := strings.Split(errorText(err), "\n"); len(lines) != faultsListed+1 || lines[faultsListed] != "and 80 more like these" {
		t.Errorf("a hundred faults are told as %q", lines)
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// Digests of before hold escaped keys as fmt writes them.
func TestDigestQuotesAsFmtDoes(t *testing.T) {
	for c := range rune(0x180) {
		for _, s := range []string{string(c), "a" + string(c) + "b", string([]byte{byte(c)}), ""} {
			if got, want := string(appendQuoted([]byte("x"), s)), "x"+fmt.Sprintf("%q", s); got != want {
				t.Errorf("%q: got %s, want %s", s, got, want)
			}
		}
	}
}
