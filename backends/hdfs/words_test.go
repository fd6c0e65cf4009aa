package hdfs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/internal/fileshare"
)

// admin sends a request to the NameNode as its superuser.
func admin(t *testing.T, method string, args arguments) {
	t.Helper()
	b := inner(openLive(t, "/"))
	if err := b.with(t.Context(), method, "", func(s *session) error {
		_, err := s.call(method, args)
		return err
	}); err != nil {
		t.Fatal(err)
	}
}

func keys(t *testing.T, s *backends.Store) (keys []string) {
	t.Helper()
	for obj, err := range s.List(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, obj.Key)
	}
	return keys
}

// wantRefused reports an error unless err has the kind and contains the words.
func wantRefused(t *testing.T, what string, err error, kind backends.Kind, words string) {
	t.Helper()
	if backends.KindOf(err) != kind || !strings.Contains(fmt.Sprint(err), words) {
		t.Errorf("%s: got %v (%v), want kind %v and %q", what, err, backends.KindOf(err), kind, words)
	}
}

func read(t *testing.T, s *backends.Store, obj backends.Object) error {
	t.Helper()
	_, err := s.ReadRange(t.Context(), obj, 0, obj.Size, nowhere{}, nil)
	return err
}

type nowhere struct{}

func (nowhere) WriteAt(p []byte, _ int64) (int, error) { return len(p), nil }

