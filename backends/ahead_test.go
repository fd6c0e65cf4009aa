package backends_test

import (
	"context"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"sort"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/stager-dev/stager/backends"
)

// paged is a store that lists page by page, each a request that takes a while.
type paged struct {
	backends.Backend
	perPage int
	latency time.Duration
	ignores bool // it ignores where a listing is to begin
	refuses bool // it refuses that
	skips   bool // it begins behind the directory of a key

	mu       sync.Mutex // guards all below
	keys     []string   // ascending
	requests int
	flying   int
	most     int // the highest number of requests at once
	// fail may return an error for a page that begins behind a key; nil: none.
	fail func(request int, after string) error
	// answered is called after each page; it may change keys. nil: nothing.
	answered func(request int)
}

func newPaged(keys []string) *paged {
	keys = slices.Clone(keys)
	slices.Sort(keys)
	return &paged{keys: slices.Compact(keys), perPage: 1000, latency: 100 * time.Millisecond}
}

func (s *paged) store() *backends.Store {
	return backends.NewStore(s, "paged://test", backends.Options{})
}

func (s *paged) Capabilities() backends.Capabilities {
	return backends.Capabilities{Parallelism: 8, MaxParallelism: 512, PartSize: 1 << 20}
}

// page answers one request: the keys behind after, with the directories below prefix instead of what is
// in them if byDir is set.
func (s *paged) page(ctx context.Context, prefix, after string, byDir bool) (keys []string, more bool, err error) {
	s.mu.Lock()
	s.requests++
	request := s.requests
	s.flying++
	s.most = max(s.most, s.flying)
	s.mu.Unlock()
	select {
	case <-ctx.Done():
		err = ctx.Err()
	case <-time.After(s.latency):
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.flying--
	if err == nil && s.fail != nil {
		err = s.fail(request, after)
	}
	if err != nil {
		return nil, false, err
	}
	begin := sort.SearchStrings(s.keys, max(prefix, after))
	for _, key := range s.keys[begin:] {
		if !strings.HasPrefix(key, prefix) {
			break
		}
		if key <= after {
			continue
		}
		if name, _, below := strings.Cut(key[len(prefix):], "/"); byDir && below {
			key = prefix + name + "/"
			if n := len(keys); n > 0 && keys[n-1] == key {
				continue
			}
		}
		if len(keys) == s.perPage {
			more = true
			break
		}
		keys = append(keys, key)
	}
	if s.answered != nil {
		s.answered(request)
	}
	return keys, more, nil
}

func (s *paged) List(ctx context.Context, prefix string) iter.Seq2[backends.Object, error] {
	return s.list(ctx, prefix, "")
}

func (s *paged) ListAfter(ctx context.Context, prefix, after string) iter.Seq2[backends.Object, error] {
	if s.ignores {
		after = ""
	}
	if s.refuses {
		return func(yield func(backends.Object, error) bool) {
			yield(backends.Object{}, backends.Errorf(backends.Invalid, "list", prefix, "unknown parameter"))
		}
	}
	if i := strings.LastIndex(after, "/"); s.skips && i >= 0 {
		after = after[:i] + "0"
	}
	return s.list(ctx, prefix, after)
}

func (s *paged) list(ctx context.Context, prefix, after string) iter.Seq2[backends.Object, error] {
	return func(yield func(backends.Object, error) bool) {
		for {
			keys, more, err := s.page(ctx, prefix, after, false)
			if err != nil {
				yield(backends.Object{}, err)
				return
			}
			for _, key := range keys {
				if after = key; strings.HasSuffix(key, "/") {
					backends.Skip(ctx, backends.Skipped{Key: key})
				} else if !yield(backends.Object{Key: key, Size: int64(len(key))}, nil) {
					return
				}
			}
			if !more || !backends.NextPage(ctx) {
				return
			}
		}
	}
}

func (s *paged) Directories(ctx context.Context, prefix, after string) (dirs []string, more bool, err error) {
	keys, more, err := s.page(ctx, prefix, after, true)
	return slices.DeleteFunc(keys, func(key string) bool { return !strings.HasSuffix(key, "/") || key <= after }), more, err
}

// below returns the keys that a listing of prefix has.
func below(keys []string, prefix string) []string {
	return slices.DeleteFunc(slices.Clone(keys), func(key string) bool { return !strings.HasPrefix(key, prefix) || strings.HasSuffix(key, "/") })
}

// listed returns the keys of a listing.
func listed(ctx context.Context, store *backends.Store, prefix string) (keys []string, err error) {
	for obj, err := range store.List(ctx, prefix) {
		if err != nil {
			return keys, err
		}
		keys = append(keys, obj.Key)
	}
	return keys, nil
}

// What is short, or fast, is listed by as many requests as there are pages.
func TestListRequestsNothingAheadOfShortOrFastListings(t *testing.T) {
	for _, tt := range []struct {
		keys, want int
		latency    time.Duration
	}{
		{0, 1, time.Second},
		{10, 1, time.Second},
		{1000, 1, time.Second},
		{1001, 2, time.Second},
		{2000, 2, time.Second},
		{100_000, 100, 10 * time.Millisecond},
	} {
		synctest.Test(t, func(t *testing.T) {
			var keys []string
			for i := range tt.keys {
				keys = append(keys, fmt.Sprintf("%06d", i))
			}
			s := newPaged(keys)
			s.latency = tt.latency
			got, err := listed(t.Context(), s.store(), "")
			if len(got) != tt.keys || err != nil || s.requests != tt.want {
				t.Errorf("got %d keys by %d requests (%v), want %d by %d", len(got), s.requests, err, tt.keys, tt.want)
			}
		})
	}
}

// A caller that needs longer than the pages gains nothing from more requests.
func TestListWaitsForASlowCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var keys []string
		for i := range 20_000 {
			keys = append(keys, fmt.Sprintf("%06d", i))
		}
		s := newPaged(keys)
		n := 0
		for _, err := range s.store().List(t.Context(), "") {
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Millisecond)
			n++
		}
		if n != len(keys) || s.requests != 20 {
			t.Errorf("got %d keys by %d requests, want %d by 20", n, s.requests, len(keys))
		}
	})
}

