package check

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/conformance"
	"github.com/stager-dev/stager/backends/mem"
)

// slow delays calls. Time is virtual here, and measurements wait for it.
func slow() *conformance.Faults {
	var f conformance.Faults
	for _, op := range []conformance.Op{conformance.Read, conformance.Create, conformance.Stat} {
		f.Always(op, conformance.Slow(20*time.Millisecond))
	}
	return &f
}

// others are the objects beside the scratch directory.
var others = map[string]int64{"data/a": 1, "data/b": 100_000, "data/c": 3 << 20, "data/d": 5000, "x": 0}

// try checks a store that has others, and returns what else exists afterwards.
func try(ctx context.Context, t *testing.T, cfg Config, wrap func(backends.Backend) backends.Backend) (r *Report, left []string, err error) {
	t.Helper()
	m := mem.NewWith(backends.Capabilities{Parallelism: 4, MaxParallelism: 64, PartSize: 64 << 10, Checksum: backends.CRC32C})
	for key, size := range others {
		m.Generate(key, size)
	}
	cfg.Store = backends.NewStore(wrap(m), "mem://test", backends.Options{})
	cfg.Size = 1 << 20
	r, err = Run(ctx, cfg)
	left = slices.DeleteFunc(m.Keys(), func(key string) bool { _, known := others[key]; return known })
	if n := len(m.Keys()) - len(left); n != len(others) {
		t.Errorf("of %d objects that were there %d still are", len(others), n)
	}
	if n := m.Writers(); n > 0 {
		t.Errorf("%d writers were neither committed nor aborted", n)
	}
	return r, left, err
}

func broken(r *Report) (sentences []string) {
	for _, p := range r.Promises {
		if p.State == Fails {
			sentences = append(sentences, p.Sentence)
		}
	}
	return sentences
}

func TestStoreKeepsAllPromises(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, there, err := try(t.Context(), t, Config{}, slow().Wrap)
		if err != nil || len(there) > 0 {
			t.Fatalf("got %v, and %q is left", err, there)
		}
		if err := r.Err(); err != nil {
			t.Errorf("a whole store is found broken: %v: %+v", err, r.Promises)
		}
		f := r.Capabilities
		if !f.AtomicReplace || f.Connections != 4 || f.Checksum != "crc32c" || f.LongestName != MostName || f.LongestKey != MostKey || f.ClockAheadSeconds == nil || *f.ClockAheadSeconds != 0 {
			t.Errorf("facts = %+v", f)
		}
		s := r.Speed
		if s.One.Write <= 0 || s.One.Read <= 0 || s.Many.Write <= 0 || s.Many.Read <= 0 || s.Tiny.Write <= 0 || s.Tiny.Read <= 0 {
			t.Errorf("speed = %+v", s)
		}
		if s.Many.Requests <= 4 || s.Tiny.Requests <= 4 {
			t.Errorf("at once were %d requests, and %d for small files; want more than the 4 that this distant store began with", s.Many.Requests, s.Tiny.Requests)
		}
		// Each read takes 20 ms.
		if got, most := s.Tiny.Read/TinyBytes, 50*1.05*float64(s.Tiny.Requests); got <= 4/0.02*1.05 || got > most {
			t.Errorf("%.0f small files a second are read, want more than 4 at once bring, and at most %.0f", got, most)
		}
		if s.Stat.Median != 0.02 {
			t.Errorf("the median of stats is %v s, want 0.02", s.Stat.Median)
		}
	})
}

func TestReadOnlyWritesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := slow()
		r, there, err := try(t.Context(), t, Config{ReadOnly: true}, f.Wrap)
		if err != nil || len(there) > 0 {
			t.Fatalf("got %v, and %q is left", err, there)
		}
		for _, op := range []conformance.Op{conformance.Create, conformance.Write, conformance.Commit, conformance.Delete} {
			if calls := f.Calls(op); len(calls) > 0 {
				t.Errorf("%v, though nothing may be written", calls)
			}
		}
		if err := r.Err(); err != nil || !r.ReadOnly || r.Refused != "" || r.Capabilities.Checksum != "crc32c" || r.Speed.One.Read <= 0 {
			t.Errorf("got %v, %+v", err, r)
		}
	})
}

