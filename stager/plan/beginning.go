package plan

import (
	"fmt"
	"strconv"
	"strings"
)

// beginningPrefix begins the name of no plan: a [Digest] is hexadecimal.
const beginningPrefix = "first-"

// Beginning returns the name of the first n objects of an input's order, from their [Digest]. Another
// listing has the same beginning if the digest of its first n objects is the same, see [Begins].
func Beginning(n int, digest string) string {
	return fmt.Sprintf("%s%d-%s", beginningPrefix, n, digest)
}

// ParseBeginning returns the number of objects in a name of Beginning; 0 for any other name.
func ParseBeginning(name string) (n int, digest string) {
	rest, ok := strings.CutPrefix(name, beginningPrefix)
	number, digest, found := strings.Cut(rest, "-")
	n, err := strconv.Atoi(number)
	if !ok || !found || err != nil || n < 1 {
		return 0, ""
	}
	return n, digest
}

// Begins returns the number of objects that Beginning has named, if the objects of an input, in the order
// of their listing, begin with them; 0 if they do not, or cannot be read.
func Begins(in Input, objects Objects, name string) int {
	n, want := ParseBeginning(name)
	d := NewDigester(in)
	if n == 0 || n > objects.Len() || d == nil || in.Order.By != ByName {
		return 0
	}
	for i := range n {
		obj, err := objects.At(i)
		if err != nil {
			return 0
		}
		d.Add(obj)
	}
	if d.Sum() != want {
		return 0
	}
	return n
}
