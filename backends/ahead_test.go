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

func (s *paged) Directories(ctx context.Context, prefix, after string) (dirs []string, err error) {
	keys, _, err := s.page(ctx, prefix, after, true)
	return slices.DeleteFunc(keys, func(key string) bool { return !strings.HasSuffix(key, "/") || key <= after }), err
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

// datasets are key spaces as jobs have them, and worse ones, each of n keys.
var datasets = []struct {
	name string
	key  func(i int, random *rand.Rand) string
	fast bool // it takes at most a third of the time
}{
	{"numbered in one directory", func(i int, _ *rand.Rand) string { return fmt.Sprintf("train/img_%09d.jpg", i) }, true},
	{"numbered without zeros", func(i int, _ *rand.Rand) string { return fmt.Sprintf("img-%d.jpg", i) }, true},
	{"hashes", func(_ int, random *rand.Rand) string {
		return fmt.Sprintf("objects/%016x%016x", random.Uint64(), random.Uint64())
	}, true},
	{"a page to a directory", func(i int, _ *rand.Rand) string { return fmt.Sprintf("train/%04d/sample-%09d.jpg", i/100, i) }, true},
	{"ten to a directory", func(i int, _ *rand.Rand) string { return fmt.Sprintf("train/%06d/%d.jpg", i/10, i%10) }, true},
	{"classes of 1.3 pages", func(i int, random *rand.Rand) string {
		return fmt.Sprintf("train/n%08d/n%08d_%d.JPEG", 1440764+i/130*7919, 1440764+i/130*7919, random.Uint32N(100000))
	}, true},
	{"classes with words, of 5 pages", func(i int, _ *rand.Rand) string { return fmt.Sprintf("train/%s/%04d.jpg", word(i/500), i%500) }, true},
	{"ten directories with words, of 20 pages", func(i int, _ *rand.Rand) string { return fmt.Sprintf("%s/%06d", word(i/2000), i) }, true},
	{"dates", func(i int, _ *rand.Rand) string {
		return time.Date(2020, 1, 1, 0, 0, 17*i, 0, time.UTC).Format("2006/01/02/15-04-05.json")
	}, true},
	{"random", func(_ int, random *rand.Rand) string {
		name := make([]byte, 12)
		for i := range name {
			name[i] = "abcxyz/-._0 ~\xc3\xa9"[random.IntN(14)]
		}
		return string(name) + ".x"
	}, false},
}

// word returns a name that says nothing of the next one.
func word(i int) string {
	random := rand.New(rand.NewPCG(uint64(i), 1))
	name := make([]byte, 3+random.IntN(6))
	for i := range name {
		name[i] = byte('a' + random.IntN(26))
	}
	return string(name)
}

// A listing of ten million keys took 17 minutes, one page of 100 ms after the other.
func TestListRequestsPagesAhead(t *testing.T) {
	const n = 20_000
	for _, tt := range datasets {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				random := rand.New(rand.NewPCG(1, 2))
				var keys []string
				for i := range n {
					keys = append(keys, tt.key(i, random))
				}
				s := newPaged(keys)
				s.perPage = 100
				pages := (len(s.keys) + s.perPage - 1) / s.perPage
				began := time.Now()
				got, err := listed(t.Context(), s.store(), "")
				if err != nil || !slices.Equal(got, below(s.keys, "")) {
					t.Fatalf("got %d keys (%v), want %d", len(got), err, len(s.keys))
				}
				took, alone := time.Since(began), time.Duration(pages)*s.latency
				t.Logf("%d pages in %d requests, at most %d at once; %.1f s instead of %.1f s", pages, s.requests, s.most, took.Seconds(), alone.Seconds())
				if tt.fast && took > alone/3 {
					t.Errorf("it takes %v, want a third of %v", took, alone)
				}
				if took > alone+10*s.latency {
					t.Errorf("it takes %v, one page after the other takes %v", took, alone)
				}
				if most := pages + pages/3 + 20; s.requests > most {
					t.Errorf("got %d requests for %d pages, want %d at most", s.requests, pages, most)
				}
			})
		})
	}
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