// Every sentence has an explanation, and every explanation a sentence.
func TestPromisesAreExplained(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		said := map[string]bool{}
		for _, only := range []bool{false, true} {
			r, _, err := try(t.Context(), t, Config{ReadOnly: only}, slow().Wrap)
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range r.Promises {
				said[p.Sentence] = true
				words := promises[p.Sentence]
				if words.means == "" || words.do == "" || !slices.Contains(Areas, words.area) {
					t.Errorf("%q has the words %+v", p.Sentence, words)
				}
			}
		}
		for sentence := range promises {
			if !said[sentence] {
				t.Errorf("%q is explained, and no promise", sentence)
			}
		}
	})
}

func TestBrokenStoresAreNamed(t *testing.T) {
	for _, tt := range []struct {
		what     string
		wrap     func(backends.Backend) backends.Backend
		readOnly bool
		sentence string // expected to fail
		kind     backends.Kind
	}{
		{"replaces what must be absent", func(b backends.Backend) backends.Backend { return careless{b} }, false, "of eight writers of a free key one wins", backends.Invalid},
		{"reads any version", func(b backends.Backend) backends.Backend { return unpinned{b} }, false, "a change between two ranges is detected", backends.Corrupt},
		{"reads any version", func(b backends.Backend) backends.Backend { return unpinned{b} }, true, "a version that was replaced is rejected", backends.Invalid},
		{"locks what is read", func(b backends.Backend) backends.Backend { return &locking{Backend: b} }, false, "a change does not wait for readers", backends.Invalid},
		{"names versions twice", func(b backends.Backend) backends.Backend { return renaming{b} }, false, "a write returns what stat returns later", backends.Invalid},
		{"changes a bit", func(b backends.Backend) backends.Backend { return flipping{b} }, false, "objects of all sizes round-trip", backends.Corrupt},
		{"changes a bit", func(b backends.Backend) backends.Backend { return flipping{b} }, true, "bytes match the checksum of the store", backends.Corrupt},
	} {
		synctest.Test(t, func(t *testing.T) {
			r, there, err := try(t.Context(), t, Config{ReadOnly: tt.readOnly}, func(b backends.Backend) backends.Backend { return slow().Wrap(tt.wrap(b)) })
			if err != nil || len(there) > 0 {
				t.Fatalf("a store that %s: got %v, and %q is left", tt.what, err, there)
			}
			if !slices.Contains(broken(r), tt.sentence) {
				t.Errorf("a store that %s keeps %q; broken are %q", tt.what, tt.sentence, broken(r))
			}
			if got := backends.KindOf(r.Err()); got != tt.kind {
				t.Errorf("a store that %s: kind %s, want %s: %v", tt.what, got, tt.kind, r.Err())
			}
			for _, p := range r.Promises {
				if p.State == Fails && (len(p.Found) == 0 || p.Means == "" || p.Do == "") {
					t.Errorf("%+v does not say what was found, what it means and what to do", p)
				}
			}
		})
	}
}

func TestWriteDenied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, there, err := try(t.Context(), t, Config{}, slow().Always(conformance.Create, conformance.Fail(backends.Permission)).Wrap)
		if err != nil || len(there) > 0 {
			t.Fatalf("got %v, and %q is left", err, there)
		}
		if !r.ReadOnly || !strings.HasPrefix(r.Refused, "writing is refused") || len(broken(r)) > 0 || r.Speed.Many.Read <= 0 {
			t.Errorf("got %+v, want a report of what can be read", r)
		}
		if got := backends.KindOf(r.Err()); got != backends.Permission {
			t.Errorf("kind %s, want permission", got)
		}
	})
}

