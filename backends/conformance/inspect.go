package conformance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/stager-dev/stager/backends"
)

// inspection is the state of one check of existing objects.
type inspection struct {
	check
	objects []backends.Object
}

// inspections are the reading half of the contract.
var inspections = []struct {
	name string
	run  func(*inspection)
}{
	{"the capabilities of the store are consistent", func(i *inspection) { capabilitiesAreSane(&i.check) }},
	{"a listing ascends and ends at its prefix", inspectListing},
	{"a listing can be left in the middle", inspectLeftListing},
	{"stat returns what the listing returned", inspectStat},
	{"a missing key is reported as missing", inspectMissing},
	{"a range returns the requested bytes", inspectRanges},
	{"a range outside the object is an error", inspectUnfit},
	{"a stream can be read in bits and left early", inspectLeftStream},
	{"bytes match the checksum of the store", inspectSums},
	{"a version that was replaced is rejected", inspectVersion},
	{"a read can be cancelled", inspectCancel},
	{"broken streams are resumed", inspectBroken},
}

// mostRead is how many bytes of an object are read.
const mostRead = 4 << 20

// Inspect checks a store without writing to it, using existing objects; a few suffice. They must
// not change meanwhile.
func Inspect[P Runner[P]](t P, open func(P) *backends.Store, objects []backends.Object) {
	for _, in := range inspections {
		t.Run(in.name, func(t P) {
			store := open(t)
			backend, prefix := store.Backend()
			in.run(&inspection{check{t, t.Context(), store, backend, prefix, store.Capabilities(), Options{}}, objects})
		})
	}
}

// some returns an object of at least size bytes. Without one, the check is skipped.
func (i *inspection) some(size int64) backends.Object {
	i.Helper()
	for _, obj := range i.objects {
		if obj.Size >= size {
			return obj
		}
	}
	i.Skipf("no object of at least %d bytes is known here", size)
	return backends.Object{}
}

func inspectListing(i *inspection) {
	for _, obj := range i.objects {
		n := 0
		for listed, err := range i.store.List(i.ctx, obj.Key) { // the Store rejects keys that do not ascend
			switch {
			case err != nil:
				i.Fatalf("listing %q: %v", obj.Key, err)
			case !strings.HasPrefix(listed.Key, obj.Key):
				i.Fatalf("the list of %q has %q", obj.Key, listed.Key)
			case n == 0 && (listed.Key != obj.Key || listed.Size != obj.Size || listed.Version != obj.Version):
				i.Errorf("%q is listed with %d bytes and version %q, and now %q with %d and %q", obj.Key, obj.Size, obj.Version, listed.Key, listed.Size, listed.Version)
			}
			if n++; n == 100 {
				break
			}
		}
		if n == 0 {
			i.Errorf("the list with the whole key %q as prefix has it not", obj.Key)
		}
	}
}

func inspectLeftListing(i *inspection) {
	for range 4 * i.store.Connections() {
		for _, err := range i.store.List(i.ctx, i.objects[0].Key) {
			if err != nil {
				i.Fatalf("list: %v", err)
			}
			break
		}
	}
}

func inspectStat(i *inspection) {
	for _, obj := range i.objects {
		if stat := i.stat(obj.Key); stat.Size != obj.Size || stat.Version != obj.Version || obj.Version == "" {
			i.Errorf("%q is listed with %d bytes and version %q; stat says %d and %q", obj.Key, obj.Size, obj.Version, stat.Size, stat.Version)
		}
	}
}

func inspectMissing(i *inspection) {
	for _, key := range []string{".stager-check-missing", i.objects[0].Key + "/missing"} {
		if _, err := i.store.Stat(i.ctx, key); !errors.Is(err, fs.ErrNotExist) {
			i.Errorf("stat of %q: got %v, want fs.ErrNotExist", key, err)
		}
	}
	_, err := i.readAll(i.ctx, backends.Object{Key: ".stager-check-missing", Size: 1}, 0, 1)
	i.wantKind("reading a missing key", err, backends.NotExist)
}

// whole reads the first mostRead bytes of obj.
func (i *inspection) whole(obj backends.Object) []byte {
	i.Helper()
	got, err := i.readAll(i.ctx, obj, 0, min(obj.Size, mostRead))
	if err != nil {
		i.Fatalf("reading %q: %v", obj.Key, err)
	}
	return got
}

