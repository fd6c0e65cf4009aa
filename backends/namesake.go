package backends

import (
	"context"
	"iter"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/text/unicode/norm"
)

// Namesakes returns, of keys that are to be written to one store, those that some store
// keeps as the same object as an earlier one of them, and that earlier one: names that
// differ in case, in Unicode normalization, or in dots and spaces at the end of a part;
// and names as DOS shortens them, such as "PROGRA~1", for which the earlier key is "".
// Whether this store does so [Store.Taken] finds out. Of two namesakes the earlier in
// keys may be written without a look.
func Namesakes(keys iter.Seq[string]) map[string]string {
	first := make(map[string]string)
	later := make(map[string]string)
	for key := range keys {
		form := foldKey(key)
		switch other, ok := first[form]; {
		case ok && other != key:
			later[key] = other
		case strings.Contains(key, "~") && dosShort.MatchString(key):
			later[key] = ""
			fallthrough
		default:
			first[form] = key
		}
	}
	return later
}

// dosShort matches keys with a part that may be the second name of another file.
var dosShort = regexp.MustCompile(`(?:^|/)[^/.]{1,6}~[0-9]{1,6}(?:\.[^/.]{1,3})?(?:/|$)`)

// foldKey returns a form that all keys share which a store may keep as one. It puts
// together more than any one store does.
func foldKey(key string) string {
	if plainKey(key) {
		return key
	}
	form := strings.ToLower(strings.ToUpper(norm.NFKC.String(key)))
	form = norm.NFKC.String(strings.ReplaceAll(form, "ß", "ss"))
	parts := strings.Split(form, "/")
	for i, part := range parts {
		parts[i] = strings.TrimRight(part, ". ")
	}
	return strings.Join(parts, "/")
}

// plainKey reports whether a key is its own folded form, as most are.
func plainKey(key string) bool {
	odd := func(c byte) bool { return c >= 0x80 || c >= 'A' && c <= 'Z' || c == '.' || c == ' ' }
	for i := range len(key) {
		if c := key[i]; odd(c) && (c != '.' && c != ' ' || i+1 == len(key) || slices.Contains([]byte("/. "), key[i+1])) {
			return false
		}
	}
	return true
}

// Taken reports whether the store has an object under a key that nobody wrote as such: a
// store that keeps namesakes as one answers with the other.
func (s *Store) Taken(ctx context.Context, key string) (bool, error) {
	_, err := s.Stat(ctx, key)
	if KindOf(err) == NotExist {
		return false, nil
	}
	return err == nil, err
}
