package oss

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aliyun/aliyun-oss-go-sdk/oss"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/conformance/live"
)

// target returns the Target of URL parameters and an environment of NAME=value entries.
func target(query string, env ...string) backends.Target {
	params, err := url.ParseQuery(query)
	if err != nil {
		panic(err)
	}
	return backends.Target{Host: "bucket", Params: params, Options: backends.Options{Getenv: (&live.Server{}).Getenv(env...)}}
}

func TestEndpointRegionAndSignature(t *testing.T) {
	const hangzhou = "https://oss-cn-hangzhou.aliyuncs.com"
	for _, tt := range []struct {
		query, env       string
		endpoint, region string
		version          oss.AuthVersionType
	}{
		{"region=cn-hangzhou", "", hangzhou, "cn-hangzhou", oss.AuthV4},
		{"region=oss-cn-hangzhou", "", hangzhou, "cn-hangzhou", oss.AuthV4},
		{"", "OSS_REGION=cn-hangzhou", hangzhou, "cn-hangzhou", oss.AuthV4},
		{"region=cn-hangzhou&signature=v1", "", hangzhou, "cn-hangzhou", oss.AuthV1},
		{"region=cn-hangzhou&signature=auto", "", hangzhou, "cn-hangzhou", oss.AuthV4},
		{"endpoint=oss-cn-hangzhou-internal.aliyuncs.com", "", "https://oss-cn-hangzhou-internal.aliyuncs.com", "cn-hangzhou", oss.AuthV4},
		{"endpoint=http://oss-eu-central-1.aliyuncs.com/", "OSS_ENDPOINT=other", "http://oss-eu-central-1.aliyuncs.com", "eu-central-1", oss.AuthV4},
		{"", "OSS_ENDPOINT=oss-ap-southeast-1.aliyuncs.com", "https://oss-ap-southeast-1.aliyuncs.com", "ap-southeast-1", oss.AuthV4},
		{"endpoint=oss-accelerate.aliyuncs.com", "", "https://oss-accelerate.aliyuncs.com", "", oss.AuthV1},
		{"endpoint=oss-accelerate-overseas.aliyuncs.com", "", "https://oss-accelerate-overseas.aliyuncs.com", "", oss.AuthV1},
		{"endpoint=https://data.example.org:8443", "", "https://data.example.org:8443", "", oss.AuthV1},
		{"endpoint=data.example.org&region=cn-beijing&cname=true", "", "https://data.example.org", "cn-beijing", oss.AuthV4},
	} {
		c, err := parse(target(tt.query, tt.env))
		if err != nil || c.endpoint != tt.endpoint || c.region != tt.region || c.version != tt.version || c.cname != strings.Contains(tt.query, "cname") {
			t.Errorf("%q with %q: got %+v, %v; want %s, %s, %s", tt.query, tt.env, c, err, tt.endpoint, tt.region, tt.version)
		}
	}
}

func TestFilesSayWhereTheBucketIs(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"OSS_ENDPOINT": "https://files.example.org\n", "OSS_REGION": "cn-beijing\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	in := target("", "OSS_ENDPOINT=env.example.org")
	in.Secrets = dir
	if c, err := parse(in); err != nil || c.endpoint != "https://files.example.org" || c.region != "cn-beijing" {
		t.Errorf("got %+v, %v; want what the files say", c, err)
	}
}

func TestURLErrors(t *testing.T) {
	for _, tt := range []struct{ url, words string }{
		{"oss://bucket/x", "the bucket's location is unknown"},
		{"oss:///x?region=cn-hangzhou", "starts with the bucket"},
		{"oss://UPPER/x?region=cn-hangzhou", "starts with the bucket"},
		{"oss://me@bucket/x?region=cn-hangzhou", "starts with the bucket"},
		{"oss://bucket:99/x?region=cn-hangzhou", "starts with the bucket"},
		{"oss://bucket/x?region=cn/hangzhou", "looks like cn-hangzhou"},
		{"oss://bucket/x?endpoint=ftp://host", "https://host:port"},
		{"oss://bucket/x?endpoint=https://host/path", "https://host:port"},
		{"oss://bucket/x?endpoint=https://a:b@host", "https://host:port"},
		{"oss://bucket/x?endpoint=host&signature=v4", "requires the region"},
		{"oss://bucket/x?region=cn-hangzhou&signature=v2", "auto, v1 or v4"},
		{"oss://bucket/x?region=cn-hangzhou&anonymous=maybe", "true or false"},
		{"oss://bucket/x?region=cn-hangzhou&ca-bundle=/nowhere", "cannot read"},
		{"oss://bucket/x?region=cn-hangzhou&access_key=a", "Set OSS_ACCESS_KEY_ID"},
	} {
		_, err := backends.NewRegistry(Scheme()).Open(t.Context(), tt.url, backends.Options{})
		if backends.KindOf(err) != backends.Invalid || !strings.Contains(fmt.Sprint(err), tt.words) {
			t.Errorf("%s: got %v (%v), want kind invalid and %q", tt.url, err, backends.KindOf(err), tt.words)
		}
	}
}
