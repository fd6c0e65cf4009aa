package download

import (
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/window/disk"
)

func TestSpoolRoundTrip(t *testing.T) {
	dir := t.TempDir()
	s, err := newSpool(directory(t, dir))
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	want := []entry{
		{Object: backends.Object{Key: "a"}, check: true},
		{Object: backends.Object{
			Key: strings.Repeat("x/", 50_000), Size: 1 << 60, ModTime: time.Unix(-5, 123), Version: "\"etag\"\x00",
			Sum: backends.Checksum{Algorithm: backends.CRC32C, Value: "01020304"},
		}},
		{Object: backends.Object{Key: "z", Size: 1, ModTime: time.Unix(1<<33, 0)}},
	}
	for _, obj := range want {
		if err := s.add(obj); err != nil {
			t.Fatal(err)
		}
	}
	s.end()
	for range 2 {
		var got []entry
		for obj, err := range s.all() {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, obj)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(dir, disk.Private, "*spool*")); len(left) > 0 {
		t.Errorf("%v would be left behind by a kill", left)
	}
	if err := s.file.Truncate(10); err != nil {
		t.Fatal(err)
	}
	var last error
	for _, last = range s.all() {
		continue
	}
	if last == nil {
		t.Error("a truncated spool was read without an error")
	}
}
