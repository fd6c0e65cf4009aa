package s3

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/internal/objectstore"
)

func newServer(t testing.TB, h http.Handler) string {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Has("versioning") { // sent when a bucket is opened
			fmt.Fprint(w, "<VersioningConfiguration/>")
			return
		}
		h.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

func TestParse(t *testing.T) {
	for _, tt := range []struct {
		query, env string
		want       settings
	}{
		{"", "", settings{aws: true, checksum: "crc64nvme"}},
		{"region=eu-west-3&requester-pays=true", "", settings{aws: true, region: "eu-west-3", requesterPays: true, checksum: "crc64nvme"}},
		{"endpoint=http://rgw:8080", "", settings{endpoint: "http://rgw:8080", region: "us-east-1", pathStyle: true, checksum: "auto"}},
		{"", "AWS_ENDPOINT_URL=http://a", settings{endpoint: "http://a", region: "us-east-1", pathStyle: true, checksum: "auto"}},
		{"endpoint=http://b&checksum=none", "AWS_ENDPOINT_URL_S3=http://a", settings{endpoint: "http://b", region: "us-east-1", pathStyle: true, checksum: "none"}},
		{"endpoint=https://oss-cn-x.aliyuncs.com", "AWS_REGION=cn-x", settings{endpoint: "https://oss-cn-x.aliyuncs.com", region: "cn-x", checksum: "auto"}},
		{"endpoint=https://s3.eu-west-3.amazonaws.com&region=eu-west-3", "", settings{endpoint: "https://s3.eu-west-3.amazonaws.com", aws: true, region: "eu-west-3", checksum: "crc64nvme"}},
		{"sse=aws:kms&sse-kms-key-id=k&tags=a=b+c,d=e%26f", "", settings{aws: true, checksum: "crc64nvme", extras: extras{sse: "aws:kms", kmsKey: "k", tags: "a=b+c&d=e%26f"}}},
		{"sse=customer", "AWS_SSE_CUSTOMER_KEY=MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=", settings{aws: true, checksum: "crc64nvme", extras: extras{
			customer: customerKey{"AES256", "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=", "hRasmdxgYDKV3nvbahU1MA=="},
		}}},
		{"client=sdk", "", settings{aws: true, checksum: "crc64nvme", sdk: true}},
		{"endpoint=https://h", "AWS_CA_BUNDLE=/ca", settings{endpoint: "https://h", region: "us-east-1", pathStyle: true, caBundle: "/ca", checksum: "auto"}},
		{"endpoint=http://h", "AWS_CA_BUNDLE=/ca", settings{endpoint: "http://h", region: "us-east-1", pathStyle: true, checksum: "auto"}},
		{"endpoint=http://h&ca-bundle=/ca", "", settings{endpoint: "http://h", region: "us-east-1", pathStyle: true, caBundle: "/ca", checksum: "auto"}},
		{"", "AWS_CA_BUNDLE=/ca", settings{aws: true, caBundle: "/ca", checksum: "crc64nvme"}},
		{"endpoint=https://h&path-style=false&anonymous=1", "", settings{endpoint: "https://h", region: "us-east-1", anonymous: true, checksum: "auto"}},
	} {
		params, err := url.ParseQuery(tt.query)
		if err != nil {
			t.Fatal(err)
		}
		got, err := parse(backends.Target{Host: "bucket", Params: params, Options: backends.Options{Getenv: func(name string) string {
			n, v, _ := strings.Cut(tt.env, "=")
			if n == name {
				return v
			}
			return ""
		}}})
		if err != nil || got != tt.want {
			t.Errorf("%q with %q: got %+v, %v; want %+v", tt.query, tt.env, got, err, tt.want)
		}
	}
	for _, bad := range []string{
		"endpoint=rgw:8080", "endpoint=https://u:p@h", "anonymous=maybe", "checksum=md5", "client=curl", "path-style=2",
		"sse=DES", "sse-kms-key-id=k", "sse=AES256&sse-kms-key-id=k", "sse=customer", "sse=customer&endpoint=http://h",
		"tags=a", "tags=a=b,", "tags=a=b,a=c", "tags=" + strings.Repeat("a", 129) + "=b", "tags=0=,1=,2=,3=,4=,5=,6=,7=,8=,9=,10=",
	} {
		params, _ := url.ParseQuery(bad)
		if got, err := parse(backends.Target{Host: "bucket", Params: params}); backends.KindOf(err) != backends.Invalid {
			t.Errorf("%q: got %+v, %v; want kind invalid", bad, got, err)
		}
	}
	for _, host := range []string{"", "host:9000"} {
		if _, err := open(t.Context(), backends.Target{Host: host}); backends.KindOf(err) != backends.Invalid {
			t.Errorf("host %q: %v, want kind invalid", host, err)
		}
	}
}

// The Secret of a store outside AWS contains its endpoint beside the keys. These files reached the
// pod but were not read, so the bucket was looked up on AWS.
func TestEndpointOfASecret(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"AWS_ENDPOINT_URL_S3": "http://minio:9000\n", "AWS_REGION": "here\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	env := func(name string) string {
		return map[string]string{"AWS_ENDPOINT_URL_S3": "http://other", "AWS_REGION": "there"}[name]
	}
	for _, tt := range []struct {
		query string
		want  settings
	}{
		{"", settings{endpoint: "http://minio:9000", region: "here", pathStyle: true, checksum: "auto"}},
		{"endpoint=http://b&region=r", settings{endpoint: "http://b", region: "r", pathStyle: true, checksum: "auto"}},
	} {
		params, _ := url.ParseQuery(tt.query)
		got, err := parse(backends.Target{Host: "bucket", Params: params, Options: backends.Options{Getenv: env, Secrets: dir}})
		if err != nil || got != tt.want {
			t.Errorf("%q: got %+v, %v, want %+v", tt.query, got, err, tt.want)
		}
	}
}

