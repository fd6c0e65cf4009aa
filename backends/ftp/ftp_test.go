package ftp

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/conformance"
)

// memory is an object in memory.
type memory []byte

func (m memory) WriteAt(p []byte, off int64) (int, error) { return copy(m[off:], p), nil }

// planting are objects whose names are a trial for listings.
var planting = map[string]int64{
	"a.bin": 0, "a/b": 70_000, "a-b.tar": 3, "big.bin": 5<<20 + 3, "x y+z&a=b;c,d?e#f%g \"q\".bin": 11, " leading": 4,
	"ü/ö.tar": 12, "train:1.tar": 13, ".hidden": 14, "a\\b": 15, "[a]*": 16, "-la": 17, "a -> b": 18,
}

func planted() map[string][]byte {
	files := make(map[string][]byte)
	for key, size := range planting {
		files["/data/"+key] = conformance.ContentsOf(key, size).Bytes()
	}
	return files
}

func listing(t *testing.T, store *backends.Store) (objects []backends.Object) {
	t.Helper()
	for obj, err := range store.List(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		objects = append(objects, obj)
	}
	return objects
}

func keys(objects []backends.Object) (keys []string) {
	for _, obj := range objects {
		keys = append(keys, obj.Key)
	}
	return keys
}

func below() (names []string) {
	for key := range planting {
		names = append(names, key)
	}
	slices.Sort(names)
	return names
}

// wantReads reports an object that does not hold its contents.
func wantReads(t *testing.T, store *backends.Store, obj backends.Object) {
	t.Helper()
	got := make(memory, obj.Size)
	if _, err := store.ReadRange(t.Context(), obj, 0, obj.Size, got, nil); err != nil {
		t.Errorf("reading %q: %v", obj.Key, err)
	} else if want := conformance.ContentsOf(obj.Key, obj.Size).Bytes(); !bytes.Equal(got, want) {
		t.Errorf("reading %q: other bytes than were stored", obj.Key)
	}
}

func TestReadingHalfOfContract(t *testing.T) {
	for name, w := range map[string]way{
		"LIST": {}, "MLSD": {MLSD: true}, "without EPSV": {Replies: map[string]string{"EPSV": "502 no"}},
		"without MDTM": {Replies: map[string]string{"MDTM": "502 no"}}, "two connections": {Most: 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := start(t, w, planted())
			store := f.mustOpen(t)
			objects := listing(t, store)
			if got := keys(objects); !slices.Equal(got, below()) {
				t.Fatalf("the listing has %q, want %q", got, below())
			}
			if w.Most == 0 { // a connection that was left counts for a moment, and only a Store retries
				conformance.Inspect(t, func(*testing.T) *backends.Store { return store }, objects)
			}
			for _, obj := range objects {
				wantReads(t, store, obj)
			}
		})
	}
}

func TestReadResumesAfterLostConnections(t *testing.T) {
	f := start(t, way{Cut: 1_000_000}, planted())
	store := f.mustOpen(t)
	obj, err := store.Stat(t.Context(), "big.bin")
	if err != nil {
		t.Fatal(err)
	}
	wantReads(t, store, obj)
	if got := f.sent("REST"); got != 1 {
		t.Errorf("REST was sent %d times, want once: the rest alone is read again", got)
	}
}

func TestChangedFileIsRejected(t *testing.T) {
	f := start(t, way{}, planted())
	store := f.mustOpen(t)
	old, err := store.Stat(t.Context(), "a/b")
	if err != nil {
		t.Fatal(err)
	}
	f.mu.Lock()
	f.at = began.Add(time.Second)
	f.mu.Unlock()
	for _, n := range []int64{10, old.Size} {
		if _, err := store.ReadRange(t.Context(), old, 0, n, make(memory, n), nil); backends.KindOf(err) != backends.Changed {
			t.Errorf("reading %d bytes of the old version: got %v, want kind changed", n, err)
		}
	}
}

func TestStoreIsReadOnly(t *testing.T) {
	f := start(t, way{}, planted())
	store := f.mustOpen(t)
	if _, err := store.PutBytes(t.Context(), "k", nil, backends.CreateOptions{}); backends.KindOf(err) != backends.Unsupported {
		t.Errorf("writing: got %v, want kind unsupported", err)
	}
	if err := store.Delete(t.Context(), "a.bin"); backends.KindOf(err) != backends.Unsupported {
		t.Errorf("deleting: got %v, want kind unsupported", err)
	}
}

