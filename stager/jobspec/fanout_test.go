package jobspec

import (
	"strings"
	"testing"

	"github.com/stager-dev/stager/stager/internal/golden"
)

func TestFanout(t *testing.T) {
	out, err := Fanout(FanoutOptions{
		Name: "imagenet", Namespace: "team", Source: "s3://datasets/imagenet/?region=eu-1", Destination: "file:///mnt/data/$(x)/",
		Workers: 8, Flags: []string{"--include=*.tar"}, Image: "registry.example/stager:1", Env: map[string]string{"HTTPS_PROXY": "http://proxy:3128"},
		Secret: "s3-ro", SecretKeys: []string{"akId:AWS_ACCESS_KEY_ID", "akSecret:AWS_SECRET_ACCESS_KEY"}, DestinationSecret: "dst-rw", Claims: map[string]string{"results": "/mnt/data"}, User: 65532,
	})
	if err != nil {
		t.Fatal(err)
	}
	decodes(t, out)
	golden.File(t, "testdata/golden/fanout.yaml", out)
}

// A commit of Git is kept in the temporary directory, and may be larger than other files there.
func TestFanoutOfGitHasRoom(t *testing.T) {
	for source, limited := range map[string]bool{"s3://a/": true, "git+https://host/repo": false} {
		out, err := Fanout(FanoutOptions{Name: "x", Source: source, Destination: "s3://b/", Workers: 2, User: 1})
		if err != nil {
			t.Fatal(err)
		}
		decodes(t, out)
		if strings.Contains(string(out), "sizeLimit") != limited {
			t.Errorf("%s: the temporary directory is limited: %t, want %t", source, !limited, limited)
		}
	}
}

func TestFanoutRefuses(t *testing.T) {
	for _, tt := range []struct {
		change func(*FanoutOptions)
		want   string
	}{
		{func(o *FanoutOptions) { o.Workers = 0 }, "0 workers"},
		{func(o *FanoutOptions) { o.Workers = 841 }, "between 1 and 840"},
		{func(o *FanoutOptions) { o.User = 0 }, "no root"},
		{func(o *FanoutOptions) { o.SecretKeys = []string{"a:AWS_ACCESS_KEY_ID"} }, "keys of a Secret: there is no Secret; name it too"},
		{func(o *FanoutOptions) { o.Secret, o.SecretKeys = "s", []string{"a/b:X"} }, "keys of a Secret: entry 1 is not KEY:NAME"},
		{func(o *FanoutOptions) { o.Claims = map[string]string{"c": "data"} }, "claim c"},
		{func(o *FanoutOptions) { o.Claims = map[string]string{"c": "/"} }, "claim c"},
	} {
		o := FanoutOptions{Name: "x", Source: "s3://a/", Destination: "s3://b/", Workers: 2, User: 1}
		tt.change(&o)
		if _, err := Fanout(o); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("Fanout(%+v) = %v, want %q", o, err, tt.want)
		}
	}
}
