package git

import (
	"bytes"
	"compress/zlib"
	"crypto/sha1"
	"encoding/binary"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stager-dev/stager/backends"
)

// packed is a pack that a test writes.
type packed struct {
	body  bytes.Buffer
	count uint32
}

// raw adds an object of any kind and claimed size. base comes before its contents.
func (p *packed) raw(kind byte, size int, base, contents []byte) (start int) {
	start = 12 + p.body.Len()
	c := kind<<4 | byte(size&15)
	for size >>= 4; size > 0; size >>= 7 {
		p.body.WriteByte(c | 0x80)
		c = byte(size & 0x7f)
	}
	p.body.WriteByte(c)
	p.body.Write(base)
	z := zlib.NewWriter(&p.body)
	_, _ = z.Write(contents) // to memory
	_ = z.Close()
	p.count++
	return start
}

// add adds an object and returns its hash.
func (p *packed) add(kind objectKind, contents []byte) string {
	p.raw(byte(kind), len(contents), nil, contents)
	return hashOf(kind, contents)
}

func hashOf(kind objectKind, contents []byte) string {
	sum := sha1.Sum(append(fmt.Appendf(nil, "%s %d\x00", kindNames[kind], len(contents)), contents...))
	return string(sum[:])
}

// commit adds a commit of a tree of entries, and returns its hash.
func (p *packed) commit(entries ...entry) string {
	return p.add(commitObject, fmt.Appendf(nil, "tree %x\nauthor a\n\nm", p.add(treeObject, treeOf(entries...))))
}

func treeOf(entries ...entry) (text []byte) {
	for _, e := range entries {
		text = append(fmt.Appendf(text, "%o %s\x00", e.mode, e.name), e.id...)
	}
	return text
}

// bytes returns the pack.
func (p *packed) bytes() []byte {
	out := binary.BigEndian.AppendUint32([]byte("PACK\x00\x00\x00\x02"), p.count)
	out = append(out, p.body.Bytes()...)
	sum := sha1.Sum(out)
	return append(out, sum[:]...)
}

// way is how a fake behaves. The zero value is a server without faults.
type way struct {
	Pack     []byte
	Commit   string                                       // of the branch main
	Discover func(w http.ResponseWriter, r *http.Request) // instead of the abilities
	Fetch    func(w http.ResponseWriter, r *http.Request) // instead of the pack
	Cut      int                                          // end the first pack after so many bytes
}

// fake is a Git server of the tests.
type fake struct {
	*httptest.Server
	way

	mu      sync.Mutex // guards the fields below
	fetched int
	seen    []string // Authorization headers
}

func start(t *testing.T, w way) *fake {
	t.Helper()
	f := &fake{way: w}
	f.Server = httptest.NewServer(f)
	t.Cleanup(f.Close)
	return f
}

// ServeHTTP implements http.Handler.
func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body) // a test sees what is missing
	f.mu.Lock()
	f.seen = append(f.seen, r.Header.Get("Authorization"))
	f.mu.Unlock()
	w.Header().Set("Content-Type", resultType)
	switch {
	case r.Method == http.MethodGet && f.Discover != nil:
		f.Discover(w, r)
	case r.Method == http.MethodGet:
		abilities(w)
	case bytes.Contains(body, []byte("command=ls-refs\n")):
		out := appendPacket(nil, fmt.Sprintf("%x HEAD symref-target:refs/heads/main", f.way.Commit))
		_, _ = w.Write(append(appendPacket(out, fmt.Sprintf("%x refs/heads/main", f.way.Commit)), "0000"...)) // as above
	case f.Fetch != nil:
		f.Fetch(w, r)
	default:
		f.send(w)
	}
}

func abilities(w io.Writer) {
	w.(http.ResponseWriter).Header().Set("Content-Type", advertisedType)
	out := append(appendPacket(nil, "# service="+service), "0000"...)
	for _, line := range []string{"version 2", "agent=git/fake", "ls-refs=unborn", "fetch=shallow", "object-format=sha1"} {
		out = appendPacket(out, line)
	}
	_, _ = w.Write(append(out, "0000"...)) // as above
}

func (f *fake) send(w http.ResponseWriter) {
	out := appendPacket(nil, "shallow-info")
	out = appendPacket(out, fmt.Sprintf("shallow %x", f.way.Commit))
	out = append(out, "0001"...)
	out = appendPacket(out, "packfile")
	out = append(out, "0006\x02."...)
	for part := range slices.Chunk(f.Pack, 1000) {
		out = append(fmt.Appendf(out, "%04x\x01", len(part)+5), part...)
	}
	out = append(out, "0000"...)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.fetched++; f.fetched == 1 && f.Cut > 0 {
		_, _ = w.Write(out[:f.Cut])
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}
	_, _ = w.Write(out) // as above
}

// open opens the repository of a fake.
func (f *fake) open(t *testing.T, rest string, opts backends.Options) (*backends.Store, error) {
	t.Helper()
	if opts.RetryFor == 0 {
		opts.RetryFor = time.Minute
	}
	store, err := backends.NewRegistry(Schemes()...).Open(t.Context(), "git+"+f.URL+"/org/repo"+rest, opts)
	if err == nil {
		t.Cleanup(func() { store.Close() })
	}
	return store, err
}

// wantRefused opens a repository and wants an error.
func (f *fake) wantRefused(t *testing.T, kind backends.Kind, words string) {
	t.Helper()
	_, err := f.open(t, "", backends.Options{RetryFor: time.Millisecond})
	if backends.KindOf(err) != kind || !strings.Contains(fmt.Sprint(err), words) {
		t.Errorf("opening: got %v of kind %v, want kind %v and %q", err, backends.KindOf(err), kind, words)
	}
}
