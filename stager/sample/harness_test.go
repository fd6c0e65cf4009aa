package sample

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stager-dev/stager/window"
	"github.com/stager-dev/stager/window/disk"
)

// record encodes data as a TFRecord.
func record(data string) []byte {
	out := binary.LittleEndian.AppendUint64(nil, uint64(len(data)))
	out = binary.LittleEndian.AppendUint32(out, masked(crc32.Checksum(out, castagnoli)))
	out = append(out, data...)
	return binary.LittleEndian.AppendUint32(out, masked(crc32.Checksum([]byte(data), castagnoli)))
}

// archive returns a tar of files that contain their own names; a name that ends in a slash is a
// directory.
func archive(t testing.TB, names ...string) []byte {
	t.Helper()
	var buf bytes.Buffer
	out := tar.NewWriter(&buf)
	for _, name := range names {
		h := &tar.Header{Name: name, Mode: 0o644, Size: int64(len(name)), Typeflag: tar.TypeReg}
		body := name
		if strings.HasSuffix(name, "/") {
			h.Typeflag, h.Size, body = tar.TypeDir, 0, ""
		}
		if err := out.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := out.Write([]byte(body)); err != nil {
			t.Fatal(err)
		}
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

// dataset is the shards of a window. It implements window.Fetcher.
type dataset struct {
	names  []string
	bodies [][]byte
	want   []string // names of all samples
}

func (d *dataset) Fetch(_ context.Context, item int, in *disk.Incoming) (string, error) {
	_, err := in.WriteAt(d.bodies[item], 0)
	return "", err
}

// tars returns shards of n samples, each with two files.
func tars(t testing.TB, shards, n int) *dataset {
	d := new(dataset)
	for i := range shards {
		var names []string
		for j := range n {
			name := fmt.Sprintf("s%02d/%03d", i, j)
			names = append(names, name+".jpg", name+".cls")
			d.want = append(d.want, name)
		}
		d.add(fmt.Sprintf("train-%02d.tar", i), archive(t, names...))
	}
	return d
}

// records returns shards of n records.
func records(shards, n int) *dataset {
	d := new(dataset)
	for i := range shards {
		var body []byte
		for j := range n {
			name := fmt.Sprintf("s%02d/%03d", i, j)
			body = append(body, record(name)...)
			d.want = append(d.want, name)
		}
		d.add(fmt.Sprintf("train-%02d.tfrecord", i), body)
	}
	return d
}

func (d *dataset) add(name string, body []byte) {
	d.names, d.bodies = append(d.names, name), append(d.bodies, body)
}

// house is a window over a dataset, with a sampler that reads from it.
type house struct {
	t       *testing.T
	source  *window.Window
	cfg     Config
	sampler *Sampler
	wait    func() error // waits until the sampler has delivered everything
	end     func() error // stops the sampler as a kill would: no lease is returned
}

// newHouse returns a house whose source window has size bytes; 0: as large as needed.
func newHouse(t *testing.T, d *dataset, size int64, change func(*Config)) *house {
	t.Helper()
	cfg := window.Config{Input: "train", Dir: t.TempDir(), Size: size, Epochs: 2, Manifest: "p", Fetcher: d}
	var list window.List
	for i, name := range d.names {
		list = append(list, window.Item{Name: name, Size: int64(len(d.bodies[i]))})
		if size == 0 {
			cfg.Size += int64(len(d.bodies[i]))
		}
	}
	cfg.Items = list
	source, err := window.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = run(t, source.Run)
	t.Cleanup(func() { _ = source.Close() })
	h := &house{t: t, source: source, cfg: Config{
		Input: "train", Source: source, Plan: "p", Reader: "sampler", Epochs: 2,
		Dir: t.TempDir(), Size: 1 << 20, Samples: 10, Open: 3, Seed: 7,
	}}
	if change != nil {
		change(&h.cfg)
	}
	h.open()
	t.Cleanup(func() { _ = h.end() })
	return h
}

// run runs f until the test ends, or stop is called. Both functions return f's error.
func run(t *testing.T, f func(context.Context) error) (wait, stop func() error) {
	ctx, cancel := context.WithCancel(context.Background())
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		err = f(ctx)
	}()
	wait = func() error { <-done; return err }
	stop = func() error { cancel(); return wait() }
	t.Cleanup(func() { _ = stop() })
	return wait, stop
}

func (h *house) open() {
	h.t.Helper()
	h.cfg.Epoch = h.source.Status().Epoch
	s, err := New(h.cfg)
	if err != nil {
		h.t.Fatal(err)
	}
	wait, stop := run(h.t, s.Run)
	h.sampler, h.wait = s, wait
	h.end = sync.OnceValue(func() error { return errors.Join(stop(), s.Close()) })
}

// got is a file that a reader received.
type got struct {
	window.Lease
	body []byte
}

// next leases a file and reads it; it returns false at the end of an epoch.
func (h *house) next() (got, bool) {
	h.t.Helper()
	l, err := h.sampler.Window().Lease(context.Background(), window.LeaseRequest{Reader: "r", Wait: time.Minute})
	if end, is := errors.AsType[*window.EndError](err); is {
		h.t.Log("end of", end.Epoch)
		return got{}, false
	}
	if err != nil {
		h.t.Fatal(err)
	}
	body, err := os.ReadFile(l.Path)
	if err != nil {
		h.t.Fatal(err)
	}
	return got{l, body}, true
}

func (h *house) ack(g got) {
	h.t.Helper()
	if err := h.sampler.Window().Ack(g.ID); err != nil {
		h.t.Fatal(err)
	}
}

// epoch reads the rest of an epoch.
func (h *house) epoch() (all []got) {
	h.t.Helper()
	for {
		g, ok := h.next()
		if !ok {
			return all
		}
		all = append(all, g)
		h.ack(g)
	}
}

// samples returns the names of a file's samples, in order; each must be complete.
func samples(t *testing.T, g got) (names []string) {
	t.Helper()
	f, spans, err := index(filepath.Base(g.Path), bytes.NewReader(g.body), int64(len(g.body)))
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range spans {
		part := g.body[s.off:s.end]
		if f == recordFormat {
			names = append(names, string(part[recordHead:len(part)-recordRest]))
			continue
		}
		in := tar.NewReader(bytes.NewReader(part))
		var files []string
		for {
			header, err := in.Next()
			if err != nil {
				break
			}
			files = append(files, header.Name)
		}
		name := sampleKey(files[0])
		if want := []string{name + ".jpg", name + ".cls"}; fmt.Sprint(files) != fmt.Sprint(want) {
			t.Errorf("a sample has the files %q, want %q", files, want)
		}
		names = append(names, name)
	}
	if g.Samples != len(names) {
		t.Errorf("%s holds %d samples, and its lease says %d", g.Name, len(names), g.Samples)
	}
	return names
}
