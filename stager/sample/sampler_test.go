package sample

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stager-dev/stager/window"
	"github.com/stager-dev/stager/window/disk"
)

// own is what a sampler's directory takes of its size besides files.
const own = 160 << 10

func names(t *testing.T, files []got) (all []string) {
	t.Helper()
	for _, g := range files {
		all = append(all, samples(t, g)...)
	}
	return all
}

// once fails unless all contains each sample of the dataset once.
func (d *dataset) once(t *testing.T, all []string) {
	t.Helper()
	all = slices.Sorted(slices.Values(all))
	if want := slices.Sorted(slices.Values(d.want)); !slices.Equal(all, want) {
		t.Errorf("got %d samples %q, want %d, each once", len(all), all, len(want))
	}
}

func TestSamplerDeliversEachSampleOncePerEpoch(t *testing.T) {
	for _, tt := range []struct {
		name string
		data *dataset
	}{{"tar", tars(t, 8, 17)}, {"TFRecord", records(8, 17)}} {
		t.Run(tt.name, func(t *testing.T) {
			h := newHouse(t, tt.data, 0, func(c *Config) { c.Size = own + 64<<10 })
			var before []string
			for range 2 {
				files := h.epoch()
				all := names(t, files)
				tt.data.once(t, all)
				if slices.IsSorted(all) || slices.Equal(all, before) {
					t.Errorf("not mixed: %q", all)
				}
				before = all
				for i, g := range files {
					if want := 10; g.Samples != want && i < len(files)-1 {
						t.Errorf("file %d has %d samples, want %d", i, g.Samples, want)
					}
				}
			}
			// The last acknowledgement reaches the source a moment after the reader made it, and
			// before Run ends.
			if err := h.wait(); err != nil {
				t.Fatal(err)
			}
			if s := h.sampler.Window().Status(); s.Peak > h.cfg.Size || !s.Done {
				t.Errorf("peak %d of %d, done %v", s.Peak, h.cfg.Size, s.Done)
			}
			if s := h.source.Status(); !s.Done || s.Redelivered > 0 {
				t.Errorf("the source is done: %v, and %d shards came again", s.Done, s.Redelivered)
			}
		})
	}
}

// bodies concatenates the files.
func bodies(files []got) []byte {
	var all []byte
	for _, g := range files {
		all = append(all, g.body...)
	}
	return all
}

func TestSamplerIsDeterministicForASeed(t *testing.T) {
	d := tars(t, 6, 11)
	mix := func(seed int64) []byte {
		h := newHouse(t, d, 0, func(c *Config) { c.Seed = seed })
		return bodies(append(h.epoch(), h.epoch()...))
	}
	one, again, other := mix(1), mix(1), mix(2)
	if !bytes.Equal(one, again) {
		t.Error("the same seed gives other bytes")
	}
	if bytes.Equal(one, other) {
		t.Error("another seed gives the same bytes")
	}
}

// A sampler is killed at any point, without notice to its source, and another one continues in its
// directory.
func TestSamplerResumesAfterKill(t *testing.T) {
	d := tars(t, 9, 13)
	whole := newHouse(t, d, 0, nil)
	want := bodies(append(whole.epoch(), whole.epoch()...))
	for _, small := range []int64{1 << 20, own + 40<<10} {
		h := newHouse(t, d, 0, func(c *Config) { c.Size = small })
		var all []got
		for n := 0; len(all) < 24; n++ {
			g, ok := h.next()
			if ok {
				all = append(all, g)
				h.ack(g)
			}
			if n%2 == 1 {
				if _, ok = h.next(); !ok { // held while the sampler is killed
					continue
				}
				if err := h.end(); err != nil && !strings.Contains(err.Error(), "canceled") {
					t.Fatal(err)
				}
				h.open()
				h.freeAll()
			}
		}
		if got := bodies(all); !bytes.Equal(got, want) {
			t.Errorf("with %d bytes of room: other bytes than without kills (%d, want %d)", small, len(got), len(want))
		}
		if s := h.source.Status(); s.Redelivered > 0 {
			t.Errorf("%d shards came again", s.Redelivered)
		}
	}
}

// A sampler was killed while its source sent it a shard, so that the lease is not in its state. The
// next sampler returns the lease and gets the shard in turn.
func TestSamplerReturnsUnknownLeases(t *testing.T) {
	d := tars(t, 9, 13)
	whole := newHouse(t, d, 0, nil)
	want := bodies(append(whole.epoch(), whole.epoch()...))
	h := newHouse(t, d, 0, func(c *Config) { c.Size = own + 40<<10 })
	g, _ := h.next()
	h.ack(g)
	if err := h.end(); err != nil && !strings.Contains(err.Error(), "canceled") {
		t.Fatal(err)
	}
	if _, err := h.source.Lease(t.Context(), window.LeaseRequest{Reader: h.cfg.Reader}); err != nil {
		t.Fatal(err)
	}
	h.open()
	if got := bodies(append(append([]got{g}, h.epoch()...), h.epoch()...)); !bytes.Equal(got, want) {
		t.Errorf("other bytes than without the kill (%d, want %d)", len(got), len(want))
	}
}

// freeAll returns all leases from before a restart: the reader reports that it does not know them.
func (h *house) freeAll() {
	h.t.Helper()
	l, err := h.sampler.Window().Lease(h.t.Context(), window.LeaseRequest{Reader: "r", Bound: true})
	if err == nil {
		err = h.sampler.Window().PutBack(l.ID)
	}
	_, waits := errors.AsType[*window.WaitError](err)
	_, ends := errors.AsType[*window.EndError](err)
	if err != nil && !waits && !ends {
		h.t.Fatal(err)
	}
}

