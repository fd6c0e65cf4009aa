package http

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/internal/objectstore"
	"github.com/stager-dev/stager/backends/readahead"
)

const (
	// ahead is how many objects a listing asks for at once. An index has no version of them, and
	// mostly no exact size.
	ahead = 32
	// deepest is how many directories may lie in each other. A link to a parent has no end.
	deepest = 100
)

// found is one step of a listing, in the order of the keys: an object, an entry that is skipped, an
// error, or nothing.
type found struct {
	obj     backends.Object
	skipped backends.Skipped
	err     error
}

// List requests the index pages of the directories below prefix, or takes the objects of the
// manifest, and then asks for the size and version of each object.
func (s *site) List(ctx context.Context, prefix string) iter.Seq2[backends.Object, error] {
	return s.list(ctx, prefix, false)
}

// ListLevel implements backends.LevelLister. It requests one index page.
func (s *site) ListLevel(ctx context.Context, prefix string) iter.Seq2[backends.Object, error] {
	return s.list(ctx, prefix, true)
}

func (s *site) list(ctx context.Context, prefix string, level bool) iter.Seq2[backends.Object, error] {
	return func(yield func(backends.Object, error) bool) {
		queue := readahead.New(ctx, ahead, func(ctx context.Context, q *readahead.Queue[found]) {
			other := func(f found) bool { return q.Put(func() found { return f }) }
			c := crawler{site: s, prefix: prefix, other: other}
			c.key = func(key string) bool { return q.Put(func() found { return s.describe(ctx, key) }) }
			if level {
				c.directory = func(dir string) bool { return other(found{obj: backends.Object{Key: dir}}) }
			}
			c.run(ctx)
		})
		defer queue.Close(nil)
		for {
			f, ok, _ := queue.Next()
			if !ok {
				break
			}
			backends.Moved(ctx)
			switch {
			case f.err != nil:
				yield(backends.Object{}, f.err)
				return
			case f.skipped.Key != "":
				backends.Skip(ctx, f.skipped)
			case f.obj.Key != "" && !yield(f.obj, nil):
				return
			}
		}
		if ctx.Err() != nil {
			yield(backends.Object{}, s.explain("list", prefix, s.root, context.Cause(ctx)))
		}
	}
}

// describe returns an object that was listed.
func (s *site) describe(ctx context.Context, key string) found {
	obj, err := s.Stat(ctx, key)
	if s.listed == nil && backends.KindOf(err) == backends.NotExist {
		return found{skipped: backends.Skipped{Key: key, What: "an object that the server no longer has", Vanished: true}}
	}
	if e := (*backends.Error)(nil); errors.As(err, &e) && e.Kind != backends.Canceled {
		listed := *e
		listed.Op, listed.Key, listed.Err = "list", "", fmt.Errorf("%s: %w", objectstore.Shorten(key), e.Err)
		err = &listed
	}
	return found{obj: obj, err: err}
}

// crawler finds the keys with a prefix, in order, until one of its functions returns false.
type crawler struct {
	*site

	prefix    string
	key       func(string) bool
	other     func(found) bool      // for what is no key
	directory func(dir string) bool // is called for what is below a directory; nil: crawl that
}

func (c crawler) run(ctx context.Context) {
	if c.listed == nil {
		c.crawl(ctx, c.prefix[:strings.LastIndexByte(c.prefix, '/')+1], 0)
		return
	}
	last := ""
	for _, k := range slices.Sorted(maps.Keys(c.listed)) {
		rest, ok := strings.CutPrefix(k, c.prefix)
		if !ok {
			continue
		}
		name, _, below := strings.Cut(rest, "/")
		switch dir := c.prefix + name + "/"; {
		case c.directory == nil || !below:
			ok = c.key(k)
		case dir != last:
			last = dir
			ok = c.directory(dir)
		}
		if !ok {
			return
		}
	}
}

// crawl handles one directory: "" or ending in "/".
func (c crawler) crawl(ctx context.Context, dir string, depth int) bool {
	if dir != "" && !objectstore.Passable(strings.TrimSuffix(dir, "/")) {
		return true // nothing is there
	}
	if depth > deepest {
		return c.other(found{err: backends.Errorf(backends.Unsupported, "list", dir, "more than %d nested directories: does a link lead back to a parent?", deepest)})
	}
	in, err := c.index(ctx, dir)
	if err != nil {
		if depth == 0 && backends.KindOf(err) == backends.NotExist {
			return true
		}
		if backends.KindOf(err) == backends.NotExist {
			return c.other(found{skipped: backends.Skipped{Key: dir, What: "a directory that the server no longer has", Vanished: true}})
		}
		return c.other(found{err: err})
	}
	if !c.other(found{}) { // the server responds
		return false
	}
	if depth > 0 && len(in.names)+len(in.skipped) == 0 && !c.other(found{skipped: backends.Skipped{Key: dir, What: "a directory without files"}}) {
		return false
	}
	for _, skipped := range in.skipped {
		if skipped.Key = dir + skipped.Key; strings.HasPrefix(skipped.Key, c.prefix) && !c.other(found{skipped: skipped}) {
			return false
		}
	}
	for _, name := range in.names {
		switch at := dir + name; {
		case strings.HasSuffix(name, "/"):
			if (strings.HasPrefix(at, c.prefix) || strings.HasPrefix(c.prefix, at)) && !c.below(ctx, at, depth) {
				return false
			}
		case strings.HasPrefix(at, c.prefix) && !c.key(at):
			return false
		}
	}
	return true
}

// below handles a directory in one at this depth.
func (c crawler) below(ctx context.Context, dir string, depth int) bool {
	if c.directory != nil {
		return c.directory(dir)
	}
	return c.crawl(ctx, dir, depth+1)
}

// index requests the index page of a directory.
func (s *site) index(ctx context.Context, dir string) (index, error) {
	asked := s.under(dir)
	header := s.header(asked)
	header.Set("Accept", "application/json, text/html;q=0.9, */*;q=0.1")
	res, at, err := s.fetcher.Fetch(ctx, http.MethodGet, asked, header)
	if err != nil {
		return index{}, s.explain("list", dir, asked, err)
	}
	if res.StatusCode != http.StatusOK {
		err := s.explain("list", dir, asked, objectstore.Refusal(res))
		if e := (*backends.Error)(nil); errors.As(err, &e) && res.StatusCode == http.StatusForbidden {
			e.Err = fmt.Errorf("the server does not show what is in this directory (HTTP %d): enable its index, or name the objects with ?manifest= or braces", res.StatusCode)
		}
		return index{}, err
	}
	defer res.Body.Close() // it was read
	if !strings.HasSuffix(at.Path, "/") {
		at = &url.URL{Scheme: at.Scheme, Host: at.Host, Path: at.Path + "/"}
	}
	in, err := readIndex(res, at)
	if err != nil {
		return index{}, s.explain("list", dir, asked, err)
	}
	return in, nil
}
