package ossfake

import (
	"encoding/xml"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stager-dev/stager/e2e/servers/fake"
)

// The example of Alibaba's description of signature V1.
func TestSignatureV1IsThatOfTheDescription(t *testing.T) {
	r := httptest.NewRequest(http.MethodPut, "http://oss-example.oss-cn-hangzhou.aliyuncs.com/nelson", nil)
	for name, value := range map[string]string{
		"Content-Md5": "ODBGOERFMDMzQTczRUY3NUE3NzA5QzdFNUYzMDQxNEM=", "Content-Type": "text/html",
		"Date": "Thu, 17 Nov 2005 18:49:58 GMT", "X-OSS-Meta-Author": "foo@bar.com", "X-OSS-Magic": "abracadabra",
	} {
		r.Header.Set(name, value)
	}
	if got, want := signV1("OtxrzxIsfpFjA7SwPzILwy8Bw21TLhquhboDYROV", r, "oss-example", "nelson"), "26NBxoKdsyly4EDv6inkoDft/yA="; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// The example that the tests of Alibaba's own clients share.
func TestSignatureV4IsThatOfAlibabasClients(t *testing.T) {
	for _, tt := range []struct {
		at          int64
		token, want string
	}{
		{1702743657, "", "e21d18daa82167720f9b1047ae7e7f1ce7cb77a31e8203a7d5f4624fa0284afe"},
		{1702784856, "token", "b94a3f999cf85bcdc00d332fbd3734ba03e48382c36fa4d5af5df817395bd9ea"},
	} {
		q := url.Values{"param1": {"value1"}, "+param1": {"value3"}, "|param1": {"value4"}, "+param2": {""}, "|param2": {""}, "param2": {""}}
		r := httptest.NewRequest(http.MethodPut, "http://bucket.oss-cn-hangzhou.aliyuncs.com/1234%2B-/123/1.txt?"+q.Encode(), nil)
		stamp := time.Unix(tt.at, 0).UTC().Format(isoTime)
		for name, value := range map[string]string{
			"x-oss-head1": "value", "abc": "value", "ZAbc": "value", "XYZ": "value", "content-type": "text/plain",
			"x-oss-content-sha256": "UNSIGNED-PAYLOAD", "x-oss-date": stamp,
		} {
			r.Header.Set(name, value)
		}
		if tt.token != "" {
			r.Header.Set("x-oss-security-token", tt.token)
		}
		s := &Server{Region: "cn-hangzhou"}
		v, err := s.parseV4(r, "Credential=ak/"+stamp[:8]+"/cn-hangzhou/oss/aliyun_v4_request,Signature="+tt.want)
		if err != nil {
			t.Fatal(err)
		}
		if got := v.sign("sk", r, "bucket", "1234+-/123/1.txt"); got != tt.want {
			t.Errorf("at %d: got %s, want %s", tt.at, got, tt.want)
		}
	}
}

func start(t *testing.T) *Server {
	t.Helper()
	return startAt(t, time.Now)
}

// startAt starts a server whose clock is now.
func startAt(t *testing.T, now func() time.Time) *Server {
	t.Helper()
	s, err := Start(Options{Options: fake.Options{Dir: t.TempDir(), Buckets: []string{"test", "open"}, Public: []string{"open"}}, Now: now})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// request is signed as by a client that knows the rules.
func (s *Server) request(t *testing.T, version, method, bucket, key, query, body string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, s.Endpoint+"/"+bucket+"/"+escape(key)+query, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	s.sign(t, r, version, bucket, key)
	return r
}

func (s *Server) sign(t *testing.T, r *http.Request, version, bucket, key string) {
	t.Helper()
	now := s.now().UTC()
	if r.Header.Get("Date") == "" {
		r.Header.Set("Date", now.Format(http.TimeFormat))
	}
	if version == "v1" {
		r.Header.Set("Authorization", "OSS "+s.AccessKey+":"+signV1(s.SecretKey, r, bucket, key))
		return
	}
	r.Header.Set("x-oss-content-sha256", "UNSIGNED-PAYLOAD")
	scope := "Credential=" + s.AccessKey + "/" + now.Format("20060102") + "/" + s.Region + "/oss/aliyun_v4_request,Signature="
	v, err := s.parseV4(r, scope+"x")
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "OSS4-HMAC-SHA256 "+scope+v.sign(s.SecretKey, r, bucket, key))
}

// do sends the request and returns the status and the body, or the error's code.
func do(t *testing.T, r *http.Request) (int, string, http.Header) {
	t.Helper()
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	var f failure
	if res.StatusCode >= 300 && xml.Unmarshal(text, &f) == nil {
		return res.StatusCode, f.Code, res.Header
	}
	return res.StatusCode, string(text), res.Header
}

// The clock is set: 16 minutes before five past midnight was another day, so for ten minutes
// of each night an old request was refused for its scope and not for its age.
func TestRequestIsRejectedIfSignatureDiffers(t *testing.T) {
	for _, at := range []time.Time{
		time.Date(2026, 3, 14, 12, 0, 0, 0, time.UTC),
		time.Date(2026, 3, 14, 0, 5, 0, 0, time.UTC),
		time.Date(2026, 3, 13, 23, 55, 0, 0, time.UTC),
	} {
		t.Run(at.Format("15h04"), func(t *testing.T) {
			s := startAt(t, func() time.Time { return at })
			for _, version := range []string{"v1", "v4"} {
				testSignature(t, s, version, at)
			}
		})
	}
}

func testSignature(t *testing.T, s *Server, version string, now time.Time) {
	t.Helper()
	for _, tt := range []struct {
		name, code string
		tamper     func(r *http.Request)
	}{
		{"as it was signed", "", func(*http.Request) {}},
		{"another key", "SignatureDoesNotMatch", func(r *http.Request) { r.URL.Path += "x"; r.URL.RawPath = "" }},
		{"another bucket", "SignatureDoesNotMatch", func(r *http.Request) { r.URL.Path = "/open/k"; r.URL.RawPath = "" }},
		{"another method", "SignatureDoesNotMatch", func(r *http.Request) { r.Method = http.MethodDelete }},
		{"one more header of OSS", "SignatureDoesNotMatch", func(r *http.Request) { r.Header.Set("x-oss-meta-a", "b") }},
		{"a content type", "SignatureDoesNotMatch", func(r *http.Request) { r.Header.Set("Content-Type", "a/b") }},
		{"an upload's part", "SignatureDoesNotMatch", func(r *http.Request) { r.URL.RawQuery = "partNumber=1&uploadId=x" }},
		{"an unknown parameter", "NotImplemented", func(r *http.Request) { r.URL.RawQuery = "acl" }},
		{"another's token", "InvalidSecurityToken", func(r *http.Request) { r.Header.Set("x-oss-security-token", "t") }},
		{"another's key", "InvalidAccessKeyId", func(r *http.Request) {
			r.Header.Set("Authorization", strings.Replace(r.Header.Get("Authorization"), s.AccessKey, "nobody", 1))
		}},
		{"an old date", "RequestTimeTooSkewed", func(r *http.Request) {
			r.Header.Set("Date", now.Add(-16*time.Minute).UTC().Format(http.TimeFormat))
		}},
		{"a date to come", "RequestTimeTooSkewed", func(r *http.Request) {
			r.Header.Set("Date", now.Add(16*time.Minute).UTC().Format(http.TimeFormat))
		}},
		{"a date a little off", "SignatureDoesNotMatch", func(r *http.Request) {
			r.Header.Set("Date", now.Add(2*time.Second).UTC().Format(http.TimeFormat))
		}},
		{"a scope of another day", map[string]string{"v4": "InvalidArgument"}[version], func(r *http.Request) {
			r.Header.Set("Authorization", strings.Replace(r.Header.Get("Authorization"), now.Format("/20060102/"), "/20260301/", 1))
		}},
		{"no signature", "AccessDenied", func(r *http.Request) { r.Header.Del("Authorization") }},
		{"a strange scheme", "AccessDenied", func(r *http.Request) { r.Header.Set("Authorization", "AWS4-HMAC-SHA256 x") }},
	} {
		r := s.request(t, version, http.MethodPut, "test", "a/k", "", "bytes")
		tt.tamper(r)
		status, code, _ := do(t, r)
		if tt.code == "" && status != http.StatusOK || tt.code != "" && code != tt.code {
			t.Errorf("%s, %s: got %d %q, want %q", version, tt.name, status, code, tt.code)
		}
	}
}

func TestPublicBucketIsReadOnlyForAnonymous(t *testing.T) {
	s := start(t)
	if status, code, _ := do(t, s.request(t, "v4", http.MethodPut, "open", "k", "", "bytes")); status != http.StatusOK {
		t.Fatal(status, code)
	}
	for _, tt := range []struct {
		method, path string
		status       int
	}{
		{http.MethodGet, "/open/k", 200},
		{http.MethodGet, "/open/?list-type=2", 200},
		{http.MethodGet, "/open/?versioning", 403},
		{http.MethodPut, "/open/k", 403},
		{http.MethodDelete, "/open/k", 403},
		{http.MethodGet, "/test/k", 403},
	} {
		r, err := http.NewRequestWithContext(t.Context(), tt.method, s.Endpoint+tt.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if status, code, _ := do(t, r); status != tt.status {
			t.Errorf("%s %s: got %d %s, want %d", tt.method, tt.path, status, code, tt.status)
		}
	}
}

func TestRangeInvalidReturnsTheWholeObject(t *testing.T) {
	s := start(t)
	do(t, s.request(t, "v4", http.MethodPut, "test", "k", "", "0123456789"))
	for _, tt := range []struct {
		text, behavior, body string
		status               int
	}{
		{"bytes=2-4", "", "234", 206},
		{"bytes=8-100", "", "89", 206},
		{"bytes=10-", "", "0123456789", 200},
		{"bytes=10-", "standard", "InvalidRange", 416},
	} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.Endpoint+"/test/k", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Range", tt.text)
		if tt.behavior != "" {
			r.Header.Set("x-oss-range-behavior", tt.behavior)
		}
		s.sign(t, r, "v4", "test", "k")
		if status, body, h := do(t, r); status != tt.status || body != tt.body || status < 300 && h.Get("x-oss-hash-crc64ecma") == "" {
			t.Errorf("%s %s: got %d %q with %v, want %d %q", tt.text, tt.behavior, status, body, h, tt.status, tt.body)
		}
	}
}

func TestUploadsAreChecked(t *testing.T) {
	s := start(t)
	_, text, _ := do(t, s.request(t, "v4", http.MethodPost, "test", "k", "?uploads", ""))
	var b struct {
		UploadID string `xml:"UploadId"`
	}
	if err := xml.Unmarshal([]byte(text), &b); err != nil {
		t.Fatal(err)
	}
	etags := make(map[string]string)
	for number, size := range map[string]int{"1": smallestPart, "2": 10, "3": 20} {
		status, code, h := do(t, s.request(t, "v4", http.MethodPut, "test", "k", "?partNumber="+number+"&uploadId="+b.UploadID, strings.Repeat(number, size)))
		if status != http.StatusOK {
			t.Fatal(status, code)
		}
		etags[number] = h.Get("ETag")
	}
	parts := func(numbers ...string) string {
		var text strings.Builder
		for _, n := range numbers {
			text.WriteString("<Part><PartNumber>" + n + "</PartNumber><ETag>" + etags[n] + "</ETag></Part>")
		}
		return "<CompleteMultipartUpload>" + text.String() + "</CompleteMultipartUpload>"
	}
	for _, tt := range []struct{ body, want string }{
		{parts("3", "1"), "InvalidPartOrder"},
		{parts("1", "1"), "InvalidPartOrder"},
		{parts("1", "2", "3"), "EntityTooSmall"},
		{parts("1", "4"), "InvalidPart"},
		{strings.Replace(parts("1", "3"), etags["3"], etags["2"], 1), "InvalidPart"},
		{"<nothing/>", "MalformedXML"},
		{parts("1", "3"), ""},
		{parts("1", "3"), "NoSuchUpload"},
	} {
		status, code, _ := do(t, s.request(t, "v4", http.MethodPost, "test", "k", "?uploadId="+b.UploadID, tt.body))
		if tt.want == "" && status != http.StatusOK || tt.want != "" && code != tt.want {
			t.Errorf("completing with %s: got %d %s, want %q", tt.body, status, code, tt.want)
		}
	}
	if _, body, _ := do(t, s.request(t, "v4", http.MethodGet, "test", "k", "", "")); body != strings.Repeat("1", smallestPart)+strings.Repeat("3", 20) {
		t.Errorf("the object has %d bytes, want those of parts 1 and 3", len(body))
	}
}
