package backends

import (
	"context"
	"iter"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/text/unicode/norm"
)

// Namesakes returns the keys that some stores treat as the same object as an earlier key, mapped to
// that earlier key. Such keys differ only in case, in Unicode normalization, or in trailing dots
// and spaces of a path part. DOS short names, such as "PROGRA~1", map to "". Use [Store.Taken] to
// find out whether this store conflates them. The earlier of two namesakes may be written without
// that check.
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

// dosShort matches keys with a part that may be the DOS short name of another file.
var dosShort = regexp.MustCompile(`(?:^|/)[^/.]{1,6}~[0-9]{1,6}(?:\.[^/.]{1,3})?(?:/|$)`)

// foldKey returns a canonical form shared by all keys that a store may conflate. It folds more than
// any single store does.
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

// plainKey reports whether key equals its folded form, as most keys do.
func plainKey(key string) bool {
	odd := func(c byte) bool { return c >= 0x80 || c >= 'A' && c <= 'Z' || c == '.' || c == ' ' }
	for i := range len(key) {
		if c := key[i]; odd(c) && (c != '.' && c != ' ' || i+1 == len(key) || slices.Contains([]byte("/. "), key[i+1])) {
			return false
		}
	}
	return true
}

// Taken reports whether the store has an object under a key that was never written. A store that
// conflates namesakes returns the other object.
func (s *Store) Taken(ctx context.Context, key string) (bool, error) {
	_, err := s.Stat(ctx, key)
	if KindOf(err) == NotExist {
		return false, nil
	}
	return err == nil, err
}
