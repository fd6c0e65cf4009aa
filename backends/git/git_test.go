package git

import (
	"bytes"
	"context"
	"crypto/sha1"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stager-dev/stager/backends"
)

func TestURLs(t *testing.T) {
	for _, tt := range []struct {
		url, at, user, revision, base string
		maxSize                       int64
		refused                       string
	}{
		{"git+https://host/org/repo", "https://host/org/repo", "", "", "", 1 << 30, ""},
		{"git+https://host/repo.git@v1.0//src/train/?max-size=4GiB", "https://host/repo.git", "", "v1.0", "src/train", 4 << 30, ""},
		{"git+https://me@host:8443/org/repo@topic/x//a%20b", "https://host:8443/org/repo", "me", "topic/x", "a b", 1 << 30, ""},
		{"git+https://git.example.org:8443/org/repo@main", "https://git.example.org:8443/org/repo", "", "main", "", 1 << 30, ""},
		{"git+http://[::1]:80/repo@@scope/pkg@1//@x", "http://[::1]:80/repo", "", "@scope/pkg@1", "@x", 1 << 30, ""},
		{"git+http://localhost:80/repo@main/", "http://localhost:80/repo", "", "main", "", 1 << 30, ""},
		{"git+http://server:80/repo%40main//", "http://server:80/repo", "", "main", "", 1 << 30, ""},
		{url: "git+https:///repo", refused: "looks like git+https://server/org/repo@revision//directory/"},
		{url: "git+https://host", refused: "looks like"},
		{url: "git+https://host/../repo", refused: "looks like"},
		{url: "git+https://host/repo//a/../../b", refused: "looks like"},
		{url: "git+https://host/repo//a%00b", refused: "looks like"},
		{url: "git+https://host/repo@", refused: "not the name of a branch"},
		{url: "git+https://host/repo@a..b", refused: "not the name of a branch"},
		{url: "git+https://host/repo@-x", refused: "not the name of a branch"},
		{url: "git+https://host/repo@a%0Ab", refused: "not the name of a branch"},
		{url: "git+https://host/repo?max-size=big", refused: "a size from 1MiB"},
		{url: "git+https://host/repo?depth=1", refused: "supported: max-size, ca-bundle"},
		{url: "git+https://me:hunter2@host/repo", refused: "credentials do not belong in a URL"},
		{url: "git+https://me:12/hunter2@host/repo", refused: "may end a password"},
	} {
		var got settings
		schemes := Schemes()
		for i := range schemes {
			schemes[i].Open = func(_ context.Context, target backends.Target) (_ backends.Opened, err error) {
				got, err = parse(target)
				return backends.Opened{Backend: &commit{}}, err
			}
		}
		_, err := backends.NewRegistry(schemes...).Open(t.Context(), tt.url, backends.Options{})
		if tt.refused != "" {
			if backends.KindOf(err) != backends.Invalid || !strings.Contains(err.Error(), tt.refused) || strings.Contains(err.Error(), "hunter2") {
				t.Errorf("%s: got %v, want kind invalid with %q", tt.url, err, tt.refused)
			}
			continue
		}
		if err != nil || got.at.String() != tt.at || got.user != tt.user || got.revision != tt.revision || got.base != tt.base || got.maxSize != tt.maxSize {
			t.Errorf("%s: got %+v, %v; want %+v", tt.url, got, err, tt)
		}
	}
}