// Without an endpoint, failures are most often caused by that, so the message begins with it.
func TestErrorNamesTheMissingEndpoint(t *testing.T) {
	lookup := &net.OpError{Op: "dial", Err: &net.DNSError{Err: "no such host", Name: "bucket.s3.amazonaws.com", IsNotFound: true}}
	for _, unset := range []bool{true, false} {
		b := &bucket{name: "bucket", log: slog.New(slog.DiscardHandler), unset: unset}
		got := b.explain("list", "", lookup).Error()
		if want := "no endpoint is set (?endpoint= or AWS_ENDPOINT_URL_S3, in the environment or the Secret), and AWS cannot be reached: "; strings.Contains(got, want) != unset || !strings.Contains(got, "no such host") {
			t.Errorf("with unset %v: got %q, want the endpoint in it: %v", unset, got, unset)
		}
	}
}

// Opening a bucket first queries its region on AWS, and that error once hid the missing endpoint:
// "the bucket's region could not be found: say it with ?region=".
func TestRegionIsNotAskedForWithoutAnEndpoint(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := "http://" + l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	for unset, want := range map[bool]string{true: "no endpoint is set (?endpoint= or AWS_ENDPOINT_URL_S3", false: "cannot determine the bucket's region ("} {
		b := &bucket{name: "bucket", log: slog.New(slog.DiscardHandler), unset: unset}
		_, err := b.findRegion(t.Context(), s3.Options{BaseEndpoint: &nobody, UsePathStyle: true, Retryer: aws.NopRetryer{}})
		var e *backends.Error
		if !errors.As(err, &e) || !strings.HasPrefix(e.Err.Error(), want) {
			t.Errorf("with unset %v: got %v, want it to begin with %q", unset, err, want)
		}
	}
}

