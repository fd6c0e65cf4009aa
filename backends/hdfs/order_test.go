package hdfs

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// ordered adds names in the order of a NameNode; directories end in "/". It returns them in the
// order of an order, with the largest number of held entries.
func ordered(names []string) (got []string, held int) {
	names = slices.Clone(names)
	bare := func(name string) string { return strings.TrimSuffix(name, "/") }
	slices.SortFunc(names, func(a, b string) int { return signed(bare(a), bare(b)) })
	var o order
	drain := func(seen string, all bool) {
		for {
			e, ok := o.next(seen, all)
			if !ok {
				return
			}
			got = append(got, e.name)
		}
	}
	for _, name := range names {
		o.add(entry{name: name})
		drain(bare(name), false)
		held = max(held, len(o.held))
	}
	drain("", true)
	return got, held
}

func TestOrderIsThatOfKeys(t *testing.T) {
	letters := []rune{'!', '-', '.', '/', '0', 'a', 'b', 'z', 'ü', 'ÿ', '日', '🚀'}
	random := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		names := make(map[string]bool) // each bare name occurs once
		for range random.IntN(12) {
			var name []rune
			for range 1 + random.IntN(4) {
				if r := letters[random.IntN(len(letters))]; r != '/' {
					name = append(name, r)
				}
			}
			if len(name) > 0 {
				names[string(name)] = random.IntN(2) == 0
			}
		}
		var in []string
		for name, directory := range names {
			if directory {
				name += "/"
			}
			in = append(in, name)
		}
		want := slices.Sorted(slices.Values(in))
		if got, _ := ordered(in); !slices.Equal(got, want) {
			t.Fatalf("got %q, want %q", got, want)
		}
	}
}

func TestOrderUsesLittleMemory(t *testing.T) {
	var names []string
	for i := range 5000 {
		names = append(names, strings.Repeat("x", i%3)+string(rune('a'+i%26))+strings.Repeat("-", i/1000)+"/")
	}
	if _, held := ordered(slices.Compact(slices.Sorted(slices.Values(names)))); held > 6 {
		t.Errorf("%d directories wait at once, want few", held)
	}
}