// No key can add a command of its own.
func TestKeysCannotBeCommands(t *testing.T) {
	f := start(t, way{}, planted())
	store := f.mustOpen(t)
	for _, key := range []string{"a.bin\r\nDELE a.bin", "a\nb", "../other", "a\x00b", ""} {
		if _, err := store.Stat(t.Context(), key); backends.KindOf(err) != backends.NotExist && backends.KindOf(err) != backends.Invalid {
			t.Errorf("stat %q: got %v, want kind not-exist or invalid", key, err)
		}
	}
	if got := f.sent("DELE"); got != 0 {
		t.Errorf("DELE was sent %d times", got)
	}
	c := &conn{control: nil}
	if _, err := c.command([]int{codeOK}, "NOOP\r\nDELE a.bin"); err == nil {
		t.Error("a command with a line break was sent")
	}
}

func TestListingsThatCannotBeTrusted(t *testing.T) {
	for name, tt := range map[string]struct {
		mlsd    bool
		listing string
		words   string
	}{
		"path in LIST":        {false, "-rw-r--r-- 1 0 0 5 Nov 26 18:00 ../../etc/passwd\r\n", "invalid name"},
		"path in MLSD":        {true, "type=file;size=5;modify=20260101000000; a/../../b\r\n", "invalid name"},
		"zero byte":           {true, "type=file;size=5;modify=20260101000000; a\x00b\r\n", "invalid name"},
		"CR in a name":        {true, "type=file;size=5;modify=20260101000000; a\rb\r\n", "line break"},
		"LF in a name":        {true, "type=file;size=5;modify=20260101000000; a\r\nb\r\n", `cannot read the line "b"`},
		"not UTF-8":           {true, "type=file;size=5;modify=20260101000000; a\xff\r\n", "not UTF-8"},
		"negative size":       {true, "type=file;size=-5;modify=20260101000000; a\r\n", "cannot read the line"},
		"no type":             {true, "size=5;modify=20260101000000; a\r\n", "cannot read the line"},
		"time that is none":   {true, "type=file;size=5;modify=tomorrow; a\r\n", "cannot read the line"},
		"web page":            {false, "<html>please log in</html>\r\n", "cannot read the line"},
		"endless line":        {false, strings.Repeat("x", 1<<20), "more than 8192 bytes"},
		"name with a ?":       {false, "-rw-r--r-- 1 0 0 5 Nov 26 18:00 a?b\r\n", "rename it on the server"},
		"directory, unopened": {true, "type=dir;modify=20260101000000; closed\r\n", "does not open it"},
	} {
		t.Run(name, func(t *testing.T) {
			f := start(t, way{MLSD: tt.mlsd, Listing: tt.listing}, planted())
			store, err := f.open(t, "", backends.Options{RetryFor: 1})
			if err != nil {
				t.Fatal(err)
			}
			for _, err = range store.List(t.Context(), "") {
				if err != nil {
					break
				}
			}
			if err == nil || !strings.Contains(err.Error(), tt.words) {
				t.Errorf("listing: got %v, want %q in it", err, tt.words)
			}
		})
	}
}

