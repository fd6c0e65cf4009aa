package smb

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cloudsoda/go-smb2"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/conformance/live"
	"github.com/stager-dev/stager/backends/internal/fileshare"
)

func infoWithID(id uint64) fileshare.Info {
	return attributes(&smb2.FileStat{EndOfFile: 5, LastWriteTime: time.Unix(1000, 0), FileId: id})
}

// impacket and some file servers have no file ids. They list files with id 0 but report another
// number for an open file. Every read then failed with "the file changed".
func TestReadOfAFileListedWithoutAnID(t *testing.T) {
	file := func(size int64, id uint64) *smb2.FileStat {
		return &smb2.FileStat{EndOfFile: size, LastWriteTime: time.Unix(1000, 0), FileId: id}
	}
	p := protocol{newBackend(&dialer{})}
	for _, tt := range []struct {
		listed, open *smb2.FileStat
		kind         backends.Kind // Unknown: the file is the right one
	}{
		{file(5, 0), file(5, 77), backends.Unknown},
		{file(5, 77), file(5, 0), backends.Unknown},
		{file(5, 0), file(5, 0), backends.Unknown},
		{file(5, 77), file(5, 77), backends.Unknown},
		{file(5, 77), file(5, 78), backends.Changed},
		{file(5, 0), file(6, 77), backends.Changed},
	} {
		listed, open := p.Version(attributes(tt.listed)), p.Version(attributes(tt.open))
		if same := p.Same(open, listed); same != (tt.kind == backends.Unknown) {
			t.Errorf("listed as %s, open as %s: the same is %v, want kind %v", listed, open, same, tt.kind)
		}
	}
}

// A file has one version, whatever ids a server has in listings and for open files. prune over
// impacket, which has none in listings, took the version of a stat for that of a COMMIT which was
// saved again, removed nothing, and ended with 0.
func TestVersionIsThatOfTheListing(t *testing.T) {
	open := func(id uint64) func(string) (fileshare.Info, error) {
		return func(string) (fileshare.Info, error) { return infoWithID(id), nil }
	}
	busy := func(string) (fileshare.Info, error) { return fileshare.Info{}, errors.New("open exclusively") }
	for _, tt := range []struct {
		name         string
		listed, stat uint64
		compare      func(string) (fileshare.Info, error)
		want         int32
		withID       bool // versions tell two files of the same size and time apart
	}{
		{"ids in both", 77, 77, open(77), idsAgree, true},
		{"no ids in listings", 0, 77, open(77), idsDiffer, false},
		{"no ids but in listings", 77, 0, open(0), idsDiffer, false},
		{"no ids", 0, 0, open(0), idsDiffer, false},
		{"other ids in listings", 77, 78, open(78), idsDiffer, false},
		{"ids that are not unique", noUniqueID, noUniqueID, open(noUniqueID), idsAgree, true},
		{"files that cannot be opened", 77, 77, busy, idsUnknown, true},
		{"files that cannot be opened, and no ids in listings", 0, 77, busy, idsDiffer, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := compareIDs([]fileshare.Entry{{Name: "a", Info: infoWithID(tt.listed)}, {Name: "b", Info: infoWithID(tt.listed)}}, tt.compare)
			if got != tt.want {
				t.Errorf("got state %d, want %d", got, tt.want)
			}
			p := protocol{newBackend(&dialer{})}
			p.b.pool.ids.state.Store(got)
			if got, want := p.Version(infoWithID(tt.stat)), p.Version(infoWithID(tt.listed)); got != want {
				t.Errorf("got version %s by a stat, want %s as listed", got, want)
			}
			if got := p.Version(infoWithID(tt.listed)) != p.Version(infoWithID(1)); got != tt.withID {
				t.Errorf("another file has another version: %v, want %v", got, tt.withID)
			}
		})
	}
}

// A file that is replaced while ids are compared says nothing about the server.
func TestCompareIDsOutlastsAReplacement(t *testing.T) {
	listed := []fileshare.Entry{{Name: "replaced", Info: infoWithID(77)}, {Name: "gone", Info: infoWithID(78)}, {Name: "kept", Info: infoWithID(79)}}
	open := func(name string) (fileshare.Info, error) {
		switch name {
		case "replaced":
			return infoWithID(80), nil
		case "gone":
			return fileshare.Info{}, errors.New("there is no such file")
		}
		return infoWithID(79), nil
	}
	if got := compareIDs(listed, open); got != idsAgree {
		t.Errorf("got state %d, want %d", got, idsAgree)
	}
	if got := compareIDs(listed[:2], open); got != idsUnknown {
		t.Errorf("got state %d of a file that was replaced alone, want %d", got, idsUnknown)
	}
}

// Directories without an id of their own are not taken for one.
func TestPlaceWithoutAUniqueID(t *testing.T) {
	for id, want := range map[uint64]string{0: "a/b", noUniqueID: "a/b", 77: "/4d"} {
		if got := place("a/b", fileshare.Info{ID: id}); got != want {
			t.Errorf("got %q for a directory with id %x, want %q", got, id, want)
		}
	}
}

// Each backend makes the same version of a file, whichever call it begins with. impacket has no ids in
// listings.
func TestVersionsAgreeOnRealServers(t *testing.T) {
	t.Run("impacket", func(t *testing.T) { versionsAgree(t, live.Start(t, "foreign"), idsDiffer) })
	eachMode(t, func(t *testing.T, s *live.Server) { versionsAgree(t, s, idsAgree) })
}

func versionsAgree(t *testing.T, s *live.Server, want int32) {
	dir := filepath.Join(s.Env["SMB_DIR"], "versions")
	if err := errors.Join(os.MkdirAll(dir, 0o777), os.WriteFile(filepath.Join(dir, "k"), []byte("x"), 0o666)); err != nil {
		t.Fatal(err)
	}
	byStat := func(store *backends.Store) (backends.Object, error) { return store.Stat(t.Context(), "k") }
	byList := func(store *backends.Store) (backends.Object, error) {
		for obj, err := range store.List(t.Context(), "") {
			return obj, err
		}
		return backends.Object{}, errors.New("nothing is listed")
	}
	for order, calls := range map[string][]func(*backends.Store) (backends.Object, error){"stat, list": {byStat, byList}, "list, stat": {byList, byStat}} {
		store := openLive(t, s, "data/versions/")
		first, err1 := calls[0](store)
		second, err2 := calls[1](store)
		if err := errors.Join(err1, err2); err != nil || first.Version != second.Version {
			t.Errorf("%s: got versions %s and %s, %v; want one", order, first.Version, second.Version, err)
		}
		raw, _ := store.Backend()
		if got := raw.(*Backend).pool.ids.state.Load(); got != want || strings.HasSuffix(string(first.Version), noID) != (want == idsDiffer) {
			t.Errorf("%s: got state %d and version %s, want state %d", order, got, first.Version, want)
		}
	}
}
