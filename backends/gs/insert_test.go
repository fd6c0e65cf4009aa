package gs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/conformance"
	"github.com/stager-dev/stager/backends/conformance/live"
	"github.com/stager-dev/stager/backends/internal/objectstore"
)

// fake-gcs-server has no XML API for writing, and every write to it failed with "invalid uploadType".
func TestContractWithoutXML(t *testing.T) {
	s := need(t, false, "-no-xml")
	t.Parallel()
	conformance.Run(t, func(t *testing.T) *backends.Store { return s.open(t, directory(t, "test")) },
		conformance.Options{MaxSize: 3*partSize + 1<<20, Unfit: unfit})
}

func TestFaultsWithoutXML(t *testing.T) {
	s := need(t, false, "-no-xml")
	t.Parallel()
	for _, size := range []int64{10, objectstore.SmallObject + 1<<20} {
		for _, fault := range []conformance.Injected{
			{Kind: "too-many", Times: 2}, {Kind: "server-error", Times: 3}, {Kind: "reset", Times: 2}, {Kind: "flip-upload", Times: 2}, {Kind: "lose-answer", Times: 1},
		} {
			for _, ifAbsent := range []bool{false, true} {
				t.Run(fmt.Sprint(size, " ", fault.Kind, ifAbsent), func(t *testing.T) {
					t.Parallel()
					store := s.open(t, directory(t, "test"))
					fault := fault // another one for each subtest
					fault.Key, fault.Method, fault.Action = fmt.Sprint("k", time.Now().UnixNano()), "POST", "insert"
					s.control().Inject(t, fault)
					want := conformance.ContentsOf("k", size)
					obj, err := store.Put(t.Context(), fault.Key, want, size, backends.CreateOptions{IfAbsent: ifAbsent})
					if err != nil || obj.Size != size || obj.Sum != want.Sum(backends.CRC32C) {
						t.Fatalf("Put = %+v, %v; want success", obj, err)
					}
					if got, _, err := store.ReadAll(t.Context(), fault.Key, size); err != nil || !bytes.Equal(got, want.Bytes()) {
						t.Errorf("reading: %v, %d bytes; want the %d that were written", err, len(got), size)
					}
					if _, err := store.PutBytes(t.Context(), fault.Key, nil, backends.CreateOptions{IfAbsent: true}); backends.KindOf(err) != backends.Exist {
						t.Errorf("another's Put: %v, want kind exist", err)
					}
				})
			}
		}
	}
}

func TestErrorsWithoutXML(t *testing.T) {
	s := need(t, false, "-no-xml")
	t.Parallel()
	store := s.open(t, directory(t, "test"))
	for _, tt := range []struct {
		kind string
		want backends.Kind
	}{{"wrong-crc", backends.Corrupt}, {"flip-upload", backends.Unknown}} {
		key := fmt.Sprint("k", time.Now().UnixNano())
		s.control().Inject(t, conformance.Injected{Kind: tt.kind, Key: key, Method: "POST", Action: "insert", Times: 10})
		if _, err := store.PutBytes(t.Context(), key, []byte("x"), backends.CreateOptions{}); backends.KindOf(err) != tt.want {
			t.Errorf("%s: got %v (%v), want kind %v", tt.kind, err, backends.KindOf(err), tt.want)
		}
	}
	for _, size := range []int64{1, objectstore.SmallObject + 1} {
		_, err := s.open(t, "gs://nobucket/").Put(t.Context(), "k", conformance.ContentsOf("k", size), size, backends.CreateOptions{})
		if backends.KindOf(err) != backends.NotExist || !strings.Contains(err.Error(), `bucket "nobucket" does not exist`) {
			t.Errorf("%d bytes to a bucket that does not exist: %v (%v), want kind not exist", size, err, backends.KindOf(err))
		}
	}
}

// The API that a server lacks is tried once, not before each request.
func TestMissingXMLIsRemembered(t *testing.T) {
	s := need(t, false, "-no-xml")
	for _, first := range []string{"read", "small", "large"} {
		at := directory(t, "other")
		if _, err := s.open(t, at).PutBytes(t.Context(), "k", []byte("x"), backends.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		store := s.open(t, at)
		use := map[string]func() error{
			"read": func() error { _, _, err := store.ReadAll(t.Context(), "k", 1); return err },
			"small": func() error {
				_, err := store.PutBytes(t.Context(), "new", []byte("x"), backends.CreateOptions{})
				return err
			},
			"large": func() error {
				const size = objectstore.SmallObject + 1
				_, err := store.Put(t.Context(), "new", conformance.ContentsOf("new", size), size, backends.CreateOptions{})
				return err
			},
		}
		if err := use[first](); err != nil {
			t.Fatalf("%s: %v", first, err)
		}
		raw, _ := store.Backend()
		if !raw.(*bucket).withoutXML.Load() {
			t.Errorf("after %s the missing API is not remembered", first)
		}
		for name, do := range use {
			if err := do(); err != nil {
				t.Errorf("%s after %s: %v", name, first, err)
			}
		}
		for _, o := range orphans(t, store, false) {
			t.Errorf("a sweep finds %+v, want nothing", o)
		}
	}
}

func TestSectionsAreReadAsOne(t *testing.T) {
	var all sections
	for _, text := range []string{"", "one", "", "2", "three", ""} {
		all = append(all, section([]byte(text)))
	}
	want := "one2three"
	if err := iotest.TestReader(io.NewSectionReader(all, 0, all.size()), []byte(want)); err != nil {
		t.Error(err)
	}
	short := sections{backends.NewPart(strings.NewReader("ab"), 0, 3), section([]byte("c"))}
	var local *backends.LocalError
	if n, err := short.ReadAt(make([]byte, 4), 0); n != 2 || !errors.As(err, &local) {
		t.Errorf("a section that lost its end: %d, %v; want 2 and a LocalError", n, err)
	}
}

func TestContractOnFakeGCSServer(t *testing.T) {
	s := server{live.Start(t, "foreign", "-gcs")}
	t.Parallel()
	conformance.Run(t, func(t *testing.T) *backends.Store { return s.open(t, directory(t, "test")) },
		conformance.Options{MaxSize: 1 << 20, Many: 50, Without: []string{conformance.AnyOrder}, Unfit: unfit})
	store := s.open(t, directory(t, "test"))
	const size = partSize + 1<<20
	obj, err := store.Put(t.Context(), "large", conformance.ContentsOf("large", size), size, backends.CreateOptions{IfAbsent: true})
	if err != nil {
		t.Fatal(err)
	}
	if got, _, err := store.ReadAll(t.Context(), "large", size); err != nil || !bytes.Equal(got, conformance.ContentsOf("large", size).Bytes()) || obj.Sum.IsZero() {
		t.Errorf("a large object with the checksum %v: %v, %d bytes; want the %d that were written", obj.Sum, err, len(got), size)
	}
	if _, err := store.Put(t.Context(), "large", conformance.ContentsOf("k", size), size, backends.CreateOptions{IfAbsent: true}); backends.KindOf(err) != backends.Exist {
		t.Errorf("another large object of this key: %v, want kind exist", err)
	}
}