// Differences from other objects, which real servers make as they like.
func TestDifferences(t *testing.T) {
	old := bytes.Repeat([]byte("0123456789"), 10_000)
	large := bytes.Repeat([]byte("0123456789abcdef"), (smallBase+16)/16)
	var p packed
	base := p.raw(byte(blobObject), len(old), nil, old)
	bigBase := p.raw(byte(blobObject), len(large), nil, large)
	delta := func(base, is int, ops string) []byte {
		return append(appendVarint(appendVarint(nil, base), is), ops...)
	}
	back := func(to int) []byte { // how far before the next object it begins
		n := 12 + p.body.Len() - to
		out := []byte{byte(n & 0x7f)}
		for n >>= 7; n > 0; n >>= 7 {
			n--
			out = append([]byte{byte(n&0x7f) | 0x80}, out...)
		}
		return out
	}
	// copy 3 bytes at 5, insert "new", copy 65536 bytes at 258
	first := delta(len(old), 3+3+1<<16, "\x91\x05\x03"+"\x03new"+"\x83\x02\x01")
	wantFirst := slices.Concat(old[5:8], []byte("new"), old[258:][:1<<16])
	start := p.raw(offsetDelta, len(first), back(base), first)
	second := delta(len(wantFirst), 4, "\x91\x02\x04") // of a difference
	p.raw(offsetDelta, len(second), back(start), second)
	third := delta(len(large), 2, "\x91\x01\x02")
	p.raw(offsetDelta, len(third), back(bigBase), third)
	fourth := delta(len(old), 0, "")
	p.raw(hashDelta, len(fourth), []byte(hashOf(blobObject, old)), fourth)
	want := map[string][]byte{"old": old, "large": large, "first": wantFirst, "second": wantFirst[2:6], "third": large[1:3], "fourth": {}}
	var entries []entry
	for name, contents := range want {
		entries = append(entries, entry{name, modeFile, hashOf(blobObject, contents)})
	}
	f := serve(t, &p, entries...)
	store, err := f.open(t, "", backends.Options{})
	if err != nil {
		t.Fatal(err)
	}
	objects, _ := listing(t, store)
	if len(objects) != len(want) {
		t.Errorf("%d files, want %d", len(objects), len(want))
	}
	for _, obj := range objects {
		if !bytes.Equal(read(t, store, obj), want[obj.Key]) {
			t.Errorf("%s has other bytes than it should", obj.Key)
		}
	}
}

func appendVarint(b []byte, n int) []byte {
	for ; n >= 0x80; n >>= 7 {
		b = append(b, byte(n)|0x80)
	}
	return append(b, byte(n))
}

// start2 starts a fake with a pack to which a commit is added.
func serve(t *testing.T, p *packed, entries ...entry) *fake {
	t.Helper()
	id := p.commit(entries...)
	return start(t, way{Pack: p.bytes(), Commit: id})
}

func TestInvalidPacksAreRefused(t *testing.T) {
	text := []byte("contents of a file")
	id := hashOf(blobObject, text)
	for name, tt := range map[string]struct {
		spoil func(*packed)
		words string
	}{
		"size too large":    {func(p *packed) { p.raw(3, 100, nil, text) }, "an object of 100 bytes has 18"},
		"size too small":    {func(p *packed) { p.raw(3, 5, nil, text) }, "longer than its size"},
		"unknown kind":      {func(p *packed) { p.raw(5, 5, nil, text[:5]) }, "unknown kind 5"},
		"no base":           {func(p *packed) { p.raw(offsetDelta, 3, []byte{3}, []byte{1, 1, 1}) }, "without its base"},
		"base behind":       {func(p *packed) { p.raw(offsetDelta, 3, bytes.Repeat([]byte{0xff}, 9), nil) }, "too far away"},
		"unknown base":      {func(p *packed) { p.raw(hashDelta, 3, make([]byte, sha1.Size), nil) }, "without its base"},
		"base of another":   {func(p *packed) { p.raw(hashDelta, 4, []byte(id), []byte("\x05\x01\x01x")) }, "does not fit its base"},
		"beyond its base":   {func(p *packed) { p.raw(hashDelta, 5, []byte(id), []byte("\x12\x04\x91\x10\x04")) }, "beyond its base"},
		"unknown operation": {func(p *packed) { p.raw(hashDelta, 3, []byte(id), []byte("\x12\x01\x00")) }, "unknown operation"},
		"short difference":  {func(p *packed) { p.raw(hashDelta, 4, []byte(id), []byte("\x12\x04\x04a")) }, "unexpected EOF"},
		"long difference":   {func(p *packed) { p.raw(hashDelta, 2, []byte(id), []byte("\x12\x00\x01x")) }, "invalid objects"},
		"huge difference":   {func(p *packed) { p.raw(hashDelta, 9, []byte(id), []byte("\x12\xff\xff\xff\xff\xff\xff\xff\x0f")) }, "larger than 1.0 GiB"},
		"fewer objects":     {func(p *packed) { p.count++ }, "EOF"},
		"more objects":      {func(p *packed) { p.count-- }, "more than its objects"},
		"too many":          {func(p *packed) { p.count = 1 << 31 }, "2147483648 objects"},
	} {
		t.Run(name, func(t *testing.T) {
			var p packed
			p.add(blobObject, text)
			commit := p.commit(entry{"a", modeFile, id})
			tt.spoil(&p)
			f := start(t, way{Pack: p.bytes(), Commit: commit})
			kind := backends.Corrupt
			if name == "huge difference" {
				kind = backends.Unsupported
			}
			f.wantRefused(t, kind, tt.words)
		})
	}
	var p packed
	p.add(blobObject, text)
	p.commit(entry{"a", modeFile, id})
	for i := range p.bytes() {
		spoiled := p.bytes()
		spoiled[i] ^= 0x10
		o, err := newObjects(sha1.New, 1<<30)
		if err != nil {
			t.Fatal(err)
		}
		if err := o.unpack(bytes.NewReader(spoiled)); backends.KindOf(err) != backends.Corrupt && backends.KindOf(err) != backends.Unsupported {
			t.Errorf("a pack whose byte %d is wrong: got %v, want kind corrupt", i, err)
		}
		_ = o.file.Close() // it is of no use
	}
}

