package http

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/internal/objectstore"
)

// mostObjects is how many objects braces may name.
const mostObjects = 1_000_000

// expand returns the objects of a path with braces, as WebDataset writes it: {000..146} for numbers,
// {a,b} for words.
func expand(root *url.URL, path string) (map[string]entry, error) {
	invalid := func(format string, args ...any) (map[string]entry, error) {
		return nil, backends.Errorf(backends.Invalid, "open", "", format, args...)
	}
	keys := []string{""}
	for rest := path; rest != ""; {
		text, after, more := strings.Cut(rest, "{")
		if strings.Contains(text, "}") {
			return invalid("unbalanced brace in the path of the URL")
		}
		words := []string{""}
		rest = ""
		if more {
			inner, behind, closed := strings.Cut(after, "}")
			if !closed || strings.Contains(inner, "{") {
				return invalid("unbalanced brace in the path of the URL; braces do not nest")
			}
			var err error
			if words, err = alternatives(inner); err != nil {
				return invalid("%w", err)
			}
			rest = behind
		}
		if len(keys)*len(words) > mostObjects {
			return invalid("the braces name more than %d objects", mostObjects)
		}
		next := make([]string, 0, len(keys)*len(words))
		for _, key := range keys {
			for _, word := range words {
				next = append(next, key+text+word)
			}
		}
		keys = next
	}
	listed := make(map[string]entry, len(keys))
	for _, key := range keys {
		if !objectstore.Passable(key) {
			return invalid("the braces name %q, which is no path of an object", key)
		}
		at := *root
		at.Path += key
		listed[key] = entry{at: &at, size: -1}
	}
	return listed, nil
}

// alternatives returns what stands for the inner part of a pair of braces.
func alternatives(inner string) ([]string, error) {
	from, to, numbers := strings.Cut(inner, "..")
	if !numbers {
		words := strings.Split(inner, ",")
		if len(words) < 2 {
			return nil, fmt.Errorf("{%s} names nothing: write {000..146} or {a,b}", inner)
		}
		return words, nil
	}
	first, err1 := strconv.ParseUint(from, 10, 32)
	last, err2 := strconv.ParseUint(to, 10, 32)
	if err1 != nil || err2 != nil || last < first {
		return nil, fmt.Errorf("{%s} is no ascending sequence of numbers, such as {000000..000146}", inner)
	}
	if last-first >= mostObjects {
		return nil, fmt.Errorf("{%s} names more than %d objects", inner, mostObjects)
	}
	width := 0
	if strings.HasPrefix(from, "0") || strings.HasPrefix(to, "0") {
		width = max(len(from), len(to))
	}
	words := make([]string, 0, last-first+1)
	for n := first; n <= last; n++ {
		words = append(words, fmt.Sprintf("%0*d", width, n))
	}
	return words, nil
}
