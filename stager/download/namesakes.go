package download

import (
	"hash/maphash"
	"strings"

	"golang.org/x/text/unicode/norm"

	"github.com/stager-dev/stager/backends"
)

// namesakes finds objects that would be one file, in a directory whose file system ignores case. Such
// file systems ignore the form of accents, too. A nil namesakes finds none. It folds less than
// [backends.Namesakes], whose result is asked of the store before anything is refused, and keeps no
// keys.
type namesakes struct {
	seed maphash.Seed
	seen map[uint64]bool // hashes, as a listing may be long
}

func newNamesakes(one bool) *namesakes {
	if !one {
		return nil
	}
	return &namesakes{maphash.MakeSeed(), make(map[uint64]bool)}
}

// add returns an error of kind Exist if an earlier key is the same name.
func (n *namesakes) add(dir, key string) error {
	if n == nil {
		return nil
	}
	hash := maphash.String(n.seed, strings.ToLower(strings.ToUpper(norm.NFC.String(key))))
	if n.seen[hash] {
		return backends.Errorf(backends.Exist, "write", key, "the file system of %s ignores case, and another object has this name in other letters: "+
			"use another directory, or leave one of them out with --exclude", dir)
	}
	n.seen[hash] = true
	return nil
}
