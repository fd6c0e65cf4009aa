package backends

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync/atomic"
	"time"
)

// List yields the objects below prefix; see Source. After a failure it resumes behind the last key
// that it yielded. A long listing of a store with slow pages requests several pages at once; see
// ahead.go.
func (s *Store) List(ctx context.Context, prefix string) iter.Seq2[Object, error] {
	return func(yield func(Object, error) bool) {
		stopped := false
		err := s.listAhead(ctx, prefix, func(obj Object) bool {
			stopped = !yield(obj, nil)
			return !stopped
		})
		if err != nil && !stopped {
			yield(Object{}, err)
		}
	}
}

// ListLevel yields the objects and directories whose keys begin with prefix, up to the next "/"; see
// LevelLister. Backends that cannot list one level list everything for it.
func (s *Store) ListLevel(ctx context.Context, prefix string) iter.Seq2[Object, error] {
	return func(yield func(Object, error) bool) {
		stopped := false
		l := &listing{
			store: s, prefix: prefix,
			list: func(ctx context.Context, full string) iter.Seq2[Object, error] {
				if l, ok := s.backend.(LevelLister); ok {
					return directories(l.ListLevel(ctx, full), full)
				}
				return directories(s.backend.List(ctx, full), full)
			},
			each: func(obj Object) bool {
				stopped = !yield(obj, nil)
				return !stopped
			},
		}
		err := s.retry(skippedBelow(ctx, s.prefix), "list", prefix, l.try)
		if err != nil && !stopped {
			yield(Object{}, err)
		}
	}
}

// directories replaces the objects below each directory by the directory. A prefix ends before its
// name, or in it.
func directories(all iter.Seq2[Object, error], prefix string) iter.Seq2[Object, error] {
	return func(yield func(Object, error) bool) {
		last := ""
		for obj, err := range all {
			if err == nil && len(obj.Key) > len(prefix) {
				if name, _, below := strings.Cut(obj.Key[len(prefix):], "/"); below {
					dir := prefix + name + "/"
					if dir == last {
						continue
					}
					last, obj = dir, Object{Key: dir}
				}
			}
			if !yield(obj, err) {
				return
			}
		}
	}
}

// paging is what a Store and its Subs know of the listings of their server.
type paging struct {
	fromStart atomic.Bool  // a listing cannot begin behind a key, although the backend is a PageLister
	throttled atomic.Int64 // when a page was refused for the rate of requests, in Unix nanoseconds
}

// A position is where a listing resumes: behind the last of n keys that were yielded.
type position struct {
	before, last string // the last two
	n            int
}

// next returns the position behind a key.
func (p position) next(key string) position { return position{p.last, key, p.n + 1} }

// scan calls each for the objects below prefix behind a position, until it returns false. After a failure
// it resumes behind the last one.
func (s *Store) scan(ctx context.Context, prefix string, at position, each func(Object) bool) error {
	pages, _ := s.backend.(PageLister)
	l := &listing{store: s, prefix: prefix, at: at, pages: pages, list: s.backend.List, each: each}
	return s.retry(ctx, "list", prefix, l.try)
}

// scanBehind is scan behind a start that need not be a key. It fails with errFromStart if the server cannot
// begin there.
func (s *Store) scanBehind(ctx context.Context, pages PageLister, prefix, start string, each func(Object) bool) error {
	l := &listing{store: s, prefix: prefix, start: start, pages: pages, each: each}
	return s.retry(ctx, "list", prefix, l.try)
}

// listing is a listing with retries.
type listing struct {
	store  *Store
	prefix string
	at     position
	start  string     // each attempt begins behind it; "": behind the position
	pages  PageLister // nil: it always begins with the first key
	list   func(ctx context.Context, prefix string) iter.Seq2[Object, error]
	each   func(Object) bool

	whole   bool // the next attempt begins with the first key
	refused bool // because the server cannot do otherwise, so that it must list as many keys up to last again
}