// With a key that may write but not delete, one object is left, and the report names it.
func TestDeleteDenied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, there, err := try(t.Context(), t, Config{}, slow().Always(conformance.Delete, conformance.Fail(backends.Permission)).Wrap)
		if err != nil {
			t.Fatal(err)
		}
		if len(there) != 1 || !strings.HasPrefix(there[0], Scratch) {
			t.Errorf("%q is left, want the first object alone", there)
		}
		directory, _, _ := strings.Cut(r.Left[max(strings.Index(r.Left, Scratch), 0):], " ")
		if !strings.HasPrefix(there[0], directory) || !strings.HasPrefix(r.Refused, "deleting is refused") {
			t.Errorf("left %q, refused %q; want the directory of %q named", r.Left, r.Refused, there)
		}
		if got := backends.KindOf(r.Err()); got != backends.Permission {
			t.Errorf("kind %s, want permission", got)
		}
	})
}

func TestStoreBecomesUnreachable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := slow()
		r, _, err := try(t.Context(), t, Config{Progress: func(now string) {
			if now == "a range returns the requested bytes" {
				for _, op := range []conformance.Op{conformance.List, conformance.Stat, conformance.Read, conformance.Create, conformance.Delete} {
					f.Always(op, conformance.Fail(backends.Unavailable))
				}
			}
		}}, f.Wrap)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := broken(r), []string{"a range returns the requested bytes"}; !slices.Equal(got, want) {
			t.Errorf("broken are %q, want %q", got, want)
		}
		if r.Count(Unknown) < 10 || r.Left == "" || backends.KindOf(r.Err()) != backends.Unavailable {
			t.Errorf("%d are not tried, %q is left, %v; want the rest not tried, the directory, and kind unavailable", r.Count(Unknown), r.Left, r.Err())
		}
	})
}

// A check may be interrupted at any step.
func TestInterruptedItLeavesNothing(t *testing.T) {
	for _, at := range []string{"writing a first object", "a long listing is complete", "a change under way mixes no versions", "parts may come in any order, and twice", fullSpeed} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			r, there, err := try(ctx, t, Config{Progress: func(now string) {
				if now == at {
					time.AfterFunc(70*time.Millisecond, cancel)
				}
			}}, slow().Wrap)
			var stopped *InterruptedError
			if !errors.As(err, &stopped) || stopped.Left != "" || r != nil || len(there) > 0 {
				t.Errorf("interrupted at %q: got %v, and %q is left", at, err, there)
			}
		})
	}
}

func TestCheckErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := backends.NewStore(mem.New(), "mem://test", backends.Options{})
		if _, err := Run(t.Context(), Config{Store: store, ReadOnly: true}); backends.KindOf(err) != backends.NotExist {
			t.Errorf("reading where there is nothing: got %v, want kind not-exist", err)
		}
		if _, err := store.PutBytes(t.Context(), "a/b", nil, backends.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if _, err := Run(t.Context(), Config{Store: store.Sub("a/b")}); backends.KindOf(err) != backends.Invalid {
			t.Errorf("an object instead of a directory: got %v, want kind invalid", err)
		}
	})
}

// The skew is computed as precisely as the store's response allows.
func TestSkew(t *testing.T) {
	now := time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)
	for _, tt := range []struct {
		reported time.Duration
		want     float64
	}{{0, 0}, {-900 * time.Millisecond, 0}, {50 * time.Millisecond, 0}, {10 * time.Second, 9.9}, {-10 * time.Second, -9}} {
		if got := skew(now.Add(tt.reported), now, now.Add(100*time.Millisecond)); got == nil || *got != tt.want {
			t.Errorf("a store that tells %v: %v, want %v", tt.reported, *got, tt.want)
		}
	}
	if got := skew(time.Time{}, now, now); got != nil {
		t.Errorf("a store that tells no time is %v s ahead", *got)
	}
}

