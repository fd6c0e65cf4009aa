package pack

import (
	"crypto/sha256"
	"fmt"
	"iter"
	"math/rand/v2"
	"strings"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/stager/internal/shuffle"
	"github.com/stager-dev/stager/stager/plan"
)

// sample is the files that form one sample.
type sample struct {
	name  string // a/1 for a/1.jpg; "" for a file that WebDataset does not treat as part of a sample
	files plan.Members
}

// nameOf returns the name of the sample that a file belongs to.
func nameOf(key string) string {
	from := strings.LastIndexByte(key, '/') + 1
	dot := strings.IndexByte(key[from:], '.')
	if dot <= 0 {
		return ""
	}
	return key[:from+dot]
}

// class returns the topmost directory of a sample: cat for cat/7/a.jpg.
func (s sample) class() string {
	class, _, below := strings.Cut(s.name, "/")
	if !below {
		return ""
	}
	return class
}

// check refuses a sample with two files of one extension. WebDataset compares extensions in lower
// case, and fails when it reads such a sample.
func (s sample) check() error {
	if s.name == "" {
		return nil
	}
	var first string
	var seen map[string]string // nil if there is only one file
	for _, obj := range s.files.All() {
		if first == "" {
			first = obj.Key
			continue
		}
		if seen == nil {
			seen = map[string]string{strings.ToLower(first): first}
		}
		lower := strings.ToLower(obj.Key)
		if key, twice := seen[lower]; twice {
			return fmt.Errorf("%q and %q are files of one sample whose extensions differ only in case, which WebDataset rejects: rename one, or exclude one with --exclude",
				key, obj.Key)
		}
		seen[lower] = obj.Key
	}
	return nil
}

// samples groups the files of an ascending listing into samples.
func samples(listing iter.Seq2[backends.Object, error]) iter.Seq2[sample, error] {
	return func(yield func(sample, error) bool) {
		// Between two files of a sample, a.cls and a.jpg, there may be files of other samples, such
		// as a.d/x. All of them begin with its name.
		var open []sample
		end := func(key string) bool {
			for len(open) > 0 && !strings.HasPrefix(key, open[len(open)-1].name+".") {
				done := open[len(open)-1]
				open = open[:len(open)-1]
				if err := done.check(); err != nil {
					yield(sample{}, err)
					return false
				}
				if !yield(done, nil) {
					return false
				}
			}
			return true
		}
		for obj, err := range listing {
			if err != nil {
				yield(sample{}, err)
				return
			}
			if !end(obj.Key) {
				return
			}
			name := nameOf(obj.Key)
			if n := len(open); n > 0 && open[n-1].name == name {
				open[n-1].files.Add(obj)
				continue
			}
			s := sample{name: name}
			s.files.Add(obj)
			if name != "" {
				open = append(open, s)
			} else if !yield(s, nil) {
				return
			}
		}
		end("")
	}
}

// shuffled shuffles all samples by a seed.
func shuffled(from iter.Seq2[sample, error], seed uint64) iter.Seq2[sample, error] {
	return func(yield func(sample, error) bool) {
		var all []sample
		for s, err := range from {
			if err != nil {
				yield(sample{}, err)
				return
			}
			all = append(all, s)
		}
		shuffle.Shuffle(all, rand.NewChaCha8(sha256.Sum256(fmt.Appendf(nil, "stager pack 1\n%d", seed))))
		for _, s := range all {
			if !yield(s, nil) {
				return
			}
		}
	}
}