// begin returns the listing of an attempt, and the key behind which it begins; "" for the first one.
func (l *listing) begin(ctx context.Context) (all iter.Seq2[Object, error], behind string) {
	s := l.store
	switch {
	case l.start != "":
		behind = l.start
	case l.pages != nil && !l.whole && !s.paging.fromStart.Load():
		behind = l.at.before
	}
	if behind == "" {
		return l.list(ctx, s.prefix+l.prefix), ""
	}
	return l.pages.ListAfter(ctx, s.prefix+l.prefix, s.prefix+behind), behind
}

// try lists until the first failure. If it begins behind the last key but one, that is only trusted if the
// last one comes first.
func (l *listing) try(a *attempt) error {
	resumed, again, last := l.at, 0, ""
	all, behind := l.begin(a)
	trusted := behind == "" || l.start != ""
	for obj, err := range all {
		if err != nil {
			return l.failed(err, behind)
		}
		obj.Key = strings.TrimPrefix(obj.Key, l.store.prefix)
		switch {
		case obj.Key <= last && last != "":
			return Errorf(Corrupt, "list", l.prefix, "%q is listed after %q, so keys may be missing", obj.Key, last)
		case obj.Key <= behind && behind != "":
			return l.fromStart(errIgnored)
		case !trusted && obj.Key != resumed.last:
			return l.distrust()
		}
		last, trusted = obj.Key, true
		if obj.Key <= resumed.last {
			again++
			a.alive()
			continue // yielded before the failure, or the directory itself
		}
		if err := l.resumed(resumed, again); err != nil {
			return err
		}
		l.at = l.at.next(obj.Key)
		a.Reset()
		a.Pause() // time spent by the caller is not a stall of the store
		if !l.each(obj) {
			return nil
		}
		a.alive()
	}
	if !trusted {
		return l.distrust()
	}
	return l.resumed(resumed, again)
}

// distrust makes the next attempt begin with the first key, and returns the error of this one.
func (l *listing) distrust() error {
	l.whole = true
	return &Error{Kind: Unavailable, Err: errors.New("the last key that was listed is not there any more")}
}

// failed returns the error of an attempt.
func (l *listing) failed(err error, behind string) error {
	switch kind := KindOf(err); {
	case behind != "" && (kind == Unsupported || kind == Invalid):
		return l.fromStart(err)
	case kind == Throttled:
		l.store.paging.throttled.Store(time.Now().UnixNano())
	}
	return err
}

// fromStart makes all further listings begin at their first key, and returns the error with which this
// one does, too, unless it has a start of its own.
func (l *listing) fromStart(err error) error {
	l.refused = true
	l.store.paging.fromStart.Store(true)
	return &Error{Kind: Unsupported, Again: l.start == "", Err: fmt.Errorf("%w: %w", errFromStart, err)}
}

var (
	errFromStart = errors.New("the server cannot begin a listing behind a key")
	errIgnored   = errors.New("it lists keys before that one")
)

// resumed returns an error if the server, which did not begin behind a key, lists another number of keys
// up to there: what began behind it may have had another order.
func (l *listing) resumed(at position, again int) error {
	if l.refused && again != at.n {
		return Errorf(Unsupported, "list", l.prefix, "the server lists %d keys up to %q where it listed %d before, so keys may be missing; list again", again, at.last, at.n)
	}
	l.refused = false
	return nil
}

// The context carries the function that decides about the next page, as it does that of WithSkipped.
type nextPageKey struct{}

// NextPage is called by a PageLister when all objects of a page were yielded, before it requests the
// next one. If it returns false, the listing ends there without an error.
func NextPage(ctx context.Context) bool {
	next, ok := ctx.Value(nextPageKey{}).(func() bool)
	if !ok {
		return true
	}
	if a, ok := ctx.Value(attemptKey{}).(*attempt); ok {
		a.Pause() // it may wait until pages are consumed
		defer a.alive()
	}
	return next()
}