func TestServersThatRefuse(t *testing.T) {
	for name, tt := range map[string]struct {
		way   way
		env   map[string]string
		kind  backends.Kind
		words string
	}{
		"wrong password": {
			way{Replies: map[string]string{"PASS": "530 Login incorrect."}},
			map[string]string{"FTP_USERNAME": "me", "FTP_PASSWORD": "hunter2"},
			backends.Permission, "the server rejects user me or the password",
		},
		"no password": {way{}, map[string]string{"FTP_USERNAME": "me"}, backends.Permission, "no password was found for user me"},
		"two lines":   {way{}, map[string]string{"FTP_USERNAME": "me", "FTP_PASSWORD": "hunter2\r\nDELE x"}, backends.Permission, "more than one line"},
		"anonymous":   {way{Replies: map[string]string{"USER": "530 Permission denied."}}, nil, backends.Permission, "rejects anonymous logins"},
		"TLS demanded at login": {
			way{Replies: map[string]string{"PASS": "530 Non-anonymous sessions must use encryption."}},
			nil, backends.Invalid, "the server demands TLS: write ftps:// instead of ftp://",
		},
		"TLS demanded before": {
			way{Replies: map[string]string{"USER": "421 Sorry, cleartext sessions are not accepted on this server."}},
			nil, backends.Invalid, "the server demands TLS",
		},
		"TLS demanded of data": {way{Replies: map[string]string{"LIST": "522 Data connections must be encrypted."}}, nil, backends.Invalid, "the server demands TLS"},
		"too many":             {way{Greeting: "421 There are too many connected users, please try later."}, nil, backends.Throttled, "accepts no more connections now"},
		"account":              {way{Replies: map[string]string{"PASS": "332 account?"}}, nil, backends.Unsupported, "demands an account"},
		"no binary transfers":  {way{Replies: map[string]string{"TYPE": "504 no"}}, nil, backends.Unsupported, "no binary transfers"},
		"no FTP":               {way{Greeting: "SSH-2.0-OpenSSH_9.2"}, nil, backends.Invalid, "is not an FTP server"},
		"endless greeting":     {way{Greeting: "220-" + strings.Repeat("hello\r\n", 2000)}, nil, backends.Invalid, "is not an FTP server"},
		"control characters":   {way{Replies: map[string]string{"PWD": "550 \x1b[31mred\x07"}}, nil, backends.NotExist, "550 [31mred"},
		"reply of another":     {way{Replies: map[string]string{"TYPE": "226 late"}}, nil, backends.Unavailable, "the connection was lost"},
		"passive port":         {way{Replies: map[string]string{"EPSV": "229 where?", "PASV": "227 nowhere"}}, nil, backends.Unknown, "not a reply"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := start(t, tt.way, planted())
			var log bytes.Buffer
			store, err := f.open(t, "", backends.Options{
				RetryFor: 1,
				Getenv:   func(name string) string { return tt.env[name] },
				Log:      slog.New(slog.NewTextHandler(&log, nil)),
			})
			if err == nil {
				for _, err = range store.List(t.Context(), "") {
					break
				}
			}
			if backends.KindOf(err) != tt.kind || err == nil || !strings.Contains(err.Error(), tt.words) {
				t.Errorf("got kind %v, %v; want %v with %q", backends.KindOf(err), err, tt.kind, tt.words)
			}
			if err != nil && strings.Contains(err.Error()+log.String(), "hunter2") {
				t.Errorf("the password is in %v or the log", err)
			}
		})
	}
}

func TestReadDetectsASCIIMode(t *testing.T) {
	text := bytes.Repeat([]byte("line\n"), 1000)
	f := start(t, way{ASCII: true}, map[string][]byte{"/data/text": text})
	store, err := f.open(t, "", backends.Options{RetryFor: 1})
	if err != nil {
		t.Fatal(err)
	}
	obj, err := store.Stat(t.Context(), "text")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := store.ReadRange(t.Context(), obj, 0, obj.Size, make(memory, obj.Size), nil); err == nil || !strings.Contains(err.Error(), "ASCII mode") {
		t.Errorf("reading: got %v, want ASCII mode in it", err)
	}
}

func TestUnreadableFileIsNotMissing(t *testing.T) {
	f := start(t, way{Replies: map[string]string{"RETR": "550 Failed to open file."}}, planted())
	store := f.mustOpen(t)
	obj, err := store.Stat(t.Context(), "a/b")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := store.ReadRange(t.Context(), obj, 0, obj.Size, make(memory, obj.Size), nil); backends.KindOf(err) != backends.Permission || !strings.Contains(err.Error(), "check its permissions") {
		t.Errorf("got %v, want kind permission", err)
	}
}

// Streams that are left, and calls that are cancelled, give their connections back.
func TestLeftStreamsFreeTheirConnections(t *testing.T) {
	f := start(t, way{Most: 2}, planted())
	store := f.mustOpen(t)
	backend, prefix := store.Backend()
	obj, err := backend.Stat(t.Context(), prefix+"big.bin")
	if err != nil {
		t.Fatal(err)
	}
	for range 10 {
		ctx, cancel := context.WithCancel(t.Context())
		body, err := backend.OpenRange(ctx, obj, 1, 1000)
		if backends.KindOf(err) == backends.Throttled { // a connection that is closed counts for a moment
			cancel()
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		cancel()
		if _, err := io.ReadAll(body); err != nil && backends.KindOf(err) != backends.Canceled {
			t.Errorf("reading after the end of the context: got %v, want kind canceled", err)
		}
		body.Close()
		if _, err := body.Read(make([]byte, 1)); !errors.Is(err, os.ErrClosed) {
			t.Errorf("reading a closed stream: got %v, want %v", err, os.ErrClosed)
		}
	}
	full := store.Sub("")
	obj, err = full.Stat(t.Context(), "big.bin")
	if err != nil {
		t.Fatal(err)
	}
	wantReads(t, full, obj)
}
