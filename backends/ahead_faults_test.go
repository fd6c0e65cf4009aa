package backends_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/stager-dev/stager/backends"
)

// numberedKeys has 100 pages.
func numberedKeys() *paged {
	var keys []string
	for i := range 100_000 {
		keys = append(keys, fmt.Sprintf("d/%06d", i))
	}
	return newPaged(keys)
}

// An error anywhere ends the listing, and no key is missing before it.
func TestListAheadEndsWithAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := numberedKeys()
		denied := errors.New("denied")
		s.fail = func(_ int, after string) error {
			if after >= "d/05" {
				return &backends.Error{Kind: backends.Permission, Err: denied}
			}
			return nil
		}
		got, err := listed(t.Context(), s.store(), "d/")
		if !errors.Is(err, denied) || len(got) == 0 || !slices.Equal(got, s.keys[:len(got)]) {
			t.Errorf("got %d keys and %v, want some and what the server said", len(got), err)
		}
	})
}

func TestListAheadEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := numberedKeys()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		got, err := listed(ctx, s.store(), "")
		if backends.KindOf(err) != backends.Canceled || !slices.Equal(got, s.keys[:len(got)]) {
			t.Errorf("got %d keys and %v, want kind canceled", len(got), err)
		}
	})
}

// A caller that has enough, or that pauses longer than any time-out, holds no more than some pages.
func TestListAheadWaitsForItsCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := numberedKeys()
		n := 0
		for obj, err := range s.store().List(t.Context(), "") {
			if err != nil || obj.Key != s.keys[n] {
				t.Fatalf("key %d is %q (%v), want %q", n, obj.Key, err, s.keys[n])
			}
			if n++; n == 10_000 {
				time.Sleep(time.Hour)
				s.mu.Lock()
				requests := s.requests
				s.mu.Unlock()
				if most := 10 + 16*7; requests > most {
					t.Errorf("got %d requests after 10 pages, want %d at most", requests, most)
				}
			}
			if n == 50_000 {
				break
			}
		}
		synctest.Wait() // a request that goes on would fail the test
	})
}

// An outage in the middle is not the end.
func TestListAheadSurvivesAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := numberedKeys()
		began := time.Now()
		s.fail = func(int, string) error {
			if away := time.Since(began); away > time.Second && away < time.Minute {
				return backends.Errorf(backends.Unavailable, "", "", "away")
			}
			return nil
		}
		got, err := listed(t.Context(), s.store(), "")
		if err != nil || !slices.Equal(got, s.keys) {
			t.Errorf("got %d keys (%v), want all", len(got), err)
		}
	})
}

// A listing resumes with the page that failed: it listed all pages before that one again.
func TestListResumesBehindTheLastKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := numberedKeys()
		s.latency = time.Millisecond // nothing is requested ahead
		s.fail = func(request int, _ string) error {
			if request%10 == 0 {
				return backends.Errorf(backends.Unavailable, "", "", "reset")
			}
			return nil
		}
		got, err := listed(t.Context(), s.store(), "")
		if err != nil || !slices.Equal(got, s.keys) || s.requests > 115 {
			t.Errorf("got %d keys by %d requests (%v), want all by 115 at most", len(got), s.requests, err)
		}
	})
}

// A server may fail where a listing begins behind a key that it does not have. Such keys are guesses, so the
// listing goes on without them.
func TestListAheadIgnoresErrorsOfGuesses(t *testing.T) {
	for _, kind := range []backends.Kind{backends.Permission, backends.Corrupt, backends.Unavailable} {
		synctest.Test(t, func(t *testing.T) {
			s := numberedKeys()
			s.fail = func(_ int, after string) error {
				if _, has := slices.BinarySearch(s.keys, after); after != "" && !has {
					return backends.Errorf(kind, "", "", "internal error")
				}
				return nil
			}
			got, err := listed(t.Context(), s.store(), "")
			if err != nil || !slices.Equal(got, s.keys) {
				t.Errorf("%v: got %d keys (%v), want all", kind, len(got), err)
			}
			t.Logf("%v: %d requests for 100 pages", kind, s.requests)
			if s.requests > 150 {
				t.Errorf("%v: got %d requests for 100 pages, want 150 at most", kind, s.requests)
			}
		})
	}
}

// A server that refuses more than some requests at once is asked for fewer.
func TestListAheadGivesWayToThrottling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := numberedKeys()
		s.fail = func(int, string) error {
			if s.flying >= 4 { // besides this one
				return backends.Errorf(backends.Throttled, "", "", "slow down")
			}
			return nil
		}
		began := time.Now()
		got, err := listed(t.Context(), s.store(), "")
		if err != nil || !slices.Equal(got, s.keys) {
			t.Fatalf("got %d keys (%v), want all", len(got), err)
		}
		t.Logf("%d requests for 100 pages in %v", s.requests, time.Since(began))
		if s.requests > 300 {
			t.Errorf("got %d requests for 100 pages, want 300 at most", s.requests)
		}
	})
}

// treePaged lists like a server that walks a tree of directories: "a/b" before "a.txt".
type treePaged struct {
	*paged
	order []string
}

func (s treePaged) List(ctx context.Context, prefix string) iter.Seq2[backends.Object, error] {
	return s.ListAfter(ctx, prefix, "")
}

func inTree(a, b string) int { return slices.Compare(strings.Split(a, "/"), strings.Split(b, "/")) }

func (s treePaged) ListAfter(ctx context.Context, prefix, after string) iter.Seq2[backends.Object, error] {
	return func(yield func(backends.Object, error) bool) {
		n := 0
		for _, key := range s.order {
			if !strings.HasPrefix(key, prefix) || after != "" && inTree(key, after) <= 0 {
				continue
			}
			if n++; n > s.perPage {
				if !backends.NextPage(ctx) {
					return
				}
				time.Sleep(s.latency)
				n = 1
			}
			if n == 1 && ctx.Err() != nil {
				yield(backends.Object{}, ctx.Err())
				return
			}
			if !yield(backends.Object{Key: key}, nil) {
				return
			}
		}
	}
}

// A server that lists in another order may list a key too late. The listing then fails, as it does
// without requests ahead; it must not lack the key.
func TestListAheadOfAnotherOrder(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		keys := slices.DeleteFunc(newPaged(keysOf(rt)).keys, func(key string) bool { return strings.HasSuffix(key, "/") })
		s := treePaged{newPaged(keys), slices.SortedFunc(slices.Values(keys), inTree)}
		s.perPage = rapid.IntRange(1, 8).Draw(rt, "per page")
		var got []string
		var err error
		synctest.Test(t, func(t *testing.T) {
			got, err = listed(t.Context(), backends.NewStore(s, "paged://test", backends.Options{}), "")
		})
		if err == nil && !slices.Equal(got, keys) {
			rt.Fatalf("got %q, want %q or an error", got, keys)
		}
		if slices.IsSorted(s.order) && err != nil {
			rt.Fatalf("got %v, want no error", err)
		}
	})
}
