package plan

import (
	"fmt"
	"slices"
	"strings"
)

// order checks an input's order and the fields that belong to it.
func (c *checker) order(at string, in Input) {
	o := in.Order
	c.aside(at+".index", in.Index)
	if in.Mode == ModePrefetch && in.Index != "" {
		c.add(at+".index", "it requires mode: window; remove it")
	}
	at += ".order"
	c.oneOf(at+".by", o.By, ByName, ByList, Shuffle, ByBlock, Balanced, Weighted)
	if in.Mode == ModePrefetch && slices.Contains([]string{ByList, ByBlock, Balanced, Weighted}, o.By) {
		c.add(at+".by", "mode prefetch fetches all objects before any is read; an order such as %s requires mode: window", o.By)
	}
	for _, option := range []struct {
		key string
		set bool
		by  string
	}{
		{"list", o.List != "", ByList},
		{"block", o.Block != 0, ByBlock},
		{"candidates", o.Candidates != 0, Balanced},
		{"over", o.Over != 0, Balanced},
		{"within", o.Within != "", Weighted},
	} {
		if option.set && o.By != option.by {
			c.add(at+"."+option.key, "it requires by: %s", option.by)
		}
	}
	if o.By == ByList && o.List == "" {
		c.add(at+".list", "set the object with the names, one per line, such as list: train.txt")
	}
	c.aside(at+".list", o.List)
	if o.By == Weighted && o.Within != "" {
		c.oneOf(at+".within", o.Within, ByName, Shuffle)
	}
	if o.By == ByBlock && o.Block == 0 {
		c.add(at+".block", "set the number of shards in a block, such as block: 64")
	}
	c.notNegative(at+".block", o.Block)
	c.notNegative(at+".candidates", o.Candidates)
	c.notNegative(at+".over", o.Over)

	if o.Equalize != "" {
		c.oneOf(at+".equalize", o.Equalize, EqualizeNone, EqualizeDrop, EqualizeWrap)
	}
	if in.Window != nil && in.Window.Release == ReleaseRolling && o.Equal() {
		c.add(at+".equalize", "release: rolling has no end of an epoch to equalize; remove it")
	} else if in.Mode == ModePrefetch && o.Equalize != "" {
		c.add(at+".equalize", "it requires mode: window; remove it")
	}

	if w := in.Window; w != nil && w.Grouped() && (o.By == Balanced || o.Equal()) && in.Index == "" && len(in.Sources) == 0 {
		c.add(at+".by", "the number of samples in %s is only known from an index; set index: index.jsonl on the input, with a line for each", w.Items)
	}
	c.notNegative(at+".epochs", o.Epochs)
	if in.Mode == ModePrefetch && o.Epochs != 1 {
		c.add(at+".epochs", "mode prefetch fetches everything once; remove it")
	} else if w := in.Window; w != nil && (w.Release == ReleaseRolling || w.Release == ReleaseNever) && o.Epochs != 1 {
		c.add(at+".epochs", "release: %s has no epochs; remove it", w.Release)
	}
}

// sources checks the sources of an input.
func (c *checker) sources(at string, in Input) {
	if in.Order.By == Weighted && in.Source != "" && len(in.Sources) == 0 {
		c.add(at+".order.by", "weighted mixes several sources; use sources: [{source: URL, weight: 7}, …] instead of source")
	}
	if len(in.Sources) == 0 {
		if c.reported[at+".sources"] {
			return
		}
		c.url(at+".source", in.Source)
		return
	}
	if in.Source != "" {
		c.add(at+".source", "the input also has sources; add it to them")
	}
	if in.Index != "" {
		c.add(at+".index", "each of sources has its own index; set it there")
	}
	if in.Order.By != Weighted {
		c.add(at+".order.by", "several sources require order: {by: weighted}; use source for a single one")
	}
	for i, s := range in.Sources {
		at := fmt.Sprintf("%s.sources[%d]", at, i)
		c.url(at+".source", s.Source)
		c.aside(at+".index", s.Index)
		if s.Weight < 1 || s.Weight > maxWeight {
			c.add(at+".weight", "weight must be a whole number from 1 to %[2]d (got %[1]d)", s.Weight, maxWeight)
		}
		c.secret(at, s.Credentials)
	}
}

// Aside reports whether a file that a plan names besides its data has a URL of its own. Otherwise
// name is the key of an object at the source.
func Aside(name string) bool { return strings.Contains(name, "://") }

func (c *checker) aside(at, name string) {
	switch {
	case name == "":
	case Aside(name):
		c.url(at, name)
	default:
		c.placeholders(at, name)
		if err := checkKey(name); err != nil {
			c.add(at, "invalid object %q; use a key of the source such as lists/train.txt, or a URL", name)
		}
	}
}
