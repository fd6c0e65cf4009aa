package backends_test

import (
	"cmp"
	"crypto/sha1"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// datasets are key spaces as jobs have them, and worse ones. A page has 100 keys.
var datasets = []struct {
	name string
	key  func(i int, random *rand.Rand) string // may return a key twice
	part time.Duration                         // it takes at most this part of the time; 0: a third
}{
	{name: "shards", key: func(i int, _ *rand.Rand) string { return fmt.Sprintf("shard-%06d.tar", i) }},
	{name: "shards of a split", key: func(i int, _ *rand.Rand) string {
		return fmt.Sprintf("%s/c4-%05d-of-12000.tar", []string{"test", "train"}[min(i/1000, 1)], i)
	}},
	{name: "triples", key: func(i int, _ *rand.Rand) string {
		return fmt.Sprintf("%05d%s", i/3, []string{".parquet", ".tar", "_stats.json"}[i%3])
	}},
	{name: "numbers", key: func(i int, _ *rand.Rand) string { return fmt.Sprintf("train/img_%09d.jpg", i) }},
	{name: "numbers without zeros", key: func(i int, _ *rand.Rand) string { return fmt.Sprintf("img-%d.jpg", i) }},
	{name: "sparse numbers", key: func(_ int, random *rand.Rand) string {
		return fmt.Sprintf("train2017/%012d.jpg", random.Uint32N(600_000))
	}},
	{name: "hashes", key: func(_ int, random *rand.Rand) string { return "objects/" + hash(random) }},
	{name: "hashes in directories", key: func(_ int, random *rand.Rand) string {
		h := hash(random)
		return h[:2] + "/" + h[2:4] + "/" + h
	}},
	{name: "UUIDs", key: func(_ int, random *rand.Rand) string {
		h := hash(random)
		return fmt.Sprintf("images/%s-%s-4%s-%s-%s.jpg", h[:8], h[8:12], h[13:16], h[16:20], h[20:32])
	}},
	{name: "videos", part: 1, key: func(_ int, random *rand.Rand) string {
		return fmt.Sprintf("videos/%s.mp4", base64.RawURLEncoding.EncodeToString([]byte(hash(random))[:9]))
	}},
	{name: "classes of 13 pages", part: 2, key: func(i int, random *rand.Rand) string { return class(i/1300, random) }},
	{name: "classes of 1.3 pages", key: func(i int, random *rand.Rand) string { return class(i/130, random) }},
	{name: "a page to a directory", key: func(i int, _ *rand.Rand) string { return fmt.Sprintf("train/%04d/sample-%09d.jpg", i/100, i) }},
	{name: "ten to a directory", key: func(i int, _ *rand.Rand) string { return fmt.Sprintf("train/%06d/%d.jpg", i/10, i%10) }},
	{name: "ten to a word", key: func(i int, _ *rand.Rand) string { return fmt.Sprintf("train/%s/%d.jpg", word(i/10), i%10) }},
	{name: "words of 1.3 pages", key: func(i int, _ *rand.Rand) string { return fmt.Sprintf("train/%s/%04d.jpg", word(i/130), i%130) }},
	{name: "words of 5 pages", key: func(i int, _ *rand.Rand) string { return fmt.Sprintf("train/%s/%04d.jpg", word(i/500), i%500) }},
	{name: "words of 20 pages", key: func(i int, _ *rand.Rand) string { return fmt.Sprintf("%s/%06d", word(i/2000), i) }},
	{name: "words of any length", part: 2, key: func(i int, _ *rand.Rand) string {
		n := int(math.Sqrt(float64(i))) // the nth word has 2n+1 keys
		return fmt.Sprintf("%s/%06d.jpg", word(n), i)
	}},
	{name: "videos of classes", key: func(i int, random *rand.Rand) string {
		return fmt.Sprintf("train/%s/%s_%06d.mp4", word(i/60), base64.RawURLEncoding.EncodeToString([]byte(hash(random))[:8]), i%60)
	}},
	{name: "speech", key: func(i int, _ *rand.Rand) string {
		return fmt.Sprintf("%d/%d/%d-%d-%04d.flac", 19+i/100*7, 198+i/25*13, 19+i/100*7, 198+i/25*13, i%25)
	}},
	{name: "sessions of users", part: 2, key: func(i int, _ *rand.Rand) string { return fmt.Sprintf("%s/%d/%04d.jpg", word(i/60), i/30%2, i%30) }},
	{name: "partitions", part: 2, key: func(i int, random *rand.Rand) string {
		return fmt.Sprintf("%s/part-%05d-%s.parquet", time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC).AddDate(0, 0, i/40).Format("date=2006-01-02"), i%40, hash(random))
	}},
	{name: "partitions in partitions", key: func(i int, _ *rand.Rand) string {
		return fmt.Sprintf("%s/part-%05d.parquet", time.Date(2020, 1, 1, i/40, 0, 0, 0, time.UTC).Format("year=2006/month=01/day=02/hour=15"), i%40)
	}},
	{name: "times", key: func(i int, _ *rand.Rand) string {
		return time.Date(2020, 1, 1, 0, 0, 17*i, 0, time.UTC).Format("2006/01/02/15-04-05.json")
	}},
	{name: "random", part: 2, key: func(_ int, random *rand.Rand) string {
		name := make([]byte, 12)
		for i := range name {
			name[i] = "abcxyz/-._0 ~\xc3\xa9"[random.IntN(14)]
		}
		return string(name) + ".x"
	}},
}

