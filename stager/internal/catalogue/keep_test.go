package catalogue

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stager-dev/stager/backends"
)

const stamp = "source 1"

// kept returns the file of a catalogue that Keep has completed.
func kept(t testing.TB, objects []backends.Object) (path string) {
	t.Helper()
	c, path := written(t, 0, objects)
	if file, err := c.Keep(stamp); file == nil || err != nil {
		t.Fatalf("got %v (%v), want a file", file, err)
	}
	return path
}

// open opens a copy of a file with a text in place of its own.
func open(t testing.TB, text []byte, stamp string) (*Catalogue, *os.File, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "copy")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	c, err := Open(file, stamp)
	return c, file, err
}

func read(t testing.TB, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestOpenReturnsWhatWasKept(t *testing.T) {
	all := numbered(20_000)
	for _, n := range []int{PerBlock + 1, 2 * PerBlock, 2*PerBlock + 1, len(all)} {
		c, _, err := open(t, read(t, kept(t, all[:n])), stamp)
		if err != nil {
			t.Fatal(err)
		}
		var got []backends.Object
		for obj, err := range c.All() {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, obj)
		}
		if !slices.Equal(got, all[:n]) {
			t.Errorf("%d objects are not what was kept", n)
		}
		if got, err := c.At(n - 1); got != all[n-1] || err != nil || c.Len() != n {
			t.Errorf("%d objects: the last one is %+v (%v)", n, got, err)
		}
	}
}

func TestOpenRefusesAnotherStamp(t *testing.T) {
	text := read(t, kept(t, numbered(1000)))
	for _, other := range [][]byte{text, nil, []byte("text"), make([]byte, 4096), read(t, "keep_test.go")} {
		if _, _, err := open(t, other, "source 2"); !errors.Is(err, ErrOther) {
			t.Errorf("%d bytes: got %v, want ErrOther", len(other), err)
		}
	}
}

// Whatever byte is damaged, wherever a file ends: it is not used.
func TestOpenRefusesDamage(t *testing.T) {
	text := read(t, kept(t, numbered(PerBlock+1)))
	for at := range text {
		damaged := slices.Clone(text)
		damaged[at] ^= 0x10
		if _, _, err := open(t, damaged, stamp); err == nil {
			t.Fatalf("byte %d of %d: no error", at, len(text))
		}
		if _, _, err := open(t, text[:at], stamp); err == nil {
			t.Fatalf("%d of %d bytes: no error", at, len(text))
		}
	}
}

// Another process puts blocks with valid checksums in the place of others, after they were verified.
func TestCatalogueRefusesForgedBlocks(t *testing.T) {
	all := numbered(3 * PerBlock)
	c, file, err := open(t, read(t, kept(t, all)), stamp)
	if err != nil {
		t.Fatal(err)
	}
	forged, last := make([]byte, sumLength), ""
	for _, obj := range all[:PerBlock] {
		obj.Size++
		forged, last = appendObject(forged, last, obj), obj.Key
	}
	seal(forged)
	if want := c.starts[1]; int64(len(forged)) != want {
		t.Fatalf("the forged block has %d bytes, want %d", len(forged), want)
	}
	if _, err := file.WriteAt(forged, 0); err != nil {
		t.Fatal(err)
	}
	if got, err := c.At(0); !errors.Is(err, errDamaged) {
		t.Errorf("got %+v (%v), want an error", got, err)
	}
	if got, err := c.At(PerBlock); got != all[PerBlock] || err != nil {
		t.Errorf("another block: got %+v (%v), want %+v", got, err, all[PerBlock])
	}
}

// A catalogue that is not in its file as a whole cannot be kept.
func TestKeepNeedsAllInTheFile(t *testing.T) {
	if file, err := first(written(t, inMemory, numbered(1000))).Keep(stamp); file != nil || err != nil {
		t.Errorf("in memory: got %v (%v), want nil", file, err)
	}
	var room *RoomError
	if file, err := first(writtenTo(t, 0, writeAtOnce, numbered(40_000))).Keep(stamp); file != nil || !errors.As(err, &room) || room.Room != writeAtOnce || room.Need <= writeAtOnce {
		t.Errorf("no room: got %v (%v), want a *RoomError for %d bytes", file, err, writeAtOnce)
	}
	all := numbered(40_000)
	c, _ := writtenTo(t, 0, 1<<40, all)
	size, err := c.OnDisk()
	if err != nil {
		t.Fatal(err)
	}
	for room := size; ; room += 4096 { // with the index it never takes more than its room
		c, _ := writtenTo(t, 0, room, all)
		file, err := c.Keep(stamp)
		if err != nil && !errors.As(err, new(*RoomError)) {
			t.Fatal(err)
		}
		if got, err := c.OnDisk(); got > room || err != nil {
			t.Errorf("room %d: the file takes %d bytes (%v)", room, got, err)
		}
		if file != nil {
			break
		}
	}
}

// What Open would refuse is not kept, and Keep says so.
func TestKeepRefusesWhatOpenRefuses(t *testing.T) {
	for name, change := range map[string]func(*Catalogue){
		"a long file":  func(c *Catalogue) { c.inFile = maxFile + 1 },
		"a long block": func(c *Catalogue) { c.starts[1] = maxBlock + 1 },
		"a long index": func(c *Catalogue) { c.sums = make([]uint64, maxIndex); c.starts = make([]int64, maxIndex+1) },
	} {
		c, _ := writtenTo(t, 0, 1<<40, numbered(3*PerBlock))
		change(c)
		if file, err := c.Keep(stamp); file != nil || !errors.Is(err, errTooLarge) {
			t.Errorf("%s: got %v (%v), want nil (%v)", name, file, err, errTooLarge)
		}
	}
}

func first(c *Catalogue, _ string) *Catalogue { return c }

// FuzzOpen opens files with a valid checksum of their index, whatever is in them.
func FuzzOpen(f *testing.F) {
	text := read(f, kept(f, numbered(2*PerBlock)))
	f.Add(text[:len(text)-12])
	f.Add(binary.LittleEndian.AppendUint64([]byte("\x08source 1\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x00"), 0))
	f.Fuzz(func(t *testing.T, text []byte) {
		if len(text) < 8 {
			return
		}
		start := binary.LittleEndian.Uint64(text[len(text)-8:])
		if start > uint64(len(text)) {
			return
		}
		text = binary.LittleEndian.AppendUint32(slices.Clone(text), crc32.Checksum(text[start:], castagnoli))
		c, _, err := open(t, append(text, magic...), stamp)
		if err != nil {
			return
		}
		n := 0
		for _, err := range c.All() {
			if err != nil {
				return
			}
			n++
		}
		if n != c.Len() {
			t.Fatalf("got %d objects of %d", n, c.Len())
		}
	})
}
