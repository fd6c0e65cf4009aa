package download

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/conformance"
	"github.com/stager-dev/stager/window/disk"
)

const mib = 1 << 20

func TestObjectIsSplitAndChecksummed(t *testing.T) {
	for _, tt := range []struct {
		size  int64
		sum   backends.Algorithm
		reads int
		stats int
	}{
		{0, backends.CRC64NVME, 0, 0},
		{1, backends.CRC64NVME, 1, 0},
		{20 * mib, backends.CRC32C, 1, 0},
		{64*mib + 1, backends.CRC64NVME, 5, 0},
		{65*mib + 5, backends.SHA256, 5, 0}, // read back
		{65 * mib, "", 5, 0},
	} {
		s := newSource(t, tt.sum)
		obj := s.Generate("k", tt.size)
		obj.Sum = backends.Checksum{} // as in a listing
		dir := t.TempDir()
		in := incoming(t, directory(t, dir), obj)
		var arrived int64
		sum, err := Object(t.Context(), s.store, obj, in, Options{Streams: 1, Arrived: func(n int64) { arrived += n }})
		if err != nil {
			t.Errorf("%d bytes: %v", tt.size, err)
			continue
		}
		var want backends.Checksum
		if tt.sum != "" && tt.size > 0 {
			want = conformance.ContentsOf("k", tt.size).Sum(tt.sum)
		}
		if sum != want {
			t.Errorf("%d bytes have the checksum %v, want %v", tt.size, sum, want)
		}
		if got := len(s.reads("k")); got != tt.reads || s.calls(conformance.Stat) != tt.stats {
			t.Errorf("%d bytes took %d reads and %d stats, want %d and %d", tt.size, got, s.calls(conformance.Stat), tt.reads, tt.stats)
		}
		if arrived != tt.size {
			t.Errorf("of %d bytes %d arrived", tt.size, arrived)
		}
		if err := in.Publish("k", 0o644, obj.ModTime); err != nil {
			t.Error(err)
		}
		holds(t, dir, "k", tt.size)
	}
}

// A store without ranges would send all bytes before each piece again.
func TestObjectWithoutRangesIsOneRead(t *testing.T) {
	for _, piece := range []int64{0, mib} {
		s := newSource(t, "")
		obj := s.Generate("k", 65*mib)
		obj.Whole = true
		in := incoming(t, directory(t, t.TempDir()), obj)
		if _, err := Object(t.Context(), s.store, obj, in, Options{Streams: 4, Piece: piece}); err != nil {
			t.Fatal(err)
		}
		if got := len(s.reads("k")); got != 1 {
			t.Errorf("with pieces of %d bytes: %d reads, want 1", piece, got)
		}
	}
}

func TestRangesEndAtMultiples(t *testing.T) {
	got := cut([]disk.Range{{Off: 5, Len: 10}, {Off: 20 * mib, Len: 30 * mib}}, 65*mib, 1*mib)
	want := []disk.Range{{Off: 5, Len: 10}, {Off: 20 * mib, Len: 12 * mib}, {Off: 32 * mib, Len: 16 * mib}, {Off: 48 * mib, Len: 2 * mib}}
	if !slices.Equal(got, want) {
		t.Errorf("cut into %v, want %v", got, want)
	}
}

func TestObjectResumesBrokenStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSource(t, backends.CRC64NVME)
		obj := s.Generate("k", 3*mib)
		s.faults.Add(conformance.Read, conformance.Cut(mib+5), conformance.Fail(backends.Unavailable), conformance.Stall(7))
		dir := t.TempDir()
		in := incoming(t, directory(t, dir), obj)
		if _, err := Object(t.Context(), s.store, obj, in, Options{}); err != nil {
			t.Fatal(err)
		}
		if left := s.faults.Left(); left != 0 {
			t.Errorf("%d faults were not met", left)
		}
		if err := in.Publish("k", 0o644, obj.ModTime); err != nil {
			t.Fatal(err)
		}
		holds(t, dir, "k", 3*mib)
	})
}

