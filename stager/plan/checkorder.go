package plan

import "strings"

// order checks in which order an input comes, and what is told for it.
func (c *checker) order(at string, in Input) {
	o := in.Order
	c.aside(at+".index", in.Index)
	if in.Mode == ModePrefetch && in.Index != "" {
		c.add(at+".index", "it is read with mode: window only; leave it out")
	}
	at += ".order"
	c.oneOf(at+".by", o.By, ByName, ByList, Shuffle, ByBlock, Balanced)
	if in.Mode == ModePrefetch && (o.By == ByList || o.By == ByBlock || o.By == Balanced) {
		c.add(at+".by", "mode prefetch brings all objects before any is read; only mode: window has an order like %s", o.By)
	}
	for _, option := range []struct {
		key string
		set bool
		by  string
	}{
		{"list", o.List != "", ByList}, {"block", o.Block != 0, ByBlock},
		{"candidates", o.Candidates != 0, Balanced}, {"over", o.Over != 0, Balanced},
	} {
		if option.set && o.By != option.by {
			c.add(at+"."+option.key, "it is read with by: %s only", option.by)
		}
	}
	if o.By == ByList && o.List == "" {
		c.add(at+".list", "say which object has the names, one a line, as in list: train.txt")
	}
	c.aside(at+".list", o.List)
	if o.By == ByBlock && o.Block == 0 {
		c.add(at+".block", "say how many shards a block has, as in block: 64")
	}
	c.notNegative(at+".block", o.Block)
	c.notNegative(at+".candidates", o.Candidates)
	c.notNegative(at+".over", o.Over)

	c.notNegative(at+".epochs", o.Epochs)
	if in.Mode == ModePrefetch && o.Epochs != 1 {
		c.add(at+".epochs", "mode prefetch brings everything once; leave it out")
	} else if w := in.Window; w != nil && (w.Release == ReleaseRolling || w.Release == ReleaseNever) && o.Epochs != 1 {
		c.add(at+".epochs", "with release: %s files are not counted by epochs; leave it out", w.Release)
	}
}

// Aside tells whether what a plan names beside its data has a URL of its own. Otherwise
// it is the key of an object at the source.
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
