package nfs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"path"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/internal/fileshare"
	"github.com/stager-dev/stager/backends/nfs/internal/nfs3"
	"github.com/stager-dev/stager/backends/nfs/internal/remote"
	"github.com/stager-dev/stager/backends/nfs/internal/rpc"
)

func TestClassify(t *testing.T) {
	status := func(s remote.Status) error { return &remote.Error{Status: s, Op: "OPEN"} }
	for _, tt := range []struct {
		err  error
		want backends.Kind
	}{
		{status(remote.NoEnt), backends.NotExist},
		{status(remote.Exist), backends.Exist},
		{status(remote.Access), backends.Permission},
		{status(remote.Perm), backends.Permission},
		{status(remote.ROFS), backends.Permission},
		{status(remote.WrongSec), backends.Permission},
		{status(remote.NoSpc), backends.NoSpace},
		{status(remote.DQuot), backends.NoSpace},
		{status(remote.FBig), backends.NoSpace},
		{status(remote.Stale), backends.Changed},
		{status(remote.FHExpired), backends.Changed},
		{status(remote.IO), backends.Unavailable},
		{status(remote.Grace), backends.Unavailable},
		{status(remote.Delay), backends.Throttled},
		{status(remote.NameTooLong), backends.Invalid},
		{status(remote.Inval), backends.Invalid},
		{status(remote.SymlinkThere), backends.Unsupported},
		{status(remote.MinorVersion), backends.Unsupported},
		{status(10_999), backends.Unknown},
		{remote.ErrBusy, backends.Unavailable},
		{remote.ErrType, backends.NotExist},
		{nfs3.ErrFlavor, backends.Permission},
		{&rpc.BrokenError{Err: syscall.ECONNRESET}, backends.Unavailable},
		{&rpc.BrokenError{Err: &net.OpError{Op: "dial", Err: os.ErrDeadlineExceeded}}, backends.Unavailable},
		{&rpc.BrokenError{Err: context.DeadlineExceeded}, backends.Unavailable}, // the timeout of the dialer, not the caller's
		{&rpc.DeniedError{Why: 5}, backends.Permission},
		{&rpc.MismatchError{Low: 2, High: 3}, backends.Unsupported},
		{fmt.Errorf("%w: %w", context.Canceled, errors.New("why")), backends.Canceled},
		{errors.New("what"), backends.Unknown},
	} {
		err := classify("read", "k", fmt.Errorf("wrapped: %w", tt.err))
		if got := backends.KindOf(err); got != tt.want || !errors.Is(err, tt.err) {
			t.Errorf("%v: got kind %s (%v), want %s", tt.err, got, err, tt.want)
		}
	}
	local := &backends.LocalError{Err: syscall.EIO}
	if got := classify("write", "k", local); got != error(local) {
		t.Errorf("classify(%v) = %v, want it as it is", local, got)
	}
}

func TestParse(t *testing.T) {
	for query, words := range map[string]string{
		"":                                       "",
		"vers=4.1&uid=0&gid=5&gids=1,2,3":        "",
		"rsize=512KiB&slots=8&conns=1":           "",
		"rsize=65536":                            "",
		"tls=true&sni=fs-1.efs.example.org":      "",
		"vers=4":                                 "auto, 4.1 or 3",
		"vers=4.2":                               "auto, 4.1 or 3",
		"uid=root":                               "must be a list of numbers",
		"uid=-1":                                 "must be a list of numbers",
		"gids=1,x":                               "must be a list of numbers",
		"gids=1,2,3,4,5,6,7,8,9,0,1,2,3,4,5,6,7": "allows 16",
		"rsize=1":                                "4KiB to 16MiB",
		"rsize=99999999999999999999":             "4KiB to 16MiB",
		"rsize=9999999MiB":                       "4KiB to 16MiB",
		"slots=0":                                "from 1",
		"conns=1000":                             "to 16",
		"resvport=maybe":                         "auto, true or false",
		"sni=name":                               "?tls=true",
		"mountport=70000":                        "65535",
	} {
		params, err := url.ParseQuery(query)
		if err != nil {
			t.Fatal(err)
		}
		_, err = parse(backends.Target{Host: "server:2049", Params: params})
		if words == "" && err != nil || words != "" && (backends.KindOf(err) != backends.Invalid || !strings.Contains(err.Error(), words)) {
			t.Errorf("?%s: got %v, want %q", query, err, words)
		}
	}
	for _, host := range []string{"", ":2049"} {
		if _, err := parse(backends.Target{Host: host, Params: url.Values{}}); backends.KindOf(err) != backends.Invalid {
			t.Errorf("host %q: %v, want kind invalid", host, err)
		}
	}
	c, err := parse(backends.Target{Host: "[::1]:99", Params: url.Values{"rsize": {"512KiB"}}})
	if err != nil || c.host != "::1" || c.port != "99" || c.block != 512<<10 {
		t.Errorf("got %+v, %v", c, err)
	}
}