func TestCredentialsComeInOrder(t *testing.T) {
	env := func(name string) string {
		return map[string]string{"AWS_ACCESS_KEY_ID": "of-env", "AWS_SECRET_ACCESS_KEY": "s"}[name]
	}
	names, shared, none := t.TempDir(), t.TempDir(), t.TempDir()
	write := func(dir, name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(names, "AWS_ACCESS_KEY_ID", "of-files\n")
	write(names, "AWS_SECRET_ACCESS_KEY", "s\n")
	write(names, "AWS_SESSION_TOKEN", "token\n")
	write(shared, "credentials", "[default]\naws_access_key_id = of-shared\naws_secret_access_key = s\n")
	chain := aws.CredentialsProviderFunc(func(_ context.Context) (aws.Credentials, error) {
		return aws.Credentials{AccessKeyID: "of-chain", SecretAccessKey: "s"}, nil
	})
	for _, tt := range []struct {
		opts  backends.Options
		want  string
		token string
	}{
		{backends.Options{Secrets: names, Getenv: env}, "of-files", "token"},
		{backends.Options{Secrets: shared, Getenv: env}, "of-shared", ""},
		{backends.Options{Secrets: none, Getenv: env}, "of-env", ""},
		{backends.Options{}, "of-chain", ""},
	} {
		got, err := credentials{tt.opts, chain}.Retrieve(t.Context())
		if err != nil || got.AccessKeyID != tt.want || got.SessionToken != tt.token {
			t.Errorf("%+v: got %q %q, %v; want %q %q", tt.opts, got.AccessKeyID, got.SessionToken, err, tt.want, tt.token)
		}
		if files := strings.HasPrefix(tt.opts.Secrets, "/") && tt.want != "of-env"; got.CanExpire != files || (files && time.Until(got.Expires) > rereadAfter) {
			t.Errorf("%s: expires %v at %v; those of files are read again", tt.want, got.CanExpire, got.Expires)
		}
	}
}

// Keys of the environment come before the shared configuration, which is therefore not read, whatever
// is in it. Without keys, or without a region, it is needed.
func TestSharedConfigurationIsReadIfNeeded(t *testing.T) {
	for _, name := range []string{"AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"} {
		t.Setenv(name, filepath.Join(t.TempDir(), "none"))
	}
	t.Setenv("AWS_PROFILE", "nobody") // reading it fails
	keys := map[string]string{"AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "secret"}
	for _, tt := range []struct {
		what, query string
		env         map[string]string
		want        backends.Kind
	}{
		{"keys and another server", "endpoint=http://h", keys, 0},
		{"keys and a region", "region=eu-west-3", keys, 0},
		{"keys alone", "", keys, backends.Invalid},
		{"no keys", "endpoint=http://h", nil, backends.Invalid},
		{"half of the keys", "endpoint=http://h", map[string]string{"AWS_ACCESS_KEY_ID": "id"}, backends.Invalid},
		{"nobody", "endpoint=http://h&anonymous=true", nil, 0},
	} {
		params, err := url.ParseQuery(tt.query)
		if err != nil {
			t.Fatal(err)
		}
		target := backends.Target{Host: "bucket", Params: params, Options: backends.Options{Getenv: func(name string) string { return tt.env[name] }}}
		set, err := parse(target)
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := connect(t.Context(), target, set); (err != nil) != (tt.want != 0) || err != nil && backends.KindOf(err) != tt.want {
			t.Errorf("%s: got %v, want kind %v", tt.what, err, tt.want)
		}
	}
}

// A chain that was not needed at first is loaded when it is, and again after a failure to load it.
func TestChainIsLoadedWhenNeeded(t *testing.T) {
	loads, fail := 0, true
	r := newRenewable(backends.Options{}, nil, func(context.Context) (aws.CredentialsProvider, error) {
		if loads++; fail {
			return nil, errors.New("unreadable")
		}
		return aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: "of-chain", SecretAccessKey: "s"}, nil
		}), nil
	})
	if _, err := r.Retrieve(t.Context()); err == nil {
		t.Error("got no error, want that of loading")
	}
	fail = false
	for range 2 {
		if got, err := r.Retrieve(t.Context()); err != nil || got.AccessKeyID != "of-chain" {
			t.Errorf("got %q, %v; want of-chain", got.AccessKeyID, err)
		}
	}
	if loads != 2 {
		t.Errorf("got %d loads, want 2", loads)
	}
}

func TestRegionIsDetected(t *testing.T) {
	for _, tt := range []struct {
		status int
		header string
		want   string
		kind   backends.Kind
	}{
		{200, "eu-west-3", "eu-west-3", 0},
		{301, "eu-west-3", "eu-west-3", 0},
		{403, "eu-west-3", "eu-west-3", 0}, // ours or not, the response has the region
		{404, "", "", backends.NotExist},
		{503, "", "", backends.Throttled},
	} {
		endpoint := newServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Authorization") != "" || r.Method != http.MethodHead {
				t.Errorf("%s %s is signed", r.Method, r.URL)
			}
			if tt.header != "" {
				w.Header().Set("X-Amz-Bucket-Region", tt.header)
			}
			w.WriteHeader(tt.status)
		}))
		b := openAt(t, endpoint, "")
		got, err := b.findRegion(t.Context(), s3.Options{
			BaseEndpoint: &endpoint, UsePathStyle: true, Retryer: aws.NopRetryer{},
			HTTPClient: &http.Client{CheckRedirect: objectstore.NoRedirect},
		})
		if got != tt.want || (err != nil && backends.KindOf(err) != tt.kind) || (err == nil) != (tt.want != "") {
			t.Errorf("HTTP %d: got %q, %v; want %q of kind %v", tt.status, got, err, tt.want, tt.kind)
		}
	}
}

func TestAnonymousRequestsAreNotSigned(t *testing.T) {
	for params, signed := range map[string]bool{"": true, "&anonymous=true": false} {
		b := openAt(t, newServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if got := r.Header.Get("Authorization") != ""; got != signed {
				t.Errorf("%q: signed %t, want %t", params, got, signed)
			}
			if got := r.Header.Get("Accept-Encoding"); got != "" {
				t.Errorf("%q: Accept-Encoding %q, want none", params, got)
			}
			w.WriteHeader(http.StatusNoContent)
		})), params)
		if err := b.Delete(t.Context(), "k"); err != nil {
			t.Error(err)
		}
	}
}

