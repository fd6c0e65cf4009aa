package s3

import (
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/internal/objectstore"
)

// newKey returns a customer's key.
func newKey() string {
	key := make([]byte, 32)
	_, _ = rand.Read(key) // it does not fail
	return base64.StdEncoding.EncodeToString(key)
}

// storeWithKey opens a bucket whose customer key is in the environment.
func storeWithKey(t *testing.T, url, key string, getenv func(string) string) *backends.Store {
	t.Helper()
	store, err := backends.NewRegistry(Scheme()).Open(t.Context(), url, backends.Options{Getenv: func(name string) string {
		if name == customerKeyName {
			return key
		}
		return getenv(name)
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	return store
}

// recorder is a store that records which of the headers each kind of request has.
type recorder struct {
	vault vault

	mu  sync.Mutex
	had map[string][]string
}

var extraHeaders = []string{
	"X-Amz-Server-Side-Encryption", "X-Amz-Server-Side-Encryption-Aws-Kms-Key-Id", "X-Amz-Tagging", "X-Amz-Request-Payer",
	"X-Amz-Server-Side-Encryption-Customer-Algorithm", "X-Amz-Server-Side-Encryption-Customer-Key", "X-Amz-Server-Side-Encryption-Customer-Key-Md5",
}

// kindOf names a request.
func kindOf(r *http.Request) string {
	query := r.URL.Query()
	switch {
	case query.Has("versioning"):
		return "versioning"
	case query.Has("list-type"):
		return "list"
	case query.Has("uploads"):
		return "create"
	case r.Method == http.MethodPost:
		return "complete"
	case query.Has("uploadId") && r.Method == http.MethodPut:
		return "part"
	case query.Has("uploadId") && r.Method == http.MethodGet:
		return "parts"
	case query.Has("uploadId"):
		return "abort"
	}
	return strings.ToLower(r.Method)
}

func (c *recorder) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	kind, had := kindOf(r), []string{}
	for _, name := range extraHeaders {
		if value := r.Header.Get(name); value != "" {
			had = append(had, strings.TrimPrefix(strings.ToLower(name), "x-amz-")+"="+value)
		}
	}
	c.mu.Lock()
	if before, ok := c.had[kind]; ok && !slices.Equal(before, had) {
		had = append(had, "or", fmt.Sprint(before))
	}
	c.had[kind] = had
	c.mu.Unlock()
	switch kind {
	case "versioning":
		fmt.Fprint(w, "<VersioningConfiguration/>")
	case "list":
		fmt.Fprint(w, "<ListBucketResult/>")
	case "parts":
		fmt.Fprint(w, "<ListPartsResult/>")
	case "get", "head":
		w.Header().Set("ETag", `"p"`)
		w.Header().Set("Content-Length", "1")
		if kind == "get" {
			_, _ = io.WriteString(w, "x") // the client sees if it fails
		}
	default:
		c.vault.ServeHTTP(w, r)
	}
}

// A GET of an object under a key of the service is refused if it names the encryption. Without the
// parameters no request has a header of them.
func TestExtrasAreSentWhereTheyBelong(t *testing.T) {
	const (
		none     = ""
		sse      = "server-side-encryption=aws:kms server-side-encryption-aws-kms-key-id=k tagging=a=b&c=d"
		payer    = "request-payer=requester"
		customer = "server-side-encryption-customer-algorithm=AES256 server-side-encryption-customer-key=MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY= server-side-encryption-customer-key-md5=hRasmdxgYDKV3nvbahU1MA=="
	)
	always := func(s string) map[string]string {
		m := map[string]string{}
		for _, kind := range []string{"list", "head", "get", "put", "create", "part", "parts", "complete", "abort", "delete"} {
			m[kind] = s
		}
		return m
	}
	with := func(base, text string, kinds ...string) map[string]string {
		m := always(base)
		for _, kind := range kinds {
			m[kind] = text
		}
		return m
	}
	for _, tt := range []struct {
		params string
		want   map[string]string
	}{
		{"", always(none)},
		{"&requester-pays=true", always(payer)},
		{"&sse=AES256", with(none, "server-side-encryption=AES256", "put", "create")},
		{"&sse=aws:kms&sse-kms-key-id=k&tags=a=b,c=d", with(none, sse, "put", "create")},
		{"&sse=customer", with(none, customer, "head", "get", "put", "create", "part", "parts", "complete")},
	} {
		for _, client := range []string{"stager", "sdk"} {
			c := &recorder{had: map[string][]string{}, vault: vault{refuses: func(int, string, io.Reader) http.HandlerFunc { return nil }}}
			secure := httptest.NewTLSServer(c)
			defer secure.Close()
			ca := filepath.Join(t.TempDir(), "ca.pem")
			if err := os.WriteFile(ca, pemOf(secure.Certificate()), 0o600); err != nil {
				t.Fatal(err)
			}
			store := storeWithKey(t, "s3://bucket/?endpoint="+secure.URL+"&ca-bundle="+ca+"&client="+client+tt.params, "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=", func(name string) string {
				return map[string]string{"AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "secret"}[name]
			})
			raw, _ := store.Backend()
			b := raw.(*bucket)
			for _, size := range []int64{1, twoParts} {
				if _, err := store.Put(t.Context(), "k", zeros{}, size, backends.CreateOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			_, err := store.Stat(t.Context(), "k")
			body, err2 := b.OpenRange(t.Context(), backends.Object{Key: "k", Size: 1}, 0, -1)
			for range b.List(t.Context(), "") {
				break
			}
			_, err3 := b.parts(t.Context(), "k", "u")
			err4 := (&upload{b: b, key: "k", id: "u"}).Drop(t.Context())
			for _, err := range []error{err, err2, err3, err4, store.Delete(t.Context(), "k")} {
				if err != nil {
					t.Fatal(err)
				}
			}
			body.Close()
			for kind, want := range tt.want {
				got, sent := c.had[kind]
				if words := strings.Join(got, " "); !sent || words != want {
					t.Errorf("%s by %s: %s has %q (sent: %t), want %q", tt.params, client, kind, words, sent, want)
				}
			}
		}
	}
}

// No error contains the key.
func TestCustomerKeyStaysSecret(t *testing.T) {
	for key, want := range map[string]string{
		"":                            "needs AWS_SSE_CUSTOMER_KEY",
		"not base64 at all":           "is not the base64 of a key of 32 bytes",
		"c2hvcnQ=":                    "is not the base64 of a key of 32 bytes",
		newKey() + newKey():           "is not the base64 of a key of 32 bytes",
		strings.Repeat("0", 31) + "é": "is not the base64 of a key of 32 bytes",
	} {
		_, err := backends.NewRegistry(Scheme()).Open(t.Context(), "s3://bucket/?sse=customer&endpoint=https://h", backends.Options{Getenv: func(name string) string {
			if name == customerKeyName {
				return key
			}
			return ""
		}})
		if text := fmt.Sprint(err); backends.KindOf(err) != backends.Invalid || !strings.Contains(text, want) || key != "" && strings.Contains(text, key) {
			t.Errorf("got %v (%v), want kind invalid and %q without the key", err, backends.KindOf(err), want)
		}
	}
}

// Ceph encrypts with a key of its own and with that of a customer, over TLS. Only who has the
// customer's key reads the object.
func TestCephEncrypts(t *testing.T) {
	s := need(t, "Ceph over https")
	key := newKey()
	open := func(params, key string) *backends.Store {
		return storeWithKey(t, "s3://test/encrypted/"+params, key, s.Getenv())
	}
	for params, want := range map[string]string{
		"?sse=aws:kms&sse-kms-key-id=stager-test": "aws:kms stager-test",
		"?sse=customer":            "AES256",
		"?sse=customer&client=sdk": "AES256",
	} {
		store := open(params, key)
		for _, size := range []int{100, objectstore.SmallObject + partSize + 1} {
			data := make([]byte, size)
			_, _ = rand.Read(data) // it does not fail
			name := fmt.Sprintf("of-%d", size)
			put, err := store.PutBytes(t.Context(), name, data, backends.CreateOptions{})
			if err != nil {
				t.Fatalf("%s: %v", params, err)
			}
			there, err := store.Stat(t.Context(), name)
			if err != nil || there.Size != int64(size) || there.Version != put.Version {
				t.Errorf("%s: Stat is %+v, %v; want %d bytes of version %q", params, there, err, size, put.Version)
			}
			reader := store
			if !strings.Contains(params, ofCustomer) {
				reader = open("", "") // no header, no key
			}
			got, _, err := reader.ReadAll(t.Context(), name, int64(size))
			if err != nil || !slices.Equal(got, data) {
				t.Errorf("%s: read %d bytes, %v; want the %d bytes written", params, len(got), err, size)
			}
			raw, _ := store.Backend()
			b := raw.(*bucket)
			full := "encrypted/" + name
			head, err := b.head(t.Context(), full)
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.TrimSpace(string(head.ServerSideEncryption) + value(head.SSECustomerAlgorithm) + " " + value(head.SSEKMSKeyId)); got != want {
				t.Errorf("%s: the object of %d bytes is encrypted by %q, want %q", params, size, got, want)
			}
			if !strings.Contains(params, ofCustomer) {
				continue
			}
			for _, wrong := range []*backends.Store{open("", ""), open(params, newKey())} {
				if got, _, err := wrong.ReadAll(t.Context(), name, int64(size)); err == nil || slices.Equal(got, data) {
					t.Errorf("%s: %d bytes were read with a wrong key or without one", params, len(got))
				}
			}
		}
	}
}

// A response to HEAD has no body, so that the store cannot say that a key is missing. The hint is not
// given if other requests are rejected too.
func TestStatSuspectsCustomerKey(t *testing.T) {
	for _, tt := range []struct {
		key  string // the key of ?sse=customer
		list int    // the status of the listing
		code string // and its code
		want string
	}{
		{"", 200, "", "the server returned HTTP 400 without a reason: if the object is encrypted with a key of yours, set ?sse=customer"},
		{"", 403, "AccessDenied", "if the object is encrypted with a key of yours, set ?sse=customer"},
		{newKey(), 200, "", "check that the object is encrypted with the key in AWS_SSE_CUSTOMER_KEY, or remove ?sse=customer"},
		{"", 400, "InvalidArgument", "Words of the server (InvalidArgument)"},
		{"", 400, "ExpiredToken", "the session token has expired (ExpiredToken)"},
	} {
		for _, client := range []string{"stager", "sdk"} {
			b := openAt(t, newServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				switch {
				case r.Method == http.MethodHead:
					w.WriteHeader(http.StatusBadRequest)
				case tt.list == 200:
					fmt.Fprint(w, "<ListBucketResult/>")
				default:
					refuse(tt.list, tt.code)(w, r)
				}
			})), "&client="+client)
			b.extras.customer.key = tt.key
			_, err := b.Stat(t.Context(), "k")
			text := fmt.Sprint(err)
			if !strings.Contains(text, tt.want) || tt.key != "" && strings.Contains(text, tt.key) {
				t.Errorf("listing %d %s by %s: got %v, want %q without the key", tt.list, tt.code, client, err, tt.want)
			}
		}
	}
}

// Ceph 16 drops the tags of multipart uploads.
func TestTagsOfARealServer(t *testing.T) {
	store := openLive(t, need(t, "versitygw over http"), "test/tagged/?tags=team=vision,stage=raw+data")
	raw, _ := store.Backend()
	b := raw.(*bucket)
	for _, size := range []int{100, objectstore.SmallObject + 1} {
		name := fmt.Sprintf("of-%d", size)
		if _, err := store.PutBytes(t.Context(), name, make([]byte, size), backends.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		full, got := "tagged/"+name, map[string]string{}
		tags, err := b.client.GetObjectTagging(t.Context(), &s3.GetObjectTaggingInput{Bucket: &b.name, Key: &full})
		if err != nil {
			t.Fatal(err)
		}
		for _, tag := range tags.TagSet {
			got[value(tag.Key)] = value(tag.Value)
		}
		if want := map[string]string{"team": "vision", "stage": "raw data"}; !maps.Equal(got, want) {
			t.Errorf("the object of %d bytes has the tags %v, want %v", size, got, want)
		}
	}
}
