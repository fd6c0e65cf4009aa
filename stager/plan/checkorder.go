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
		c.add(at+".index", "it is read with mode: window only; leave it out")
	}
	at += ".order"
	c.oneOf(at+".by", o.By, ByName, ByList, Shuffle, ByBlock, Balanced, Weighted)
	if in.Mode == ModePrefetch && slices.Contains([]string{ByList, ByBlock, Balanced, Weighted}, o.By) {
		c.add(at+".by", "mode prefetch brings all objects before any is read; only mode: window has an order like %s", o.By)
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
			c.add(at+"."+option.key, "it is read with by: %s only", option.by)
		}
	}
	if o.By == ByList && o.List == "" {
		c.add(at+".list", "say which object has the names, one a line, as in list: train.txt")
	}
	c.aside(at+".list", o.List)
	if o.By == Weighted && o.Within != "" {
		c.oneOf(at+".within", o.Within, ByName, Shuffle)
	}
	if o.By == ByBlock && o.Block == 0 {
		c.add(at+".block", "say how many shards a block has, as in block: 64")
	}
	c.notNegative(at+".block", o.Block)
	c.notNegative(at+".candidates", o.Candidates)
	c.notNegative(at+".over", o.Over)

	if o.Equalize != "" {
		c.oneOf(at+".equalize", o.Equalize, EqualizeNone, EqualizeDrop, EqualizeWrap)
	}
	if in.Window != nil && in.Window.Release == ReleaseRolling && o.Equal() {
		c.add(at+".equalize", "with release: rolling no part of any node ends; leave it out")
	} else if in.Mode == ModePrefetch && o.Equalize != "" {
		c.add(at+".equalize", "it is read with mode: window only; leave it out")
	}

	if w := in.Window; w != nil && w.Grouped() && (o.By == Balanced || o.Equal()) && in.Index == "" && len(in.Sources) == 0 {
		c.add(at+".by", "of %s only an index can tell the samples; give the input index: index.jsonl, with a line for each", w.Items)
	}
	c.notNegative(at+".epochs", o.Epochs)
	if in.Mode == ModePrefetch && o.Epochs != 1 {
		c.add(at+".epochs", "mode prefetch brings everything once; leave it out")
	} else if w := in.Window; w != nil && (w.Release == ReleaseRolling || w.Release == ReleaseNever) && o.Epochs != 1 {
		c.add(at+".epochs", "with release: %s files are not counted by epochs; leave it out", w.Release)
	}
}

// sources checks the sources of an input.
func (c *checker) sources(at string, in Input) {
	if in.Order.By == Weighted && in.Source != "" && len(in.Sources) == 0 {
		c.add(at+".order.by", "weighted mixes several sources; give the input sources: [{source: URL, weight: 7}, …] in place of source")
	}
	if len(in.Sources) == 0 {
		if c.reported[at+".sources"] {
			return
		}
		c.url(at+".source", in.Source)
		return
	}
	if in.Source != "" {
		c.add(at+".source", "the input has sources, too; put it among them")
	}
	if in.Index != "" {
		c.add(at+".index", "each of sources has an index of its own; put it there")
	}
	if in.Order.By != Weighted {
		c.add(at+".order.by", "several sources are mixed by weights: order: {by: weighted}; for one use source")
	}
	for i, s := range in.Sources {
		at := fmt.Sprintf("%s.sources[%d]", at, i)
		c.url(at+".source", s.Source)
		c.aside(at+".index", s.Index)
		if s.Weight < 1 || s.Weight > maxWeight {
			c.add(at+".weight", "%d is not between 1 and %d; weights are whole numbers such as 7 and 3", s.Weight, maxWeight)
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
			c.add(at, "%q cannot be an object of the source; write a key such as lists/train.txt, or a URL", name)
		}
	}
}