// hash returns a random hash.
func hash(random *rand.Rand) string {
	sum := sha1.Sum(fmt.Append(nil, random.Uint64()))
	return hex.EncodeToString(sum[:])
}

// class returns the name of an image of the nth class, as ImageNet has them.
func class(n int, random *rand.Rand) string {
	return fmt.Sprintf("train/n%08d/n%08d_%d.JPEG", classes()[n], classes()[n], random.Uint32N(100_000))
}

// classes returns numbers that ascend by steps which differ much.
var classes = sync.OnceValue(func() (numbers []int) {
	random, number := rand.New(rand.NewPCG(1, 2)), 1440764
	for range 2000 {
		numbers = append(numbers, number)
		number += 1 + int(2000*math.Exp(1.5*random.NormFloat64()))
	}
	return numbers
})

// word returns a name that says nothing of the next one.
func word(i int) string {
	random := rand.New(rand.NewPCG(uint64(i), 1))
	name := make([]byte, 3+random.IntN(6))
	for i := range name {
		name[i] = byte('a' + random.IntN(26))
	}
	return string(name)
}

// keysOfDataset returns n keys, or fewer.
func keysOfDataset(n int, key func(int, *rand.Rand) string) *paged {
	random := rand.New(rand.NewPCG(1, 2))
	keys := make([]string, n)
	for i := range keys {
		keys[i] = key(i, random)
	}
	s := newPaged(keys)
	s.perPage = 100
	return s
}

// pages returns how many pages the keys have.
func (s *paged) pages() int { return (len(s.keys) + s.perPage - 1) / s.perPage }

// took returns how long a listing of all keys takes.
func (s *paged) took(t *testing.T) time.Duration {
	began := time.Now()
	got, err := listed(t.Context(), s.store(), "")
	if err != nil || !slices.Equal(got, s.keys) {
		t.Fatalf("got %d keys (%v), want %d", len(got), err, len(s.keys))
	}
	return time.Since(began)
}

// BenchmarkListAhead lists 200 pages of 100 ms, and 2,000, in virtual time: one after the other they
// take 20 s and 200 s.
func BenchmarkListAhead(b *testing.B) {
	for _, pages := range []int{200, 2000} {
		for _, set := range datasets {
			b.Run(fmt.Sprintf("%d/%s", pages, set.name), func(b *testing.B) {
				s := keysOfDataset(100*pages, set.key)
				for b.Loop() {
					s.requests = 0
					var took time.Duration
					inVirtualTime(b, func(t *testing.T) { took = s.took(t) })
					b.ReportMetric(took.Seconds(), "s/list")
					b.ReportMetric(float64(s.pages()), "pages")
					b.ReportMetric(float64(s.requests), "requests")
				}
			})
		}
	}
}

// inVirtualTime calls f in a bubble of synctest, which only a test can have.
func inVirtualTime(b *testing.B, f func(t *testing.T)) {
	b.Helper()
	all := func(string, string) (bool, error) { return true, nil }
	if !testing.RunTests(all, []testing.InternalTest{{Name: b.Name(), F: func(t *testing.T) { synctest.Test(t, f) }}}) {
		b.FailNow()
	}
}

// A listing of ten million keys took 17 minutes, one page of 100 ms after the other.
func TestListRequestsPagesAhead(t *testing.T) {
	for _, set := range datasets {
		t.Run(set.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := keysOfDataset(20_000, set.key)
				pages := s.pages()
				took := s.took(t)
				alone := time.Duration(pages) * s.latency
				t.Logf("%d pages in %d requests, %.1f s instead of %.1f s", pages, s.requests, took.Seconds(), alone.Seconds())
				if part := cmp.Or(set.part, 3); part > 1 && took > alone/part {
					t.Errorf("it takes %v, want at most %v", took, alone/part)
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
