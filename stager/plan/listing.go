package plan

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"math"
	"path"
	"strings"

	"github.com/bmatcuk/doublestar/v4"
	"github.com/dustin/go-humanize/english"

	"github.com/stager-dev/stager/backends"
)

// Filter selects keys by patterns. An empty Include selects all keys; Exclude has precedence.
//
// A pattern without a slash is matched against the last element of the key, at any depth: "*.tar".
// Any other pattern is matched against the whole key: "train/**/*.tar"; a leading slash only has
// this effect: "/README". A trailing slash matches everything below: "logs/". In patterns, "*" and
// "?" do not match slashes, "**" does, "{a,b}" and "[0-9]" are alternatives, and a backslash
// escapes.
type Filter struct {
	Include []string `json:"include,omitempty"`
	Exclude []string `json:"exclude,omitempty"`
}

// Check returns an error for an invalid pattern.
func (f Filter) Check() error {
	for _, patterns := range [][]string{f.Include, f.Exclude} {
		for _, p := range patterns {
			if strings.Trim(p, "/") == "" || !doublestar.ValidatePattern(p) {
				return fmt.Errorf("invalid pattern %q: check for unclosed brackets or braces", p)
			}
		}
	}
	return nil
}

// Match reports whether the filter selects a key. The patterns must have passed Check.
func (f Filter) Match(key string) bool {
	return (len(f.Include) == 0 || matchAny(f.Include, key)) && !matchAny(f.Exclude, key)
}

func matchAny(patterns []string, key string) bool {
	for _, p := range patterns {
		name := key
		if !strings.Contains(p, "/") {
			name = path.Base(key)
		} else if p = strings.TrimPrefix(p, "/"); strings.HasSuffix(p, "/") {
			p += "**/*"
		}
		if doublestar.MatchUnvalidated(p, name) {
			return true
		}
	}
	return false
}

// Listing selects objects of a store.
type Listing struct {
	Filter   Filter
	Shard    Shard
	MaxBytes int64 // a larger partition is an error; 0: no limit
	Unpack   bool  // archives become directories, which must share no path with any other object
	// Marker is called for each empty object whose key ends in a slash. Some tools write these to
	// represent directories. They are omitted: a directory exists with its files, and one without
	// files is Skipped. May be nil.
	Marker func(key string)
	// Chosen is called for each object that the filter selects, also for those of other nodes. May
	// be nil.
	Chosen func(backends.Object)
	// Skipped is called for each directory entry of the source that the filter selects and that is
	// not an object: FIFOs, sockets, devices, directories without files. May be nil.
	Skipped func(key, what string)
	// Aside reports whether an object is not data, such as an index: it is neither selected nor
	// counted. May be nil.
	Aside func(backends.Object) bool
}

// LogSkipped returns a Listing.Skipped that names each entry in a log.
func LogSkipped(log *slog.Logger) func(key, what string) {
	return func(key, what string) {
		log.Info("an entry of the source has no content and is not copied", "key", key, "what", what)
	}
}

// Check returns an error for an invalid listing.
func (l Listing) Check() error {
	if err := l.Filter.Check(); err != nil {
		return err
	}
	if l.Shard == (Shard{}) {
		return nil
	}
	return l.Shard.check()
}

// Objects streams the selected objects in ascending order of their keys, which have passed [Names].
// Errors have type *backends.Error and end the listing. They are the store's errors and these
// kinds: Invalid for an invalid filter, partition or key, and at the very end, with the total, for
// too many bytes; NotExist if the filter selected nothing; and Changed, at the end, if a selected
// object, or a directory with its contents, was removed during the listing.
func (l Listing) Objects(ctx context.Context, store *backends.Store) iter.Seq2[backends.Object, error] {
	return func(yield func(backends.Object, error) bool) {
		var gone string // the first selected object that was removed
		ctx = backends.WithSkipped(ctx, func(s backends.Skipped) {
			wanted := l.Filter.Match(s.Key)
			if dir, ok := strings.CutSuffix(s.Key, "/"); ok { // its contents are unknown
				wanted = !matchAny(l.Filter.Exclude, dir+"/any")
			}
			switch {
			case !wanted:
			case !s.Vanished && l.Skipped != nil:
				l.Skipped(s.Key, s.What)
			case s.Vanished && gone == "":
				gone = s.Key
			}
		})
		for obj, err := range l.Choose(store.Name(), store.List(ctx, "")) {
			if !yield(obj, err) || err != nil {
				return
			}
		}
		if gone != "" {
			yield(backends.Object{}, &backends.Error{
				Op: "list", Store: store.Name(), Key: gone, Kind: backends.Changed,
				Err: errors.New("it was removed during the listing; run the command again when no files are being removed"),
			})
		}
	}
}

// Choose is Objects for a listing from elsewhere. Errors name source.
func (l Listing) Choose(source string, from iter.Seq2[backends.Object, error]) iter.Seq2[backends.Object, error] {
	return func(yield func(backends.Object, error) bool) {
		fail := func(kind backends.Kind, key string, err error) {
			yield(backends.Object{}, &backends.Error{Op: "list", Store: source, Key: key, Kind: kind, Err: err})
		}
		if err := l.Check(); err != nil {
			fail(backends.Invalid, "", err)
			return
		}
		names := Names{Unpack: l.Unpack}
		var chosen, mine int
		var total int64
		for obj, err := range from {
			if err != nil {
				yield(backends.Object{}, err)
				return
			}
			if strings.HasSuffix(obj.Key, "/") && obj.Size == 0 {
				if l.Marker != nil {
					l.Marker(obj.Key)
				}
				continue
			}
			if strings.HasPrefix(obj.Key, CopyRecords) || l.Aside != nil && l.Aside(obj) || !l.Filter.Match(obj.Key) {
				continue
			}
			if err := names.Check(obj.Key); err != nil {
				fail(backends.Invalid, obj.Key, fmt.Errorf("the key is not a valid path: %w", err))
				return
			}
			if obj.Size < 0 || obj.Size > math.MaxInt64-total {
				fail(backends.Invalid, obj.Key, fmt.Errorf("the store reports an invalid size of %d bytes", obj.Size))
				return
			}
			chosen++
			if l.Chosen != nil {
				l.Chosen(obj)
			}
			if !l.Shard.Owns(chosen - 1) {
				continue
			}
			mine++
			total += obj.Size
			if !yield(obj, nil) {
				return
			}
		}
		switch {
		case chosen == 0:
			fail(backends.NotExist, "", l.nothing())
		case l.MaxBytes > 0 && total > l.MaxBytes:
			fail(backends.Invalid, "", fmt.Errorf(
				"%s with %d bytes %s selected, but at most %d bytes are allowed; select fewer or raise the limit",
				english.Plural(mine, "object", ""), total, english.PluralWord(mine, "is", "are"), l.MaxBytes))
		}
	}
}

// nothing returns why a listing is empty.
func (l Listing) nothing() error {
	if len(l.Filter.Include)+len(l.Filter.Exclude) == 0 {
		return backends.InWords("there is no object here", backends.ErrNothing)
	}
	words := fmt.Sprintf("no object here matches the filter (include %q, exclude %q)", l.Filter.Include, l.Filter.Exclude)
	return backends.InWords(words, backends.ErrNothing)
}
