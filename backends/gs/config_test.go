package gs

import (
	"net/url"
	"testing"

	"github.com/stager-dev/stager/backends"
)

func TestEndpoint(t *testing.T) {
	for _, tt := range []struct {
		params    string
		env       map[string]string
		want      string
		anonymous bool
	}{
		{"", nil, "https://storage.googleapis.com", false},
		{"anonymous=true", nil, "https://storage.googleapis.com", true},
		{"endpoint=http://host:1/", nil, "http://host:1", false},
		{"endpoint=host", nil, "https://host", false},
		{"", map[string]string{"STORAGE_EMULATOR_HOST": "localhost:4443"}, "http://localhost:4443", true},
		{"", map[string]string{"STORAGE_EMULATOR_HOST": "https://localhost:4443"}, "https://localhost:4443", true},
		{"", map[string]string{"CLOUDSDK_API_ENDPOINT_OVERRIDES_STORAGE": "https://storage-x.p.googleapis.com/storage/v1/"}, "https://storage-x.p.googleapis.com", false},
		{"endpoint=ftp://host", nil, "", false},
		{"endpoint=http://user@host", nil, "", false},
		{"anonymous=perhaps", nil, "", false},
		{"user-project=a/b", nil, "", false},
	} {
		params, err := url.ParseQuery(tt.params)
		if err != nil {
			t.Fatal(err)
		}
		target := backends.Target{Host: "bucket", Params: params, Options: backends.Options{Getenv: func(name string) string { return tt.env[name] }}}
		got, err := parse(target)
		switch {
		case tt.want == "":
			if backends.KindOf(err) != backends.Invalid {
				t.Errorf("%q: got %v, want kind invalid", tt.params, err)
			}
		case err != nil || got.endpoint.String() != tt.want || got.anonymous != tt.anonymous:
			t.Errorf("%q %v: got %v, anonymous %t, %v; want %s, anonymous %t", tt.params, tt.env, got.endpoint, got.anonymous, err, tt.want, tt.anonymous)
		}
	}
}

func TestBucketNames(t *testing.T) {
	for host, ok := range map[string]bool{
		"bucket": true, "my_bucket-1": true, "example.com": true, "ab": false, "": false, "Bucket": false, "bucket:80": false, "-bucket": false,
	} {
		if _, err := open(t.Context(), backends.Target{Host: host, Params: make(url.Values)}); (err == nil) != ok {
			t.Errorf("bucket %q: %v, want success %t", host, err, ok)
		}
	}
}

func TestTemporaryNames(t *testing.T) {
	for key, want := range map[string]bool{
		temporaryName("a/b", "ABCDEFGHIJKLMNOPQRSTUVWXYZ"): true, "a.stager-tmp-ABC": false, ".stager-tmp-claim-x": false, "a/b": false,
	} {
		if got := isTemporary(key); got != want {
			t.Errorf("isTemporary(%q) = %t, want %t", key, got, want)
		}
	}
}
