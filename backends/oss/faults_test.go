package oss

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aliyun/aliyun-oss-go-sdk/oss"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/conformance"
	"github.com/stager-dev/stager/backends/internal/objectstore"
)

type memory []byte

func (m memory) WriteAt(p []byte, off int64) (int, error) { return copy(m[off:], p), nil }

// wantReads reports an object that does not hold the contents of its key.
func wantReads(t *testing.T, store *backends.Store, obj backends.Object, size int64) {
	t.Helper()
	got, h := make(memory, size), backends.CRC64ECMA.New()
	reported, err := store.ReadRange(t.Context(), obj, 0, size, got, h)
	want := conformance.ContentsOf("k", size)
	if err != nil || !bytes.Equal(got, want.Bytes()) {
		t.Errorf("reading: %v, the bytes are right: %t", err, bytes.Equal(got, want.Bytes()))
	}
	if sum := want.Sum(backends.CRC64ECMA); reported != sum || backends.SumOf(backends.CRC64ECMA, h) != sum {
		t.Errorf("the store tells %v, summed on the way %v; want %v", reported, backends.SumOf(backends.CRC64ECMA, h), sum)
	}
}

func TestReadsSurviveWhatGoesWrong(t *testing.T) {
	s := need(t, false)
	const size = 3<<20 + 5
	for _, tt := range []struct {
		kind string
		n    int
		more []string
	}{
		{"throttle", 1, nil},
		{"server-error", 3, nil},
		{"web-page", 2, nil},
		{"reset", 2, nil},
		{"cut", 3, []string{"bytes", "1000001"}},
		{"cut", 2, []string{"bytes", "0"}},
		{"slow", 1, nil},
		{"ignore-range", 1, nil},
	} {
		t.Run(tt.kind, func(t *testing.T) {
			t.Parallel()
			store := s.open(t, directory(t, "test"))
			key := fmt.Sprintf("k-%d", time.Now().UnixNano())
			obj, err := store.Put(t.Context(), key, conformance.ContentsOf("k", size), size, backends.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			s.fail(t, tt.kind, key, tt.n, append(tt.more, "method", "GET")...)
			wantReads(t, store, obj, size)
		})
	}
}

// The backend does not detect a flipped bit; the checksum in the response reveals it.
func TestUploadDetectsFlippedBit(t *testing.T) {
	s := need(t, false)
	t.Parallel()
	store := s.open(t, directory(t, "test"))
	const size = 100_000
	obj, err := store.Put(t.Context(), "flip", conformance.ContentsOf("k", size), size, backends.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	s.fail(t, "flip", "flip", 1, "method", "GET", "bytes", "777")
	h := backends.CRC64ECMA.New()
	reported, err := store.ReadRange(t.Context(), obj, 0, size, make(memory, size), h)
	if err != nil || reported != obj.Sum || reported == backends.SumOf(backends.CRC64ECMA, h) {
		t.Errorf("the store tells %v (%v), its object has %v, and the bytes that came have %v", reported, err, obj.Sum, backends.SumOf(backends.CRC64ECMA, h))
	}
	// The same for any range, since each response has the checksum of the whole object.
	obj.Sum = backends.Checksum{}
	if reported, err = store.ReadRange(t.Context(), obj, 50_000, 10, make(memory, size), nil); err != nil || reported.IsZero() {
		t.Errorf("a range in the middle tells %v, %v", reported, err)
	}
}

func TestWritesSurviveWhatGoesWrong(t *testing.T) {
	s := need(t, false)
	for _, size := range []int64{10, objectstore.SmallObject + 1<<20} {
		for _, tt := range []struct {
			kind, method, param string
			n                   int
		}{
			{"throttle", "PUT", "", 1},
			{"server-error", "PUT", "", 3},
			{"reset", "PUT", "", 2},
			{"flip-upload", "PUT", "", 2},
			{"lose-answer", "PUT", "", 1},
			{"wrong-crc", "PUT", "partNumber", 2},
			{"server-error", "POST", "uploads", 2},
			{"server-error", "POST", "uploadId", 2},
			{"lose-answer", "POST", "uploadId", 1},
		} {
			if size == 10 && tt.param != "" {
				continue // those requests belong to large objects
			}
			t.Run(fmt.Sprint(size, " ", tt.kind, " ", tt.method, tt.param), func(t *testing.T) {
				t.Parallel()
				store := s.open(t, directory(t, "test"))
				key := fmt.Sprintf("w-%d", time.Now().UnixNano())
				more := []string{"method", tt.method}
				if tt.param != "" {
					more = append(more, "param", tt.param)
				}
				s.fail(t, tt.kind, key, tt.n, more...)
				obj, err := store.Put(t.Context(), key, conformance.ContentsOf("k", size), size, backends.CreateOptions{IfAbsent: true})
				if err != nil || obj.Size != size || obj.Sum != conformance.ContentsOf("k", size).Sum(backends.CRC64ECMA) {
					t.Fatalf("Put = %+v, %v; want success", obj, err)
				}
				wantReads(t, store, obj, size)
				if _, err := store.PutBytes(t.Context(), key, nil, backends.CreateOptions{IfAbsent: true}); backends.KindOf(err) != backends.Exist {
					t.Errorf("another's Put: %v, want kind exist", err)
				}
			})
		}
	}
}

func TestReadRejectsGarbledBytes(t *testing.T) {
	s := need(t, false)
	t.Parallel()
	store := s.open(t, directory(t, "test"))
	for _, tt := range []struct {
		name, kind, param string
		size              int64
		want              backends.Kind
	}{
		{"small", "wrong-crc", "", 10, backends.Corrupt},
		{"garbled", "flip-upload", "", 10, backends.Unknown},
		{"gone", "forget-upload", "uploadId", objectstore.SmallObject + 1, backends.Invalid},
		{"part", "wrong-crc", "partNumber", objectstore.SmallObject + 1, backends.Unknown},
		{"whole", "wrong-crc", "uploadId", objectstore.SmallObject + 1, backends.Corrupt},
	} {
		method, n := "PUT", 10 // more than the number of attempts; no other test uses these keys
		if tt.name == "whole" {
			method = "POST"
		}
		more := []string{"method", method}
		if tt.param != "" {
			more = append(more, "param", tt.param)
		}
		s.fail(t, tt.kind, tt.name, n, more...)
		_, err := store.Put(t.Context(), tt.name, conformance.ContentsOf("k", tt.size), tt.size, backends.CreateOptions{})
		if backends.KindOf(err) != tt.want {
			t.Errorf("%s: got %v (%v), want kind %v", tt.name, err, backends.KindOf(err), tt.want)
		}
	}
	if n := uploads(t, store); n != 0 {
		t.Errorf("%d uploads are left, want 0", n)
	}
}

// uploads counts the uploads in progress below the store.
func uploads(t *testing.T, store *backends.Store) (n int) {
	t.Helper()
	raw, prefix := store.Backend()
	out, err := raw.(*bucket).client.ListMultipartUploads()
	if err != nil {
		t.Fatal(err)
	}
	for _, u := range out.Uploads {
		if strings.HasPrefix(u.Key, prefix) {
			n++
		}
	}
	return n
}

func TestAbortLeavesNoUpload(t *testing.T) {
	s := need(t, false)
	t.Parallel()
	store := s.open(t, directory(t, "other"))
	raw, prefix := store.Backend()
	ctx, cancel := context.WithCancel(t.Context())
	w, err := raw.Create(ctx, prefix+"aborted", backends.CreateOptions{Size: -1})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(make([]byte, partSize+1)); err != nil {
		t.Fatal(err)
	}
	if n := uploads(t, store); n != 1 {
		t.Fatalf("%d uploads are under way, want 1", n)
	}
	cancel() // Abort works nevertheless
	for range 2 {
		if err := w.Abort(); err != nil {
			t.Errorf("Abort: %v", err)
		}
	}
	if n := uploads(t, store); n != 0 {
		t.Errorf("%d uploads are left, want 0", n)
	}
	if _, err := w.Commit(t.Context()); backends.KindOf(err) != backends.Invalid {
		t.Errorf("Commit after Abort: %v, want kind invalid", err)
	}
}

// The server restarts in the middle of many reads and writes.
func TestServerRestart(t *testing.T) {
	s := need(t, false)
	store := openWith(t, directory(t, "test"), backends.Options{Getenv: s.Getenv(), RetryFor: time.Minute})
	const size = partSize + 1<<20
	old, err := store.Put(t.Context(), "old", conformance.ContentsOf("k", size), size, backends.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for i := range 4 {
		all.Go(func() { wantReads(t, store, old, size) })
		all.Go(func() {
			obj, err := store.Put(t.Context(), fmt.Sprint("new", i), conformance.ContentsOf("k", size), size, backends.CreateOptions{IfAbsent: true})
			if err != nil {
				t.Error(err)
				return
			}
			wantReads(t, store, obj, size)
		})
	}
	s.control(t, http.MethodPost, "/down?for=1s", nil)
	all.Wait()
}

// shrinking is a file that lost its end.
type shrinking struct{ size int64 }

func (f shrinking) ReadAt(p []byte, off int64) (int, error) {
	if off+int64(len(p)) > f.size {
		return 0, io.EOF
	}
	return len(p), nil
}

func TestUploadOfAShrinkingFileFails(t *testing.T) {
	s := need(t, false)
	t.Parallel()
	store := s.open(t, directory(t, "test"))
	for _, size := range []int64{1000, objectstore.SmallObject + 1<<20, partSize + 1<<20} {
		var local *backends.LocalError
		if _, err := store.Put(t.Context(), "k", shrinking{size - 10}, size, backends.CreateOptions{}); !errors.As(err, &local) {
			t.Errorf("%d bytes: got %v, want a local error", size, err)
		}
	}
	if n := uploads(t, store); n != 0 {
		t.Errorf("%d uploads are left, want 0", n)
	}
}

func TestServerSilenceTimesOut(t *testing.T) {
	s := need(t, false)
	t.Parallel()
	store := openWith(t, directory(t, "test"), backends.Options{Getenv: s.Getenv(), StallAfter: 300 * time.Millisecond})
	if _, err := store.PutBytes(t.Context(), "silent", []byte("x"), backends.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	s.fail(t, "stall", "silent", 2, "method", "GET")
	got, _, err := store.ReadAll(t.Context(), "silent", 10)
	if err != nil || string(got) != "x" {
		t.Errorf("got %q, %v; want the object, after silence", got, err)
	}
	s.fail(t, "stall", "silent", 1, "method", "HEAD")
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	start := time.Now()
	if _, err := store.Stat(ctx, "silent"); backends.KindOf(err) != backends.Canceled || time.Since(start) > 5*time.Second {
		t.Errorf("Stat under a deadline: %v after %v", err, time.Since(start))
	}
}

func TestErrorsOfTheServer(t *testing.T) {
	s := need(t, false)
	t.Parallel()
	token := s.token(t, time.Millisecond)
	time.Sleep(5 * time.Millisecond) // so that it has expired
	for _, tt := range []struct {
		url     string
		changed []string
		kind    backends.Kind
		words   string
	}{
		{"oss://nobucket/", nil, backends.NotExist, `bucket "nobucket" does not exist`},
		{"oss://test/", nil, backends.NotExist, "no such object"},
		{"oss://test/", []string{"OSS_ACCESS_KEY_ID=nobody"}, backends.Permission, "does not know this access key"},
		{"oss://test/", []string{"OSS_ACCESS_KEY_SECRET=wrong"}, backends.Permission, "does not match"},
		{"oss://test/?signature=v1", []string{"OSS_ACCESS_KEY_SECRET=wrong"}, backends.Permission, "does not match"},
		{"oss://test/", []string{"OSS_ACCESS_KEY_SECRET="}, backends.Permission, "only one of"},
		{"oss://test/", []string{"OSS_SESSION_TOKEN=wrong"}, backends.Permission, "does not belong to this access key"},
		{"oss://test/", token, backends.Permission, "the session token has expired"},
		{"oss://test/?region=cn-beijing", nil, backends.Invalid, "correct ?region="},
		{"oss://test/?anonymous=true", nil, backends.Permission, "no right"},
		{"oss://test/", []string{"OSS_ACCESS_KEY_ID=", "OSS_ACCESS_KEY_SECRET=", "ALIBABA_CLOUD_ECS_METADATA_DISABLED=true"}, backends.Permission, "no credentials were found"},
		{"oss://test/", []string{"OSS_ENDPOINT=http://127.0.0.1:1"}, backends.Unavailable, "refused"},
	} {
		store := openWith(t, tt.url, backends.Options{Getenv: s.Getenv(tt.changed...), RetryFor: time.Second})
		_, err := store.ReadRange(t.Context(), backends.Object{Key: "missing", Size: 1, Version: "v"}, 0, 1, make(memory, 1), nil)
		if backends.KindOf(err) != tt.kind || !strings.Contains(fmt.Sprint(err), tt.words) {
			t.Errorf("reading from %s with %s: %v (%v); want %q of kind %v", tt.url, tt.changed, err, backends.KindOf(err), tt.words, tt.kind)
		}
		if _, staterr := store.Stat(t.Context(), "missing"); backends.KindOf(staterr) != tt.kind || !strings.Contains(fmt.Sprint(staterr), tt.words) {
			t.Errorf("stat in %s with %s: %v; want what reading says, from a HEAD without a body", tt.url, tt.changed, staterr)
		}
		if strings.Contains(fmt.Sprint(err), s.Env["OSS_ACCESS_KEY_SECRET"]) {
			t.Errorf("the error shows a secret: %v", err)
		}
	}
	store := s.open(t, "oss://test")
	for _, key := range []string{"/begins", `\begins`, strings.Repeat("x", 1024)} {
		if _, err := store.PutBytes(t.Context(), key, nil, backends.CreateOptions{}); backends.KindOf(err) != backends.Invalid {
			t.Errorf("putting %.20q: %v, want kind invalid", key, err)
		}
	}
}

func TestPublicBucketIsReadAnonymously(t *testing.T) {
	s := need(t, true)
	t.Parallel()
	at := directory(t, "public")
	if _, err := s.open(t, at).PutBytes(t.Context(), "k", []byte("x"), backends.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	store := s.open(t, at+"?anonymous=true", "OSS_ACCESS_KEY_ID=", "OSS_ACCESS_KEY_SECRET=")
	if got, _, err := store.ReadAll(t.Context(), "k", 10); err != nil || string(got) != "x" {
		t.Errorf("got %q, %v", got, err)
	}
	n := 0
	for _, err := range store.List(t.Context(), "") {
		if err != nil {
			t.Error(err)
		}
		n++
	}
	if n != 1 {
		t.Errorf("%d objects are listed, want 1", n)
	}
	if _, err := store.PutBytes(t.Context(), "k", nil, backends.CreateOptions{}); backends.KindOf(err) != backends.Permission {
		t.Errorf("writing: %v, want kind permission", err)
	}
}

func TestAuthorityNotTrusted(t *testing.T) {
	s := need(t, true)
	_, err := s.open(t, "oss://test/", "OSS_CA_BUNDLE=").Stat(t.Context(), "x")
	if backends.KindOf(err) != backends.Invalid || !strings.Contains(fmt.Sprint(err), "ca-bundle") {
		t.Errorf("without the authority: %v (%v); want words about ?ca-bundle=", err, backends.KindOf(err))
	}
}

func TestVersioningIsDetected(t *testing.T) {
	s := need(t, false)
	for _, tt := range []struct {
		status string
		want   bool
	}{{"Enabled", false}, {"Suspended", false}, {"", true}} {
		s.control(t, http.MethodPost, "/versioning?bucket=other&status="+tt.status, nil)
		store := s.open(t, directory(t, "other"))
		if got := store.Capabilities().ConditionalCreate; got != tt.want {
			t.Errorf("versioning %q: ConditionalCreate is %t, want %t", tt.status, got, tt.want)
		}
		for i, want := range []backends.Kind{backends.Unknown, backends.Exist} {
			_, err := store.PutBytes(t.Context(), "k", nil, backends.CreateOptions{IfAbsent: true})
			if (i == 0) != (err == nil) || i == 1 && backends.KindOf(err) != want {
				t.Errorf("versioning %q: Put %d: %v", tt.status, i, err)
			}
		}
	}
	// A bucket of unknown versioning has fewer guarantees, but works.
	s.fail(t, "server-error", "", 1, "param", "versioning")
	store := s.open(t, directory(t, "other"))
	if store.Capabilities().ConditionalCreate {
		t.Error("ConditionalCreate is promised of a bucket that does not tell its versioning")
	}
	if _, err := store.PutBytes(t.Context(), "k", nil, backends.CreateOptions{IfAbsent: true}); err != nil {
		t.Error(err)
	}
}

func TestRequestsAreNotRepeated(t *testing.T) {
	s := need(t, false)
	count := func() (n map[string]int) {
		s.control(t, http.MethodGet, "/counts", &n)
		return n
	}
	before := count()
	store := s.open(t, directory(t, "test"))
	for i := range 3 {
		if _, err := store.PutBytes(t.Context(), fmt.Sprint("k", i), make([]byte, 1000), backends.CreateOptions{IfAbsent: true}); err != nil {
			t.Fatal(err)
		}
	}
	for obj, err := range store.List(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		if _, err := store.ReadRange(t.Context(), obj, 0, obj.Size, make(memory, 1000), nil); err != nil {
			t.Fatal(err)
		}
	}
	after := count()
	for request, want := range map[string]int{
		"GET versioning": 1, "PUT": 3, "GET encoding-type,list-type,max-keys,prefix": 1, "GET": 3, "HEAD": 0,
	} {
		if got := after[request] - before[request]; got != want {
			t.Errorf("%d requests %q, want %d", got, request, want)
		}
	}
}

// On Alibaba Cloud the bucket is part of the host name, which no other test covers.
func TestBucketInTheHostName(t *testing.T) {
	s := need(t, false)
	at, err := url.Parse(s.Env["OSS_ENDPOINT"])
	if err != nil {
		t.Fatal(err)
	}
	var dialed []string
	for _, more := range []string{"", "&signature=v1"} {
		target := target("endpoint=http://oss-cn-hangzhou.aliyuncs.com"+more, "OSS_ACCESS_KEY_ID="+s.Env["OSS_ACCESS_KEY_ID"], "OSS_ACCESS_KEY_SECRET="+s.Env["OSS_ACCESS_KEY_SECRET"])
		target.Host = "test"
		b, err := newBucket(target)
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		b.transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
			dialed = append(dialed, address)
			return new(net.Dialer).DialContext(ctx, network, at.Host)
		}
		key := "host/ä b+" + more
		if _, err := backends.NewStore(b, "oss://test", backends.Options{}).PutBytes(t.Context(), key, []byte("x"), backends.CreateOptions{}); err != nil {
			t.Error(err)
		}
		if obj, err := b.Stat(t.Context(), key); err != nil || obj.Size != 1 {
			t.Errorf("Stat = %+v, %v", obj, err)
		}
	}
	if len(dialed) == 0 || dialed[0] != "test.oss-cn-hangzhou.aliyuncs.com:80" {
		t.Errorf("dialed %q, want the bucket in the host's name", dialed)
	}
}

func TestChecksumMismatchIsIgnored(t *testing.T) {
	for _, tt := range []struct{ text, want string }{
		{"", ""},
		{"0", "crc64ecma:0000000000000000"},
		{"11051210869376104954", "crc64ecma:995dc9bbdf1939fa"},
		{"18446744073709551616", ""},
		{"-1", ""},
		{"abc", ""},
	} {
		if got := sumOf(http.Header{http.CanonicalHeaderKey(oss.HTTPHeaderOssCRC64): {tt.text}}).String(); got != tt.want {
			t.Errorf("%q: got %q, want %q", tt.text, got, tt.want)
		}
	}
}