// locking makes writers wait until no object is read, as MinIO does, object by object.
type locking struct {
	backends.Backend
	readers atomic.Int64
}

func (b *locking) OpenRange(ctx context.Context, obj backends.Object, off, n int64) (io.ReadCloser, error) {
	body, err := b.Backend.OpenRange(ctx, obj, off, n)
	if err != nil {
		return nil, err
	}
	b.readers.Add(1)
	return &locked{ReadCloser: body, unlock: sync.OnceFunc(func() { b.readers.Add(-1) })}, nil
}

// wait returns when nobody reads.
func (b *locking) wait() {
	for b.readers.Load() > 0 {
		time.Sleep(time.Millisecond)
	}
}

func (b *locking) Delete(ctx context.Context, key string) error {
	b.wait()
	return b.Backend.Delete(ctx, key)
}

func (b *locking) Create(ctx context.Context, key string, opts backends.CreateOptions) (backends.Writer, error) {
	b.wait()
	return b.Backend.Create(ctx, key, opts)
}

type locked struct {
	io.ReadCloser
	unlock func()
}

func (l *locked) Close() error {
	l.unlock()
	return l.ReadCloser.Close()
}

// renaming returns another version from a write than from stat, as gateways do that put their own
// ETag on an upload.
type renaming struct{ backends.Backend }

func (b renaming) Create(ctx context.Context, key string, opts backends.CreateOptions) (backends.Writer, error) {
	w, err := b.Backend.Create(ctx, key, opts)
	return renamed{w}, err
}

type renamed struct{ backends.Writer }

func (w renamed) Commit(ctx context.Context) (backends.Object, error) {
	obj, err := w.Writer.Commit(ctx)
	obj.Version += "-1"
	return obj, err
}

type careless struct{ backends.Backend }

func (b careless) Create(ctx context.Context, key string, opts backends.CreateOptions) (backends.Writer, error) {
	opts.IfAbsent = false
	return b.Backend.Create(ctx, key, opts)
}

type unpinned struct{ backends.Backend }

func (b unpinned) OpenRange(ctx context.Context, obj backends.Object, off, n int64) (io.ReadCloser, error) {
	obj.Version = ""
	return b.Backend.OpenRange(ctx, obj, off, n)
}

// flipping changes the 1,000th byte of every object.
type flipping struct{ backends.Backend }

func (b flipping) OpenRange(ctx context.Context, obj backends.Object, off, n int64) (io.ReadCloser, error) {
	body, err := b.Backend.OpenRange(ctx, obj, off, n)
	if err != nil {
		return nil, err
	}
	return &flipped{body, 1000 - off}, nil
}

// ObjectChecksum returns the checksum of the unchanged bytes.
func (f *flipped) ObjectChecksum() backends.Checksum {
	return f.ReadCloser.(backends.ChecksumReader).ObjectChecksum()
}

type flipped struct {
	io.ReadCloser
	at int64
}

func (f *flipped) Read(p []byte) (int, error) {
	n, err := f.ReadCloser.Read(p)
	if f.at >= 0 && f.at < int64(n) {
		p[f.at] ^= 1
	}
	f.at -= int64(n)
	return n, err
}

// belated is a store that still performs a cancelled request, a moment later: after the scratch
// directory was removed.
type belated struct{ backends.Backend }

func (b belated) Create(_ context.Context, key string, opts backends.CreateOptions) (backends.Writer, error) {
	w, err := b.Backend.Create(context.Background(), key, opts)
	return belatedWriter{w}, err
}

type belatedWriter struct{ backends.Writer }

func (w belatedWriter) Abort() error { return nil }

