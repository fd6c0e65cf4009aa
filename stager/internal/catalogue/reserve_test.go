package catalogue

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// A window that works while its source is listed leaves the file of the list so much room, and no more.
func TestReservedRoomIsTheLimit(t *testing.T) {
	all := numbered(40_000) // of more than 1 MiB
	for _, before := range []int{0, 100, 30_000} {
		for _, room := range []int64{0, 8192, 400 << 10, 1 << 40} {
			path := filepath.Join(t.TempDir(), "catalogue")
			created := 0
			w := NewWriter(func() (*os.File, int64, error) {
				created++
				file, err := os.Create(path)
				return file, 8 << 20, err
			})
			for _, obj := range all[:before] {
				if err := w.Add(obj); err != nil {
					t.Fatal(err)
				}
			}
			written := roundUp(w.written)
			limit, err := w.Reserve(room)
			if want := max(min(room, 8<<20), written); limit != want || err != nil {
				t.Errorf("%d objects, %d bytes: got a limit of %d (%v), want %d", before, room, limit, err, want)
			}
			for _, obj := range all[before:] {
				if err := w.Add(obj); err != nil {
					t.Fatal(err)
				}
			}
			c, err := w.Finish()
			if err != nil {
				t.Fatal(err)
			}
			if size, err := c.OnDisk(); size > limit || err != nil {
				t.Errorf("%d objects, %d bytes: the file takes %d bytes (%v), want at most %d", before, room, size, err, limit)
			}
			if _, err := c.Keep("stamp"); err != nil && !errors.As(err, new(*RoomError)) {
				t.Error(err)
			}
			if size, err := c.OnDisk(); size > limit || err != nil {
				t.Errorf("%d objects, %d bytes: with its index it takes %d bytes (%v), want at most %d", before, room, size, err, limit)
			}
			for i, want := range all {
				if got, err := c.At(i); got != want || err != nil {
					t.Fatalf("%d objects, %d bytes: object %d is %+v (%v), want %+v", before, room, i, got, err, want)
				}
			}
			if created != 1 {
				t.Errorf("%d objects, %d bytes: the file was created %d times", before, room, created)
			}
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

func TestCatalogueInMemoryHasNoFile(t *testing.T) {
	w := InMemory()
	all := numbered(40_000)
	for _, obj := range all {
		if err := w.Add(obj); err != nil {
			t.Fatal(err)
		}
	}
	if limit, err := w.Reserve(1 << 20); limit != 0 || err != nil {
		t.Errorf("got a limit of %d (%v), want none", limit, err)
	}
	c, err := w.Finish()
	if err != nil {
		t.Fatal(err)
	}
	if size, err := c.OnDisk(); size != 0 || err != nil || c.Len() != len(all) {
		t.Errorf("got %d objects in %d bytes (%v), want all in memory", c.Len(), size, err)
	}
	if got, err := c.At(len(all) - 1); got != all[len(all)-1] || err != nil {
		t.Errorf("got %+v (%v), want the last", got, err)
	}
}
