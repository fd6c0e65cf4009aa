package sftp

import (
	"context"
	"strings"
	"testing"

	"github.com/stager-dev/stager/backends"
)

func TestURLs(t *testing.T) {
	const pin = "SHA256:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
	for _, tt := range []struct {
		url     string
		want    settings
		refused string
	}{
		{"sftp://server", settings{address: "server:22", conns: 4, root: "/"}, ""},
		{"sftp://me@server:2222/a//b/", settings{address: "server:2222", user: "me", conns: 4, root: "/", base: "a/b"}, ""},
		{"sftp://me@server/~/a", settings{address: "server:22", user: "me", conns: 4, base: "a"}, ""},
		{"sftp://me@server/~", settings{address: "server:22", user: "me", conns: 4}, ""},
		{"sftp://me@server/~a/../b", settings{address: "server:22", user: "me", conns: 4, root: "/", base: "b"}, ""},
		{"sftp://[::1]/a?conns=2", settings{address: "[::1]:22", conns: 2, root: "/", base: "a"}, ""},
		{"sftp://server/a?hostkey=" + pin, settings{address: "server:22", pinned: pin, conns: 4, root: "/", base: "a"}, ""},
		{"sftp://server/a?hostkey=" + strings.Replace(pin, "AA", "+A", 1), settings{address: "server:22", pinned: strings.Replace(pin, "AA", "+A", 1), conns: 4, root: "/", base: "a"}, ""},
		{"sftp://server/a?hostkey=MD5:00", settings{}, "must be a fingerprint"},
		{"sftp:///a", settings{}, "starts with the server"},
		{"sftp://server/a?conns=17", settings{}, "a number from 1 to 16"},
		{"sftp://me:secret@server/a", settings{}, "credentials do not belong in a URL"},
		{"sftp://server/a?password=secret", settings{}, "supported: hostkey, conns"},
	} {
		var got settings
		scheme := Scheme()
		scheme.Open = func(_ context.Context, target backends.Target) (_ backends.Opened, err error) {
			got, err = parse(target)
			return backends.Opened{Backend: newBackend(&dialer{settings: got})}, err
		}
		_, err := backends.NewRegistry(scheme).Open(t.Context(), tt.url, backends.Options{})
		if tt.refused != "" {
			if backends.KindOf(err) != backends.Invalid || !strings.Contains(err.Error(), tt.refused) || strings.Contains(err.Error(), "secret@") {
				t.Errorf("%s: got %v, want kind invalid with %q", tt.url, err, tt.refused)
			}
			continue
		}
		if err != nil || got != tt.want {
			t.Errorf("%s: got %+v, %v; want %+v", tt.url, got, err, tt.want)
		}
	}
}