func TestMountLongest(t *testing.T) {
	for _, tt := range []struct {
		directory string
		can       string // what the server lets clients mount
		status    remote.Status
		rest      string
		wantError remote.Status
	}{
		{"export/a/b", "/export/a/b", remote.NoEnt, "", 0},
		{"export/a/b", "/export/a", remote.NoEnt, "b", 0},
		{"export/a/b", "/export", remote.Access, "a/b", 0},
		{"export/file", "/export", remote.NotDir, "file", 0},
		{"export", "/", remote.NoEnt, "export", 0},
		{"", "/", remote.NoEnt, "", 0},
		{"export/a", "", remote.Access, "", remote.Access},
		{"export/a", "", remote.NoEnt, "", remote.NoEnt},
		{"export/a", "", remote.IO, "", remote.IO},
	} {
		var asked []string
		_, rest, err := mountLongest(tt.directory, func(dir string) (nfs3.Handle, error) {
			asked = append(asked, dir)
			if dir == tt.can {
				return "h", nil
			}
			return "", &remote.Error{Status: tt.status, Op: "MNT"}
		})
		if rest != tt.rest || remote.StatusOf(err) != tt.wantError {
			t.Errorf("%q when %q is mounted: rest %q, %v after %q; want %q, status %d", tt.directory, tt.can, rest, err, asked, tt.rest, tt.wantError)
		}
	}
}

// fake is a tree with one file that returns a limited number of bytes per read.
type fake struct {
	remote.Tree
	data    []byte
	most    int
	entries []remote.Entry
	stale   int // how many requests for attributes fail because the file is replaced
	change  func(reads int64) uint64
	reads   atomic.Int64
}

func (f *fake) Sizes() (int, int) { return 8, 8 }

func (f *fake) Stat(_ context.Context, name string) (remote.Attr, error) {
	if f.stale > 0 {
		f.stale--
		return remote.Attr{}, &remote.Error{Status: remote.Stale, Op: "GETATTR"}
	}
	switch path.Base(name) {
	case "gone":
		return remote.Attr{}, &remote.Error{Status: remote.NoEnt, Op: "LOOKUP"}
	case "replaced":
		return remote.Attr{Type: remote.Regular, Size: 7}, nil
	}
	return remote.Attr{Type: remote.Directory}, nil
}

func (f *fake) Open(ctx context.Context, _ string, off int64, n int, once bool) (remote.File, remote.Block, error) {
	b, err := fakeFile{fake: f}.ReadAt(ctx, off, n)
	if once {
		return nil, b, err
	}
	return fakeFile{fake: f}, b, err
}

func (f *fake) ReadDir(_ context.Context, _ string, each func(remote.Entry) error) error {
	for _, e := range f.entries {
		if err := each(e); err != nil {
			return err
		}
	}
	return nil
}

type fakeFile struct {
	remote.File
	fake *fake
}

func (f fakeFile) ReadAt(_ context.Context, off int64, n int) (remote.Block, error) {
	reads := f.fake.reads.Add(1)
	a := remote.Attr{Type: remote.Regular, Size: int64(len(f.fake.data))}
	if f.fake.change != nil {
		a.Change = f.fake.change(reads)
	}
	data := f.fake.data[min(off, a.Size):min(off+int64(min(n, f.fake.most)), a.Size)]
	return remote.Block{Data: slices.Clone(data), Attr: a, EOF: off+int64(len(data)) >= a.Size}, nil
}

func (f fakeFile) Close(context.Context) error { return nil }

func TestServersThatSendLessThanRequested(t *testing.T) {
	data := []byte("abcdefghijklmnopqrstuvwxyz")
	for most := 1; most <= 9; most++ {
		s := bareShare(&fake{data: data, most: most}, "", 4)
		for off := range int64(27) {
			for n := int64(-1); off+n <= 26; n++ {
				body, err := s.OpenRange(t.Context(), backends.Object{Key: "k"}, off, n)
				if err != nil {
					t.Fatal(err)
				}
				got, err := io.ReadAll(body)
				want := data[off:]
				if n >= 0 {
					want = want[:n]
				}
				if err != nil || !bytes.Equal(got, want) {
					t.Fatalf("%d bytes at %d, %d at once: got %q, %v; want %q", n, off, most, got, err, want)
				}
				if err := body.Close(); err != nil {
					t.Error(err)
				}
			}
		}
	}
}