func TestHostileNamesAreRefused(t *testing.T) {
	text := []byte("x")
	blob := entry{"a", modeFile, hashOf(blobObject, text)}
	named := func(names ...string) (entries []entry) {
		for _, name := range names {
			entries = append(entries, entry{name, modeFile, blob.id})
		}
		return entries
	}
	for _, tt := range []struct {
		names []string
		words string
	}{
		{[]string{".."}, "points outside its directory"},
		{[]string{"."}, "points outside its directory"},
		{[]string{""}, "points outside its directory"},
		{[]string{"/etc/passwd"}, "points outside its directory"},
		{[]string{"a/b"}, "points outside its directory"},
		{[]string{`..\x`}, "separates directories on some systems"},
		{[]string{".git"}, "means the directory of Git"},
		{[]string{".GiT. "}, "means the directory of Git"},
		{[]string{"GIT~1"}, "means the directory of Git"},
		{[]string{".git::$INDEX_ALLOCATION"}, "means the directory of Git"},
		{[]string{".g\u200cit"}, "means the directory of Git"},
		{[]string{"a\xff"}, "is not UTF-8"},
		{[]string{"a\nb"}, "contains a line break"},
		{[]string{"a", "a"}, "occurs twice"},
		{[]string{"README", "readme"}, "only in case"},
		{[]string{strings.Repeat("x", maxPath+1)}, "is too long"},
	} {
		var p packed
		p.add(blobObject, text)
		f := serve(t, &p, named(tt.names...)...)
		f.wantRefused(t, backends.Unsupported, tt.words)
	}
	for name, e := range map[string]entry{
		"unknown mode":    {"a", 0o010000, blob.id},
		"no such blob":    {"a", modeFile, string(make([]byte, sha1.Size))},
		"a blob as tree":  {"a", modeDirectory, blob.id},
		"a tree as blob":  {"a", modeFile, hashOf(treeObject, treeOf(blob))},
		"target too long": {"a", modeLink, hashOf(blobObject, bytes.Repeat([]byte("x"), maxPath+1))},
	} {
		var p packed
		p.add(blobObject, text)
		p.add(treeObject, treeOf(blob))
		p.add(blobObject, bytes.Repeat([]byte("x"), maxPath+1))
		f := serve(t, &p, e)
		t.Run(name, func(t *testing.T) { f.wantRefused(t, backends.Corrupt, "invalid objects") })
	}
}

// A repository whose trees contain each other ten times each has more files than any disk.
func TestBombsAreRefused(t *testing.T) {
	var p packed
	below := entry{"", modeFile, p.add(blobObject, nil)}
	for range 10 {
		var entries []entry
		for i := range 10 {
			below.name = fmt.Sprintf("n%d", i)
			entries = append(entries, below)
		}
		below = entry{"", modeDirectory, p.add(treeObject, treeOf(entries...))}
	}
	below.name = "top"
	f := serve(t, &p, below)
	f.wantRefused(t, backends.Unsupported, "more than 1048576 files and directories")
}