// keysOf draws keys with slashes, and what sorts beside them, anywhere.
func keysOf(rt *rapid.T) []string {
	part := rapid.OneOf(
		rapid.SampledFrom([]string{"a", "a-", "a0", "b", "", "\xc3\xa9", "~", "0", "1", "9", "00", "1/"}),
		rapid.StringMatching(`[0-9a-c]{1,3}`),
	)
	key := rapid.Custom(func(rt *rapid.T) string {
		return strings.Join(rapid.SliceOfN(part, 1, 4).Draw(rt, "parts"), "/")
	})
	keys := rapid.SliceOfN(key, 0, 300).Draw(rt, "keys")
	if rapid.Bool().Draw(rt, "numbered") {
		dir := key.Draw(rt, "directory")
		for i := range rapid.IntRange(0, 200).Draw(rt, "numbers") {
			keys = append(keys, fmt.Sprintf("%s/%03d", dir, i))
		}
	}
	return slices.DeleteFunc(keys, func(key string) bool { return key == "" })
}

// However keys nest, each is listed once and in order, also if requests fail, and if the server does
// not begin a listing where it is asked to.
func TestListAheadHasEveryKeyOnce(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s := newPaged(keysOf(rt))
		s.perPage = rapid.IntRange(1, 8).Draw(rt, "per page")
		s.ignores = rapid.Float64().Draw(rt, "ignores") < 0.1
		s.refuses = rapid.Float64().Draw(rt, "refuses") < 0.1
		s.skips = rapid.Float64().Draw(rt, "skips") < 0.1
		failing := rapid.SliceOfN(rapid.IntRange(1, 100), 0, 5).Draw(rt, "failing requests")
		s.fail = func(request int, _ string) error {
			if slices.Contains(failing, request) {
				return backends.Errorf(backends.Unavailable, "", "", "reset")
			}
			return nil
		}
		prefix := rapid.SampledFrom(append([]string{"", "a", "a/", "b/", "0", "nothing"}, s.keys...)).Draw(rt, "prefix")
		var got, skipped []string
		var err error
		synctest.Test(t, func(t *testing.T) {
			ctx := backends.WithSkipped(t.Context(), func(s backends.Skipped) { skipped = append(skipped, s.Key) })
			got, err = listed(ctx, s.store(), prefix)
		})
		if want := below(s.keys, prefix); err != nil || !slices.Equal(got, want) {
			rt.Fatalf("list of %q by pages of %d: got %q (%v), want %q", prefix, s.perPage, got, err, want)
		}
		var want []string
		for _, key := range s.keys {
			if strings.HasPrefix(key, prefix) && strings.HasSuffix(key, "/") {
				want = append(want, key)
			}
		}
		slices.Sort(skipped)
		if all := slices.Compact(skipped); !slices.Equal(all, want) {
			rt.Fatalf("list of %q by pages of %d: skipped %q, want %q", prefix, s.perPage, all, want)
		}
		if len(failing) == 0 && !s.ignores && !s.refuses && !s.skips && len(skipped) != len(want) {
			rt.Fatalf("list of %q: skipped %q, want each once", prefix, skipped)
		}
	})
}

// Keys come and go while they are listed. Those that are there all the time are listed once.
func TestListAheadWhileKeysChange(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		all := newPaged(keysOf(rt)).keys
		stays := make(map[string]bool)
		for _, key := range all {
			stays[key] = rapid.IntRange(0, 2).Draw(rt, "stays") > 0 && !strings.HasSuffix(key, "/")
		}
		s := newPaged(all)
		s.perPage = rapid.IntRange(1, 8).Draw(rt, "per page")
		random := rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), 0))
		s.answered = func(int) {
			s.keys = slices.DeleteFunc(slices.Clone(all), func(key string) bool { return !stays[key] && random.IntN(2) == 0 })
		}
		var got []string
		var err error
		synctest.Test(t, func(t *testing.T) { got, err = listed(t.Context(), s.store(), "") })
		if err != nil || !slices.IsSorted(got) || len(slices.Compact(slices.Clone(got))) != len(got) {
			rt.Fatalf("got %q (%v), want each once and in order", got, err)
		}
		for _, key := range all {
			if stays[key] && !slices.Contains(got, key) {
				rt.Fatalf("%q is missing in %q", key, got)
			}
		}
	})
}