func TestObjectResumedIsChecksummedFromDisk(t *testing.T) {
	for _, damage := range []bool{false, true} {
		s := newSource(t, backends.CRC64NVME)
		obj := s.Generate("k", 80*mib)
		obj.Sum = backends.Checksum{}
		f := directory(t, t.TempDir())
		in := incoming(t, f, obj)
		half := conformance.ContentsOf("k", 80*mib).Bytes()[:40*mib]
		if damage {
			half[17] ^= 1
		}
		if _, err := in.WriteAt(half, 0); err != nil {
			t.Fatal(err)
		}
		if err := in.Close(); err != nil {
			t.Fatal(err)
		}
		in = incoming(t, f, obj)
		_, err := Object(t.Context(), s.store, obj, in, Options{})
		if damage != (backends.KindOf(err) == backends.Corrupt) || !damage && err != nil {
			t.Errorf("damaged %v: got %v", damage, err)
		}
		want := []disk.Range{{Off: 40 * mib, Len: 8 * mib}, {Off: 48 * mib, Len: 16 * mib}, {Off: 64 * mib, Len: 16 * mib}}
		if got := s.reads("k"); !slices.Equal(got, want) {
			t.Errorf("read %v, want %v", got, want)
		}
	}
}

func TestVerifyModes(t *testing.T) {
	for _, tt := range []struct {
		verify  Verify
		sum     backends.Algorithm
		corrupt bool
		kind    backends.Kind // Unknown: no error
	}{
		{VerifyAuto, backends.CRC64NVME, true, backends.Corrupt},
		{"", backends.CRC64NVME, true, backends.Corrupt},
		{VerifyAuto, backends.MD5, true, backends.Corrupt},
		{VerifyAuto, "", true, backends.Unknown},
		{VerifySize, backends.CRC64NVME, true, backends.Unknown},
		{VerifyFull, backends.CRC64NVME, true, backends.Corrupt},
		{VerifyFull, backends.CRC64NVME, false, backends.Unknown},
		{VerifyFull, "", false, backends.Unsupported},
		{"most", backends.CRC64NVME, false, backends.Invalid},
	} {
		s := newSource(t, tt.sum)
		obj := s.Generate("k", 1000)
		if tt.corrupt {
			s.corrupt["k"] = 1
		}
		in := incoming(t, directory(t, t.TempDir()), obj)
		_, err := Object(t.Context(), s.store, obj, in, Options{Verify: tt.verify})
		if (err != nil) != (tt.kind != backends.Unknown) || err != nil && backends.KindOf(err) != tt.kind {
			t.Errorf("%+v: got %v", tt, err)
		}
	}
}

func TestObjectNeverMixesVersions(t *testing.T) {
	s := newSource(t, backends.CRC64NVME)
	obj := s.Generate("k", 70*mib)
	s.faults.Add(conformance.Read, conformance.Pass(), conformance.Meanwhile(0, func() { s.Generate("k", 70*mib) }))
	in := incoming(t, directory(t, t.TempDir()), obj)
	if _, err := Object(t.Context(), s.store, obj, in, Options{Streams: 1}); backends.KindOf(err) != backends.Changed {
		t.Errorf("got %v, want kind Changed", err)
	}
}

func TestObjectEndsWithItsContext(t *testing.T) {
	s := newSource(t, backends.CRC64NVME)
	obj := s.Generate("k", 70*mib)
	ctx, cancel := context.WithCancel(t.Context())
	s.faults.Add(conformance.Read, conformance.Meanwhile(mib, cancel)).Always(conformance.Read, conformance.Stall(mib))
	in := incoming(t, directory(t, t.TempDir()), obj)
	if _, err := Object(ctx, s.store, obj, in, Options{}); backends.KindOf(err) != backends.Canceled {
		t.Errorf("got %v, want kind Canceled", err)
	}
}