func TestLinksAndSubmodules(t *testing.T) {
	var p packed
	text := []byte("contents")
	link := func(name, to string) entry { return entry{name, modeLink, p.add(blobObject, []byte(to))} }
	file := entry{"file", modeFile | 0o755, p.add(blobObject, text)}
	inner := entry{"inner", modeDirectory, p.add(treeObject, treeOf(
		file, link("above", ".."), link("again", "../top/file"), link("out", "../../../x"), link("through", "../alias/file/x")))}
	top := entry{"top", modeDirectory, p.add(treeObject, treeOf(file, inner))}
	pointer := []byte(pointerMark + "oid sha256:0000\nsize 12\n")
	f := serve(t, &p, top, link("alias", "top/./inner/"), link("absolute", "/top/file"), link("loop", "loop"), link("nowhere", "x"),
		link("nested", "alias/file"), link("parent", "alias/../file"), link("self", "."),
		entry{"module", modeSubmodule, string(make([]byte, sha1.Size))}, entry{".stager", modeFile, file.id},
		entry{"large", modeFile, p.add(blobObject, pointer)})
	store, err := f.open(t, "", backends.Options{})
	if err != nil {
		t.Fatal(err)
	}
	skipped := make(map[string]string)
	ctx := backends.WithSkipped(t.Context(), func(s backends.Skipped) { skipped[s.Key] = s.What })
	var keys []string
	for obj, err := range store.List(ctx, "") {
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, obj.Key)
		if obj.Key != "large" && !bytes.Equal(read(t, store, obj), text) {
			t.Errorf("%q has other bytes than its target", obj.Key)
		}
	}
	for _, key := range []string{"nested", "parent", "top/file", "top/inner/file", "alias/file", "large"} {
		if !slices.Contains(keys, key) {
			t.Errorf("the listing lacks %q: %q", key, keys)
		}
	}
	for key, what := range map[string]string{
		"module": "a submodule, whose files are in another repository", "absolute": "a link that points outside the repository",
		"loop": "a link that leads in a circle", "nowhere": "a link that leads nowhere", "self": "a link to a directory above it",
		"top/inner/above": "a link to a directory above it", "top/inner/out": "a link that points outside the repository",
		"top/inner/through": "a link that leads nowhere", ".stager": "a name that is reserved for stager",
	} {
		if skipped[key] != what {
			t.Errorf("%s is %q, want %q", key, skipped[key], what)
		}
	}
	_, err = store.ReadRange(t.Context(), backends.Object{Key: "large", Size: int64(len(pointer))}, 0, 5, make(memory, 5), nil)
	if backends.KindOf(err) != backends.Unsupported || !strings.Contains(err.Error(), "kept in Git LFS") {
		t.Errorf("reading a pointer of LFS: %v, want kind unsupported", err)
	}
}

// one returns a way with one file.
func one(t *testing.T, size int) way {
	t.Helper()
	var p packed
	text := bytes.Repeat([]byte("0123456789"), size/10)
	for i := range text {
		text[i] ^= byte(i * i >> 7)
	}
	id := p.commit(entry{"a", modeFile, p.add(blobObject, text)})
	return way{Pack: p.bytes(), Commit: id}
}

func TestFetchIsRepeatedAfterLostConnections(t *testing.T) {
	w := one(t, 100_000)
	for _, cut := range []int{3, 30, 90, 1090, 20_000} {
		w.Cut = cut
		f := start(t, w)
		store, err := f.open(t, "", backends.Options{})
		if err != nil || f.fetched != 2 {
			t.Errorf("cut after %d bytes: %v after %d requests, want none after two", cut, err, f.fetched)
			continue
		}
		if objects, _ := listing(t, store); len(objects) != 1 || len(read(t, store, objects[0])) != 100_000 {
			t.Errorf("cut after %d bytes: the files are %+v", cut, objects)
		}
	}
}

func TestLargeCommitsAreRefused(t *testing.T) {
	f := start(t, one(t, 2<<20))
	_, err := f.open(t, "?max-size=1MiB", backends.Options{})
	if backends.KindOf(err) != backends.Unsupported || !strings.Contains(err.Error(), "larger than 1.0 MiB: set ?max-size=") {
		t.Errorf("got %v, want kind unsupported with ?max-size=", err)
	}
	if _, err := f.open(t, "?max-size=3MiB", backends.Options{}); err != nil {
		t.Error(err)
	}
}