func (w belatedWriter) Commit(ctx context.Context) (backends.Object, error) {
	time.Sleep(20 * time.Millisecond)
	if ctx.Err() != nil {
		time.AfterFunc(500*time.Millisecond, func() { _, _ = w.Writer.Commit(context.Background()) })
		return backends.Object{}, ctx.Err()
	}
	return w.Writer.Commit(ctx)
}

func TestInterruptRemovesLateWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		_, there, err := try(ctx, t, Config{Progress: func(now string) {
			if now == "writing a first object" {
				time.AfterFunc(10*time.Millisecond, cancel)
			}
		}}, func(b backends.Backend) backends.Backend { return belated{b} })
		if len(there) > 0 {
			t.Errorf("got %v, and %q is left", err, there)
		}
	})
}

// refusing fails each delete of a missing key, as rclone serve s3 does.
type refusing struct{ backends.Backend }

func (s refusing) Delete(ctx context.Context, key string) error {
	if _, err := s.Stat(ctx, key); err != nil {
		return backends.Errorf(backends.Unavailable, "delete", key, "the server answers HTTP 500")
	}
	return s.Backend.Delete(ctx, key)
}

// With a store that always fails one request, a check took two minutes for each such request,
// without any message.
func TestStoreFailsOneRequestForever(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		m := mem.New()
		store := backends.NewStore(slow().Wrap(refusing{m}), "mem://test", backends.Options{Log: slog.New(slog.NewTextHandler(&log, nil))})
		began := time.Now()
		_, err := Run(t.Context(), Config{Store: store, Size: 1 << 20})
		if err != nil {
			t.Fatal(err)
		}
		if got := time.Since(began); got > 2*time.Minute {
			t.Errorf("the check took %v, want less than two minutes", got)
		}
		if got := strings.Count(log.String(), "HTTP 500"); got < 2 {
			t.Errorf("the log names the failure %d times, want each request that fails and that it goes on:\n%s", got, &log)
		}
	})
}

// strict is a store that answers long names with an error of a server.
type strict struct {
	backends.Backend
	kind backends.Kind
	busy int // requests that are throttled first
}

func (s *strict) Create(ctx context.Context, key string, opts backends.CreateOptions) (backends.Writer, error) {
	if len(path.Base(key)) > 255 {
		return nil, backends.Errorf(s.kind, "create", key, "File name too long (HTTP 500)")
	}
	if strings.HasSuffix(key, "/short") && s.busy > 0 {
		s.busy--
		return nil, backends.Errorf(backends.Throttled, "create", key, "SlowDown (HTTP 503)")
	}
	return s.Backend.Create(ctx, key, opts)
}

// A server that answers 500 to names that are too long for its file system was asked for each length
// for as long as a store may be away, a hundred seconds in all, and each name of 1,024 bytes and key
// of 4,096 was logged.
func TestLongestNameTakesNoTimeAtAServerThatFailsLongNames(t *testing.T) {
	for _, kind := range []backends.Kind{backends.Unavailable, backends.Throttled, backends.Invalid} {
		for _, busy := range []int{0, 1} {
			t.Run(fmt.Sprintf("%v/busy=%d", kind, busy), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					store := &strict{kind: kind, busy: busy}
					var began time.Time
					r, left, err := try(t.Context(), t, Config{Progress: func(now string) {
						switch {
						case now == "looking for the longest name":
							began = time.Now()
						case !began.IsZero():
							if took := time.Since(began); took > 10*time.Second {
								t.Errorf("got %v for the search, want no time", took)
							}
							began = time.Time{}
						}
					}}, func(b backends.Backend) backends.Backend { store.Backend = slow().Wrap(b); return store })
					if err != nil || r.Capabilities.LongestName != 255 || r.Capabilities.LongestKey != MostKey || len(left) > 0 {
						t.Errorf("got %d and %d, %v, %q is left; want 255 and %d", r.Capabilities.LongestName, r.Capabilities.LongestKey, err, left, MostKey)
					}
				})
			})
		}
	}
}