func TestSamplerLosesNothingWithoutItsState(t *testing.T) {
	for _, tt := range []struct {
		name  string
		spoil func(h *house)
		says  []string
	}{
		{"no state", func(h *house) { _ = os.Remove(filepath.Join(h.sampler.cfg.Dir, stateName)) }, nil},
		{"half a state", func(h *house) { _ = os.Truncate(filepath.Join(h.sampler.cfg.Dir, stateName), 20) }, []string{"cannot read the state of the previous sampler, starting over"}},
		{"a link for a state", func(h *house) {
			path := filepath.Join(h.sampler.cfg.Dir, stateName)
			_ = errors.Join(os.Remove(path), os.Symlink("elsewhere", path))
		}, []string{"state of the previous sampler is not a regular file, starting over"}},
		{"another seed", func(h *house) { h.cfg.Seed++ }, []string{"state of the previous sampler is unusable, sampling its shards from the start"}},
		{"leases ended", func(h *house) {
			for _, id := range h.sampler.leases() {
				_ = h.source.PutBack(id)
			}
		}, []string{"state of the previous sampler is unusable, sampling its shards from the start"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := records(7, 12)
			var said words
			h := newHouse(t, d, 0, func(c *Config) { c.Log = slog.New(slog.NewTextHandler(&said, nil)) })
			var all []got
			for range 3 {
				g, _ := h.next()
				all = append(all, g)
				h.ack(g)
			}
			_ = h.end()
			tt.spoil(h)
			if strings.HasSuffix(tt.name, "state") {
				for _, id := range h.sampler.leases() {
					_ = h.source.PutBack(id) // as after their time-out
				}
			}
			h.open()
			all = append(all, h.epoch()...)
			seen := slices.Sorted(slices.Values(names(t, all)))
			if got := slices.Compact(seen); len(got) != len(d.want) {
				t.Errorf("got %d samples, want %d", len(got), len(d.want))
			}
			said.want(t, tt.says...)
		})
	}
}

// A source with room for fewer shards than Config.Open must not block the sampler.
func TestSamplerMixesFewerShardsOfASmallSource(t *testing.T) {
	d := records(6, 20)
	var said words
	h := newHouse(t, d, int64(2*len(d.bodies[0])), func(c *Config) {
		c.Open, c.jamAfter, c.Log = 4, 50*time.Millisecond, slog.New(slog.NewTextHandler(&said, nil))
	})
	d.once(t, names(t, h.epoch()))
	said.want(t, "the input's window is too small to mix all requested shards, mixing fewer: raise its size, or reduce --open")
}

func TestSamplerSkipsEmptyShards(t *testing.T) {
	d := tars(t, 3, 5)
	d.add("empty.tar", archive(t))
	d.add("nothing.tfrecord", nil)
	h := newHouse(t, d, 0, nil)
	d.once(t, names(t, h.epoch()))
}

func TestSamplerFailsOnABadShard(t *testing.T) {
	broken := record("abc")
	broken[13] ^= 1
	for _, tt := range []struct {
		name string
		body []byte
		want string
	}{
		{"a.tfrecord", append(record("first"), broken...), "a.tfrecord of input train cannot be sampled: record 1, at byte 21, has data with a wrong checksum; repair it at its source, or exclude it in the plan"},
		{"a.tar.gz", []byte("\x1f\x8b rest"), "a.tar.gz of input train cannot be sampled: it is compressed (gzip); samples can only be read from uncompressed tar and TFRecord files; repair it at its source, or exclude it in the plan"},
		{"a.tar", archive(t, "0.jpg"), "a.tar of input train cannot be sampled: it is tar, but earlier shards are TFRecord; formats cannot be mixed; repair it at its source, or exclude it in the plan"},
	} {
		d := records(1, 3)
		d.add(tt.name, tt.body)
		h := newHouse(t, d, 0, nil)
		var err error
		for err == nil { // the files of good samples come first
			_, err = h.sampler.Window().Lease(t.Context(), window.LeaseRequest{Reader: "r", Wait: time.Minute})
		}
		if err.Error() != tt.want {
			t.Errorf("%s: got %v, want %s", tt.name, err, tt.want)
		}
	}
}

func TestSamplerRejectsAFileThatDoesNotFit(t *testing.T) {
	h := newHouse(t, records(2, 30), 0, func(c *Config) { c.Size = 148 << 10 })
	_, err := h.sampler.Window().Lease(t.Context(), window.LeaseRequest{Reader: "r", Wait: time.Minute})
	var small *RoomError
	if !errors.As(err, &small) || small.Have >= small.Need || small.Least <= h.cfg.Size {
		t.Fatalf("got %v, want a RoomError with a size that suffices", err)
	}
	h = newHouse(t, records(2, 30), 0, func(c *Config) { c.Size = small.Least })
	h.epoch()
}

// Files of 230 bytes took 1.8 MB with a limit of 224 KiB, which counted their bytes and not their blocks.
func TestSamplerKeepsToItsSizeOnDisk(t *testing.T) {
	h := newHouse(t, records(40, 100), 0, func(c *Config) { c.Size = own + 64<<10 })
	for files := 0; ; files++ {
		var wait *window.WaitError
		_, err := h.sampler.Window().Lease(t.Context(), window.LeaseRequest{Reader: "r", Wait: time.Second})
		if errors.As(err, &wait) && (wait.Cause == window.CauseBudget || wait.Cause == window.CauseReaders) {
			t.Logf("%d files are held", files)
			break
		} else if err != nil && wait == nil {
			t.Fatalf("%d files: %v", files, err)
		}
	}
	took, err := disk.Taken(h.cfg.Dir)
	if err != nil || took > h.cfg.Size {
		t.Errorf("%d bytes are on the disk (%v), want at most %d", took, err, h.cfg.Size)
	}
}