func inspectRanges(i *inspection) {
	obj := i.some(2)
	want := i.whole(obj)
	size := int64(len(want))
	for _, r := range []struct{ off, n int64 }{{0, 1}, {0, size}, {1, 1}, {size / 2, size / 4}, {size / 3, size - size/3}, {size - 1, 1}} {
		exp := want[r.off:][:r.n]
		got, err := i.readAll(i.ctx, obj, r.off, r.n)
		if err != nil {
			i.Errorf("%d bytes at %d of %q: %v", r.n, r.off, obj.Key, err)
		} else if !bytes.Equal(got, exp) {
			i.corrupt("%d bytes at %d of %q are not those of the whole", r.n, r.off, obj.Key)
		}
	}
}

func inspectUnfit(i *inspection) {
	obj := i.some(2)
	for _, r := range []struct{ off, n, most int64 }{{obj.Size - 1, 2, 1}, {obj.Size, 1, 0}, {2 * obj.Size, 10, 0}} {
		got, err := i.readAll(i.ctx, obj, r.off, r.n)
		if err == nil || int64(len(got)) > r.most {
			i.Errorf("%d bytes at %d of %d: got %d bytes, %v; want at most %d and an error", r.n, r.off, obj.Size, len(got), err, r.most)
		}
	}
}

func inspectLeftStream(i *inspection) {
	obj := i.some(2)
	for range 4*i.store.Connections() + 4 {
		body := i.open(obj, 0, -1)
		if n, err := body.Read(make([]byte, 1)); err != nil || n == 0 {
			i.Errorf("the first read: %d, %v", n, err)
		}
		if err := body.Close(); err != nil {
			i.Errorf("closing a stream that is half read: %v", err)
		}
	}
}

// inspectSums reads whole objects, up to 64 MiB each.
func inspectSums(i *inspection) {
	stated := 0
	for _, obj := range i.objects {
		a := obj.Sum.Algorithm
		if a == "" {
			a = i.capabilities.Checksum
		}
		if obj.Size > 64<<20 || a == "" {
			continue
		}
		h := a.New()
		sum, err := i.store.ReadRange(i.ctx, obj, 0, obj.Size, nowhere{}, h)
		if err != nil {
			i.Fatalf("reading %q: %v", obj.Key, err)
		}
		if sum.Algorithm != a || obj.Size == 0 {
			continue
		}
		stated++
		if got := backends.SumOf(a, h); got != sum {
			i.corrupt("%q: the store returns %v, but its bytes have %v", obj.Key, sum, got)
		}
	}
	if stated == 0 {
		i.Skipf("the store has no checksums of these objects")
	}
}

// nowhere is an io.WriterAt that discards bytes.
type nowhere struct{}

func (nowhere) WriteAt(p []byte, _ int64) (int, error) { return len(p), nil }

func inspectVersion(i *inspection) {
	obj := i.some(1)
	// Change one digit, so that the result still looks like a version of this store.
	v := []byte(obj.Version)
	for n := len(v) - 1; n >= 0; n-- {
		if v[n] >= '0' && v[n] <= '9' {
			v[n] = '0' + (v[n]-'0'+1)%10
			break
		}
	}
	old := obj
	old.Version = backends.Version(v)
	if old.Version == obj.Version {
		i.Skipf("the version %q has no digit that could be another", obj.Version)
	}
	_, err := i.readAll(i.ctx, old, 0, 1)
	i.wantKind(fmt.Sprintf("reading the version %q of %q", v, obj.Key), err, backends.Changed)
}

func inspectCancel(i *inspection) {
	obj := i.some(1)
	ctx, cancel := context.WithCancel(i.ctx)
	cancel()
	i.within("read", func() {
		_, err := i.readAll(ctx, obj, 0, -1)
		i.wantKind("read", err, backends.Canceled)
	})
	i.within("stat", func() {
		_, err := i.store.Stat(ctx, obj.Key)
		i.wantKind("stat", err, backends.Canceled)
	})
}

func inspectBroken(i *inspection) {
	obj := i.some(2)
	want := i.whole(obj)
	var faults Faults
	store := i.broken(&faults)
	faults.Add(Read, Cut(0), Cut(1), Fail(backends.Unavailable), Break(0, errors.New("reset")))
	got := make(memory, len(want))
	if _, err := store.ReadRange(i.ctx, obj, 0, int64(len(want)), got, nil); err != nil {
		i.Errorf("a stream that breaks: %v", err)
	} else if !bytes.Equal(got, want) {
		i.corrupt("a stream that breaks returns other bytes of %q", obj.Key)
	}
}