func TestFilesNotRegular(t *testing.T) {
	server := need(t)
	dir := directory(t)
	s := openLive(t, dir)
	for _, sub := range []string{"zone", "coded"} {
		if _, err := s.PutBytes(t.Context(), sub+"/x", nil, backends.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := s.Delete(t.Context(), sub+"/x"); err != nil {
			t.Fatal(err)
		}
		if err := inner(s).with(t.Context(), "mkdir", "", func(s *session) error { return s.mkdirs(dir + sub) }); err != nil {
			t.Fatal(err)
		}
	}
	var skipped []string
	listing := backends.WithSkipped(t.Context(), func(s backends.Skipped) { skipped = append(skipped, s.Key+": "+s.What) })
	for obj, err := range s.List(listing, "") {
		t.Errorf("got %q, %v; want no object", obj.Key, err)
	}
	if want := []string{"coded/: a directory without files", "zone/: a directory without files"}; !slices.Equal(skipped, want) {
		t.Errorf("the list skips %q, want %q", skipped, want)
	}
	admin(t, "createEncryptionZone", arguments{"src": dir + "zone", "keyName": "stager"})
	admin(t, "enableErasureCodingPolicy", arguments{"ecPolicyName": "XOR-2-1-1024k"})
	admin(t, "setErasureCodingPolicy", arguments{"src": dir + "coded", "ecPolicyName": "XOR-2-1-1024k"})
	local := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(local, []byte("a secret of some length"), 0o644); err != nil {
		t.Fatal(err)
	}
	shell(t, server, fsShell, "-put", local, dir+"zone/secret")
	shell(t, server, fsShell, "-touchz", dir+"coded/empty")

	if got, want := keys(t, s), []string{"coded/empty", "zone/secret"}; !slices.Equal(got, want) {
		t.Errorf("list = %q, want %q", got, want)
	}
	obj, err := s.Stat(t.Context(), "zone/secret")
	if err != nil || obj.Size != 23 {
		t.Fatalf("stat = %+v, %v; want 23 bytes", obj, err)
	}
	wantRefused(t, "reading what is encrypted", read(t, s, obj), backends.Unsupported, "encryption zone")
	b := inner(s)
	for _, key := range []string{"zone/secret", "coded/empty"} {
		_, err := b.OpenRange(t.Context(), backends.Object{Key: b.base + "/" + key}, 0, -1)
		wantRefused(t, "opening "+key, err, backends.Unsupported, "copy it")
	}
	_, err = s.PutBytes(t.Context(), "zone/new", []byte("x"), backends.CreateOptions{})
	wantRefused(t, "writing to an encryption zone", err, backends.Unsupported, "encryption zone")
	_, err = s.PutBytes(t.Context(), "coded/new", []byte("x"), backends.CreateOptions{})
	wantRefused(t, "writing to an erasure-coded directory", err, backends.Unsupported, "erasure-coded")
	if got := shell(t, server, fsShell, "-ls", dir+"zone", dir+"coded"); strings.Contains(got, fileshare.Temporary) {
		t.Errorf("refused writes leave something: %s", got)
	}
}

func TestFilesBeingWritten(t *testing.T) {
	s := openLive(t, directory(t))
	b := inner(s)
	var said bytes.Buffer
	b.log = slog.New(slog.NewTextHandler(&said, nil))
	for _, size := range []int{0, 3 << 20} { // none of its blocks is full, or three are
		writer, err := b.pool.get(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer writer.end()
		if err := writer.mkdirs("/" + b.base); err != nil {
			t.Fatal(err)
		}
		key := fmt.Sprintf("of-%d", size)
		library, err := writer.library()
		if err != nil {
			t.Fatal(err)
		}
		f, err := library.CreateFile("/"+b.base+"/"+key, 1, 1<<20, 0o644)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.Write(make([]byte, size+1)); err != nil {
			t.Fatal(err)
		}
		obj, err := s.Stat(t.Context(), key)
		if size == 0 {
			wantRefused(t, "stat of one just begun", err, backends.Changed, "open for writing")
			if got := keys(t, s); len(got) > 0 {
				t.Errorf("list = %q, want nothing yet", got)
			}
			if want := `level=WARN msg="skipping files that are being written" first=` + b.base + "/" + key; !strings.Contains(said.String(), want) {
				t.Errorf("the log is %q, want %q", said.String(), want)
			}
		} else {
			if err != nil {
				t.Fatal(err)
			}
			wantRefused(t, "reading one half written", read(t, s, obj), backends.Changed, "open for writing")
		}
		if err := closeConfirmed(t.Context(), f.Close); err != nil {
			t.Fatal(err)
		}
		now, err := s.Stat(t.Context(), key)
		if err != nil || now.Size != int64(size+1) {
			t.Errorf("closed: %+v, %v; want %d bytes", now, err, size+1)
		}
		if err := read(t, s, now); err != nil {
			t.Errorf("reading it closed: %v", err)
		}
		if size > 0 {
			wantRefused(t, "reading what was half written", read(t, s, obj), backends.Changed, "")
		}
	}
}

func TestReadOfAGrowingFile(t *testing.T) {
	s := openLive(t, directory(t))
	b := inner(s)
	old, err := s.PutBytes(t.Context(), "k", make([]byte, 1<<20+5), backends.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	raw := old
	raw.Key = b.base + "/k"
	body, err := b.OpenRange(t.Context(), raw, 0, -1)
	if err != nil {
		t.Fatal(err)
	}
	defer body.Close()
	if err := b.with(t.Context(), "append", "", func(s *session) error {
		library, err := s.library()
		if err != nil {
			return err
		}
		f, err := library.Append("/" + raw.Key)
		if err != nil {
			return err
		}
		_, err = f.Write([]byte("more"))
		return errors.Join(err, f.Close())
	}); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(body); backends.KindOf(err) != backends.Changed && (err != nil || len(got) != 1<<20+5) {
		t.Errorf("a file that grows while it is read: %d bytes, %v", len(got), err)
	}
	wantRefused(t, "reading the shorter version", read(t, s, old), backends.Changed, "version")
}

func TestErrorsOfARealNameNode(t *testing.T) {
	dir := directory(t)
	s := openLive(t, dir)
	obj, err := s.PutBytes(t.Context(), "d/k", []byte("x"), backends.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	// What another user may not do.
	perm, err := protoregistry.GlobalTypes.FindMessageByName("hadoop.hdfs.FsPermissionProto")
	if err != nil {
		t.Fatal(err)
	}
	mode := perm.New()
	mode.Set(mode.Descriptor().Fields().ByName("perm"), protoreflect.ValueOf(uint32(0o700)))
	admin(t, "setPermission", arguments{"src": dir + "d", "permission": mode})
	other := openLive(t, dir, "HADOOP_USER_NAME=somebody")
	wantRefused(t, "reading what is another's", read(t, other, obj), backends.Permission, "user=somebody")
	_, err = other.PutBytes(t.Context(), "new", []byte("x"), backends.CreateOptions{})
	wantRefused(t, "writing where one may not", err, backends.Permission, "")
	wantRefused(t, "deleting what is another's", other.Delete(t.Context(), "d/k"), backends.Permission, "user=somebody")
	for _, u := range []*backends.Store{s, other} {
		admin(t, "setPermission", arguments{"src": dir + "d", "permission": mode})
		_, err = u.Stat(t.Context(), "d/k/below")
		if u == s {
			wantRefused(t, "below a file", err, backends.NotExist, "")
		}
	}
	_, err = s.PutBytes(t.Context(), "d/k/below", nil, backends.CreateOptions{})
	wantRefused(t, "writing below a file", err, backends.Invalid, "a parent of the key is a file")
	_, err = s.PutBytes(t.Context(), "d", nil, backends.CreateOptions{})
	wantRefused(t, "writing over a directory", err, backends.Invalid, "a directory has this name")
	_, err = s.PutBytes(t.Context(), "d", nil, backends.CreateOptions{IfAbsent: true})
	wantRefused(t, "writing over a directory, if absent", err, backends.Invalid, "a directory has this name")
	_, err = s.PutBytes(t.Context(), strings.Repeat("x", 256), nil, backends.CreateOptions{})
	wantRefused(t, "a name that is too long", err, backends.Invalid, "255 bytes")
	_, err = s.PutBytes(t.Context(), "a:b", nil, backends.CreateOptions{})
	wantRefused(t, "a colon", err, backends.Invalid, "colon")

	// Quotas for names and for bytes.
	admin(t, "setQuota", arguments{"path": dir + "d", "namespaceQuota": uint64(2), "storagespaceQuota": uint64(1 << 62)})
	_, err = s.PutBytes(t.Context(), "d/new", nil, backends.CreateOptions{})
	wantRefused(t, "over the quota of names", err, backends.NoSpace, "quota")
	admin(t, "setQuota", arguments{"path": dir + "d", "namespaceQuota": uint64(1 << 62), "storagespaceQuota": uint64(1 << 20)})
	_, err = s.PutBytes(t.Context(), "d/new", make([]byte, 2<<20), backends.CreateOptions{})
	wantRefused(t, "over the quota of bytes", err, backends.NoSpace, "quota")

	admin(t, "setSafeMode", arguments{"action": protoreflect.EnumNumber(2), "checked": false})
	_, err = inner(s).Create(t.Context(), inner(s).base+"/new", backends.CreateOptions{Size: 0})
	wantRefused(t, "writing in safe mode", err, backends.Unavailable, "safe mode")
	if err := read(t, s, obj); err != nil {
		t.Errorf("reading in safe mode: %v", err)
	}
	admin(t, "setSafeMode", arguments{"action": protoreflect.EnumNumber(1), "checked": false})
}

func TestDeleteKeepsTheDirOfTheURL(t *testing.T) {
	dir := directory(t)
	s := openLive(t, dir)
	if _, err := s.PutBytes(t.Context(), "a/b/k", nil, backends.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := s.Delete(t.Context(), "a/b/k"); err != nil {
		t.Fatal(err)
	}
	if err := inner(s).with(t.Context(), "stat", "", func(s *session) error {
		if _, err := s.status(dir + "a"); err == nil {
			t.Error("an empty directory is left")
		}
		_, err := s.status(strings.TrimSuffix(dir, "/"))
		return err
	}); err != nil {
		t.Errorf("the URL's directory: %v", err)
	}
}

func TestDirectoryIsCreatedOnWrite(t *testing.T) {
	s := openLive(t, directory(t)+"not/yet/")
	if got := keys(t, s); len(got) > 0 {
		t.Errorf("list = %q, want nothing", got)
	}
	if _, err := s.PutBytes(t.Context(), "a/k", nil, backends.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if got := keys(t, s); !slices.Equal(got, []string{"a/k"}) {
		t.Errorf("list = %q, want a/k", got)
	}
}

func TestOwnNamesAreNoObjects(t *testing.T) {
	dir := directory(t)
	s := openLive(t, dir)
	b := inner(s)
	w, err := b.Create(t.Context(), b.base+"/k", backends.CreateOptions{Size: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Abort()
	if got := keys(t, s); len(got) > 0 {
		t.Errorf("list = %q, want nothing", got)
	}
	for _, key := range []string{".stager/x", "d/.stager-tmp-x", "../x", "a//b", "/a", "a/", "", ".", "zero\x00byte", "\xff"} {
		_, err := s.PutBytes(t.Context(), key, nil, backends.CreateOptions{})
		wantRefused(t, fmt.Sprintf("putting %q", key), err, backends.Invalid, "invalid file name")
	}
}
