package ftp

import (
	"context"
	"strings"
	"testing"

	"github.com/stager-dev/stager/backends"
)

func TestURLs(t *testing.T) {
	for _, tt := range []struct {
		url     string
		want    settings
		refused string
	}{
		{"ftp://server", settings{address: "server:21", conns: 4}, ""},
		{"ftp://me@server:2121/a//b/", settings{address: "server:2121", user: "me", conns: 4, base: "a/b"}, ""},
		{"ftp://server//a/b", settings{address: "server:21", conns: 4, absolute: true, base: "a/b"}, ""},
		{"ftp://server/%2Fa", settings{address: "server:21", conns: 4, absolute: true, base: "a"}, ""},
		{"ftp://[::1]/../a?conns=2", settings{address: "[::1]:21", conns: 2, base: "a"}, ""},
		{"ftps://server/a", settings{address: "server:21", encryption: explicit, conns: 4, base: "a"}, ""},
		{"ftps://server:990/a", settings{address: "server:990", encryption: implicit, conns: 4, base: "a"}, ""},
		{"ftps://server/a?tls=implicit", settings{address: "server:990", encryption: implicit, conns: 4, base: "a"}, ""},
		{"ftps://server:990/a?tls=explicit", settings{address: "server:990", encryption: explicit, conns: 4, base: "a"}, ""},
		{"ftp:///a", settings{}, "starts with the server"},
		{"ftp://server/a?conns=65", settings{}, "a number from 1 to 64"},
		{"ftp://server/a?tls=explicit", settings{}, `unknown parameter "tls" of ftp URLs; supported: conns`},
		{"ftps://server/a?tls=none", settings{}, "explicit or implicit"},
		{"ftps://server/a?passive=no", settings{}, "supported: conns, tls, ca-bundle"},
		{"ftp://server/a%0D%0ADELE%20b", settings{}, "cannot contain line breaks"},
		{"ftp://a%0Ab@server/", settings{}, "cannot contain line breaks"},
		{"ftp://me:secret@server/a", settings{}, "credentials do not belong in a URL"},
	} {
		var got settings
		schemes := Schemes()
		for i := range schemes {
			schemes[i].Open = func(_ context.Context, target backends.Target) (_ backends.Opened, err error) {
				got, err = parse(target)
				return backends.Opened{Backend: &server{pool: newPool(&dialer{settings: got})}}, err
			}
		}
		_, err := backends.NewRegistry(schemes...).Open(t.Context(), tt.url, backends.Options{})
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