func TestReadDetectsChangeInItsBlock(t *testing.T) {
	f := &fake{data: make([]byte, 80), most: 8, change: func(reads int64) uint64 { return uint64(reads / 4) }}
	s := bareShare(f, "", 4)
	body, err := s.OpenRange(t.Context(), backends.Object{Key: "k"}, 0, -1)
	if err != nil {
		t.Fatal(err)
	}
	defer body.Close()
	got, err := io.ReadAll(body)
	if backends.KindOf(err) != backends.Changed || len(got) > 24 {
		t.Errorf("got %d bytes, %v; want at most those before the change, and kind changed", len(got), err)
	}
}

func TestHostileNames(t *testing.T) {
	for _, name := range []string{"a/b", "x\x00y", "", "/etc"} {
		s := bareShare(&fake{entries: []remote.Entry{{Name: name, Attr: remote.Attr{Type: remote.Regular}}}}, "", 4)
		n := 0
		var last error
		for _, err := range s.List(t.Context(), "") {
			n++
			last = err
		}
		if n != 1 || backends.KindOf(last) != backends.Unsupported {
			t.Errorf("a directory with %q: %d results, %v; want kind unsupported", name, n, last)
		}
	}
}

// Whatever names a hostile server lists, no key leads out of the directory.
func FuzzHostileNames(f *testing.F) {
	for _, name := range []string{"k", "..", ".", "a/b", "/etc", "x\x00y", "", "\xff", strings.Repeat("x", 300)} {
		f.Add(name, uint32(1))
	}
	f.Fuzz(func(t *testing.T, name string, kind uint32) {
		s := bareShare(&fake{entries: []remote.Entry{{Name: name, Attr: remote.Attr{Type: remote.Type(kind % 3)}}}}, "data", 4)
		for obj, err := range s.List(t.Context(), "data/") {
			if err == nil && (path.Dir(obj.Key) != "data" || strings.ContainsRune(obj.Key, 0)) {
				t.Errorf("a directory with %q has the key %q", name, obj.Key)
			}
		}
	})
}

// A file that was removed while the server read its directory was left out in silence, so that a
// prefetch without it succeeded.
func TestListingNamesAFileThatVanished(t *testing.T) {
	s := bareShare(&fake{entries: []remote.Entry{
		{Name: "a", Attr: remote.Attr{Type: remote.Regular}}, {Name: "gone", Gone: true}, {Name: "x-gone", Gone: true},
	}}, "data", 4)
	var got []backends.Skipped
	ctx := backends.WithSkipped(t.Context(), func(s backends.Skipped) { got = append(got, s) })
	entries, err := protocol{s}.ReadDir(ctx, fileshare.Place{Path: "dir", At: "data/dir"}, func(name string) bool { return name != "x-gone" })
	if err != nil || len(entries) != 1 || entries[0].Name != "a" {
		t.Errorf("got %v, %v; want the file that is there", entries, err)
	}
	if want := []backends.Skipped{{Key: "dir/gone", What: "a file", Vanished: true}}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// A file that is replaced while the server reads its directory was taken for one that vanished, and left
// out of the listing.
func TestListingHasAFileThatIsReplaced(t *testing.T) {
	s := bareShare(&fake{stale: 2, entries: []remote.Entry{{Name: "replaced", Gone: true}}}, "data", 4)
	entries, err := protocol{s}.ReadDir(t.Context(), fileshare.Place{Path: "dir", At: "data/dir"}, func(string) bool { return true })
	if err != nil || len(entries) != 1 || entries[0].Name != "replaced" || entries[0].Size != 7 {
		t.Errorf("got %v, %v; want the file that replaced the old one", entries, err)
	}
}

func TestStatOfAFileThatIsReplaced(t *testing.T) {
	s := bareShare(&fake{stale: 2}, "data", 4)
	if obj, err := s.Stat(t.Context(), "data/replaced"); err != nil || obj.Size != 7 {
		t.Errorf("got %+v, %v; want the file that replaced the old one", obj, err)
	}
}
