package oss

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/aliyun/aliyun-oss-go-sdk/oss"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/conformance"
	"github.com/stager-dev/stager/backends/internal/objectstore"
)

type memory []byte

func (m memory) WriteAt(p []byte, off int64) (int, error) { return copy(m[off:], p), nil }

func TestFaults(t *testing.T) {
	s := need(t, false)
	conformance.Faulty[*testing.T]{
		Open: func(t *testing.T, opts backends.Options) *backends.Store {
			opts.Getenv = s.Getenv()
			return openWith(t, directory(t, "test"), opts)
		},
		Inject: s.control().Inject, Restart: s.control().Restart, Sum: backends.CRC64ECMA, Large: objectstore.SmallObject + 1<<20,
	}.Run(t)
}

func TestStatEndsWithItsContext(t *testing.T) {
	s := need(t, false)
	t.Parallel()
	store := s.open(t, directory(t, "test"))
	s.control().Inject(t, conformance.Injected{Kind: "stall", Method: "HEAD", Key: "silent", Times: 1})
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
		s.control().Send(t, http.MethodPost, "/versioning?bucket=other&status="+tt.status, nil)
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
	s.control().Inject(t, conformance.Injected{Kind: "server-error", Param: "versioning", Times: 1})
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
		s.control().Send(t, http.MethodGet, "/counts", &n)
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