func TestResponsesThatAreNoneOfGit(t *testing.T) {
	respond := func(contentType, text string, status int) func(http.ResponseWriter, *http.Request) {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", contentType)
			w.WriteHeader(status)
			_, _ = w.Write([]byte(text)) // the client sees what is missing
		}
	}
	redirect := func(to string) func(http.ResponseWriter, *http.Request) {
		return func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, to, http.StatusFound) }
	}
	for name, tt := range map[string]struct {
		discover, fetch func(http.ResponseWriter, *http.Request)
		kind            backends.Kind
		words           string
	}{
		"a page":           {discover: respond("text/html", "<html>", 200), kind: backends.Invalid, words: "responds with a web page"},
		"other text":       {discover: respond("text/plain", "x", 200), kind: backends.Unsupported, words: "no Git over HTTP"},
		"no packets":       {discover: respond(advertisedType, "hello", 200), kind: backends.Unsupported, words: "does not respond as a Git server"},
		"an old server":    {discover: respond(advertisedType, "001e# service=git-upload-pack\n00000008abcd", 200), kind: backends.Unsupported, words: "knows no version 2"},
		"not found":        {discover: respond("text/plain", "", 404), kind: backends.NotExist, words: "no repository at this path"},
		"denied":           {discover: respond("text/plain", "", 403), kind: backends.Permission, words: "denies access"},
		"a login page":     {discover: redirect("/users/sign_in"), kind: backends.Permission, words: "page for people"},
		"a circle":         {discover: redirect("/org/repo/info/refs?service=git-upload-pack"), kind: backends.Unsupported, words: "redirects more than"},
		"other hashes":     {discover: respond(advertisedType, "000eversion 2\n0016object-format=sha50000", 200), kind: backends.Unsupported, words: "hashes of the unknown kind"},
		"the server fails": {fetch: respond(resultType, "000dpackfile\n0009\x03dead0000", 200), kind: backends.Unavailable, words: "the server says: dead"},
		"an error":         {fetch: respond(resultType, "0017ERR access denied\n\x00x", 200), kind: backends.Unsupported, words: "the server says: access denied"},
		"an unknown band":  {fetch: respond(resultType, "000dpackfile\n0006\x05x0000", 200), kind: backends.Unsupported, words: "does not respond as a Git server"},
		"a page for pack":  {fetch: respond("text/html", "<html>", 200), kind: backends.Invalid, words: "responds with a web page"},
		"busy":             {fetch: respond("text/plain", "", 503), kind: backends.Throttled, words: "HTTP 503"},
	} {
		t.Run(name, func(t *testing.T) {
			w := one(t, 100)
			w.Discover, w.Fetch = tt.discover, tt.fetch
			start(t, w).wantRefused(t, tt.kind, tt.words)
		})
	}
}

// A redirect changes the repository's address, and another host gets no password.
func TestRedirectsToOtherHostsCarryNoCredentials(t *testing.T) {
	target := start(t, one(t, 100))
	from := start(t, way{Discover: func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, target.URL+"/moved.git/info/refs?service=git-upload-pack", http.StatusMovedPermanently)
	}})
	env := func(name string) string { return map[string]string{"GIT_PASSWORD": "hunter2"}[name] }
	store, err := from.open(t, "", backends.Options{Getenv: env})
	if err != nil {
		t.Fatal(err)
	}
	if _, keys := listing(t, store); !slices.Equal(keys, []string{"a"}) {
		t.Errorf("the listing has %q, want a", keys)
	}
	if from.seen[0] != "Basic Z2l0Omh1bnRlcjI=" {
		t.Errorf("the first host got %q, want the user git and the password", from.seen[0])
	}
	if slices.ContainsFunc(target.seen, func(header string) bool { return header != "" }) {
		t.Errorf("another host got %q, want no credentials", target.seen)
	}
}

func TestStalledFetchIsGivenUp(t *testing.T) {
	w := one(t, 100)
	w.Fetch = func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write([]byte("000dpackfile\n")) // it is the beginning
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}
	_, err := start(t, w).open(t, "", backends.Options{RetryFor: time.Millisecond, StallAfter: 50 * time.Millisecond})
	if backends.KindOf(err) != backends.Unavailable || !strings.Contains(err.Error(), "no bytes received for too long") {
		t.Errorf("got %v, want kind unavailable", err)
	}
}

func TestStoreIsReadOnly(t *testing.T) {
	store, err := start(t, one(t, 100)).open(t, "", backends.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := store.PutBytes(t.Context(), "k", nil, backends.CreateOptions{}); backends.KindOf(err) != backends.Unsupported {
		t.Errorf("writing: got %v, want kind unsupported", err)
	}
	if err := store.Delete(t.Context(), "a"); backends.KindOf(err) != backends.Unsupported {
		t.Errorf("deleting: got %v, want kind unsupported", err)
	}
}

func TestTemporaryFileNeedsADirectory(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir()+"/missing")
	_, err := start(t, one(t, 100)).open(t, "", backends.Options{})
	if err == nil || !strings.Contains(err.Error(), "set TMPDIR to a writable directory") {
		t.Errorf("got %v, want one with TMPDIR", err)
	}
}