func TestRequesterPaysOnEveryRequest(t *testing.T) {
	asked := 0
	b := openAt(t, newServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked++
		if r.Header.Get("X-Amz-Request-Payer") != "requester" {
			t.Errorf("%s %s does not say who pays", r.Method, r.URL)
		}
		w.WriteHeader(http.StatusNotFound)
	})), "&requester-pays=true")
	_, _ = b.Stat(t.Context(), "k")
	_, _ = b.OpenRange(t.Context(), backends.Object{Key: "k"}, 0, 1)
	for range b.List(t.Context(), "") {
		break
	}
	_ = b.Delete(t.Context(), "k")
	w, err := b.CreateParts(t.Context(), "k", backends.CreateOptions{Size: 0})
	if err != nil {
		t.Fatal(err)
	}
	_, _ = w.Commit(t.Context())
	if asked < 5 {
		t.Errorf("%d requests, want at least 5", asked)
	}
}

func TestChecksumIsOmittedIfRejected(t *testing.T) {
	for params, want := range map[string]string{"": "sum none none", "&checksum=none": "none none", "&checksum=crc64nvme": "sum sum"} {
		var asked []string
		b := openAt(t, newServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			if r.Header.Get("X-Amz-Checksum-Crc64nvme") != "" {
				asked = append(asked, "sum")
				refuse(400, "InvalidArgument")(w, r)
				return
			}
			asked = append(asked, "none")
		})), params)
		for range 2 {
			w, err := b.Create(t.Context(), "k", backends.CreateOptions{Size: -1})
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprint(w, "data")
			if _, err := w.Commit(t.Context()); (err != nil) != strings.HasSuffix(params, "crc64nvme") {
				t.Errorf("%q: Commit: %v", params, err)
			}
		}
		if got := strings.Join(asked, " "); got != want {
			t.Errorf("%q: asked %q, want %q", params, got, want)
		}
	}
}

func TestListDecodesKeysAndSkipsDirs(t *testing.T) {
	const entry = "<Contents><Key>%s</Key><Size>%d</Size><ETag>&quot;e&quot;</ETag><LastModified>2026-11-21T06:00:00Z</LastModified></Contents>"
	page := func(encoding, more string, entries ...string) string {
		return "<ListBucketResult><EncodingType>" + encoding + "</EncodingType>" + more + strings.Join(entries, "") + "</ListBucketResult>"
	}
	b := openFake(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("continuation-token") == "" {
			fmt.Fprint(w, page("url", "<IsTruncated>true</IsTruncated><NextContinuationToken>t</NextContinuationToken>",
				fmt.Sprintf(entry, "a%01+b%2Bc", 1), fmt.Sprintf(entry, "dir/", 0)))
			return
		}
		fmt.Fprint(w, page("", "", fmt.Sprintf(entry, "dir/plain%20", 2)))
	})
	var got []string
	for obj, err := range b.List(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, fmt.Sprintf("%q %d %s %d", obj.Key, obj.Size, obj.Version, obj.ModTime.Year()))
	}
	if want := `"a\x01 b+c" 1 e 2026, "dir/plain%20" 2 e 2026`; strings.Join(got, ", ") != want {
		t.Errorf("got %s, want %s", strings.Join(got, ", "), want)
	}
}

// The store throttled or broke the connection at the moment at which it was opened. It was taken
// for one with versioning until the process ended: of two writers of one COMMIT.json both might succeed.
func TestVersioningIsQueriedUntilTheStoreAnswers(t *testing.T) {
	abort := func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }
	for name, tt := range map[string]struct {
		first    http.HandlerFunc // the answer to the first two queries
		decides  bool
		requests int
	}{
		"throttled":      {refuse(503, "SlowDown"), true, 3},
		"reset":          {abort, true, 3},
		"denied":         {refuse(403, "AccessDenied"), false, 1},
		"not known":      {refuse(501, "NotImplemented"), false, 1},
		"internal error": {refuse(500, "InternalError"), true, 3},
	} {
		t.Run(name, func(t *testing.T) {
			var requests atomic.Int32
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if requests.Add(1) <= 2 {
					tt.first(w, r)
					return
				}
				fmt.Fprint(w, "<VersioningConfiguration/>")
			}))
			t.Cleanup(server.Close)
			secrets := func(name string) string {
				return map[string]string{"AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "secret"}[name]
			}
			store, err := backends.NewRegistry(Scheme()).Open(t.Context(), "s3://bucket/?endpoint="+server.URL, backends.Options{Getenv: secrets})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { store.Close() })
			if got := store.Capabilities().ConditionalCreate; got != tt.decides {
				t.Errorf("got conditional create %t, want %t", got, tt.decides)
			}
			if got := int(requests.Load()); got != tt.requests {
				t.Errorf("got %d queries, want %d", got, tt.requests)
			}
		})
	}
}
