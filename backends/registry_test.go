package backends_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/mem"
)

// registry knows two protocols. got receives the target of the last open.
func registry(got *backends.Target) *backends.Registry {
	m := mem.New()
	m.Put("models/m.bin", []byte("12345"))
	other := backends.Scheme{
		Name: "other", Example: "other://bucket/path/", Credentials: "They come from OTHER_KEY.",
		Params: []backends.Param{{Name: "region"}, {Name: "endpoint"}},
		Open: func(_ context.Context, t backends.Target) (backends.Opened, error) {
			if got != nil {
				*got = t
			}
			return backends.Opened{Backend: m, Prefix: t.Path}, nil
		},
	}
	revised := other
	revised.Name, revised.Revision = "revised", true
	return backends.NewRegistry(m.Scheme(), other, revised)
}

func TestURLMeaning(t *testing.T) {
	for _, tt := range []struct{ url, host, user, path, region string }{
		{"other://bucket", "bucket", "", "", ""},
		{"other://bucket/", "bucket", "", "", ""},
		{"other://bucket/a/b/", "bucket", "", "a/b/", ""},
		{"other://me@bucket:99/a?region=eu-1", "bucket:99", "me", "a", "eu-1"},
		{"other://bucket/a b/c", "bucket", "", "a b/c", ""},
		{"other://bucket/a%20b%25%3F%23", "bucket", "", "a b%?#", ""},
		{"other://bucket/run#3/x#y?region=a#b", "bucket", "", "run#3/x#y", "a#b"},
		{"other:///a", "", "", "a", ""},
		{"other://bucket/me@home", "bucket", "", "me@home", ""},
		{"other://bucket:99/me%40home", "bucket:99", "", "me@home", ""},
		{"revised://git.example:99/repo@v1", "git.example:99", "", "repo@v1", ""},
		{"revised://[::1]:99/repo@v1", "[::1]:99", "", "repo@v1", ""},
	} {
		var got backends.Target
		s, err := registry(&got).Open(t.Context(), tt.url, backends.Options{})
		if err != nil {
			t.Errorf("%s: %v", tt.url, err)
			continue
		}
		if got.Host != tt.host || got.User != tt.user || got.Path != tt.path || got.Params.Get("region") != tt.region {
			t.Errorf("%s means %+v, want %+v", tt.url, got, tt)
		}
		if strings.Contains(s.Name(), "region") {
			t.Errorf("%s is named %s, want no parameters", tt.url, s.Name())
		}
	}
}

func TestURLErrors(t *testing.T) {
	for _, tt := range []struct{ url, words string }{
		{"", "mem://test/path or other://bucket/path/"},
		{"/mnt/data", "write a local path as file:///path"},
		{"ftp://x/y", `unknown scheme "ftp"; supported: mem, other, revised`},
		{"other://b/x?regio=1", `unknown parameter "regio" of other URLs; supported: region, endpoint`},
		{"mem://b/x?region=1", "supported: none"},
		{"other://b/x?region=1&region=2", `"region" appears 2 times`},
		{"other://b/x?secret_key=hunter2", "Credentials do not belong in a URL. They come from OTHER_KEY."},
		{"other://b/x?Auth-Token=hunter2", "Credentials do not belong in a URL. They come from OTHER_KEY."},
		{"other://user:hunter2@b/x", "remove the password. They come from OTHER_KEY."},
		{"other://user:hunter2@b/100%", "%25 for %"},
		{"other://user:hun/ter2@b/x", "cannot parse"},
		{"other://git.example:12/hunter2@b/x", "may end a password"},
		{"revised://user:12/hunter2@b/x", "may end a password"},
		{"other://user:12/hunter2@b/x", "may end a password"},
		{"other://b/x?region=%zz&hunter2", "?name=value&name=value"},
		{"user:hunter2@other://b/x", "unknown scheme; supported:"},
		{"other://b/x?pass:hunter2", "unknown parameter of other URLs"},
	} {
		err := registry(nil).Check(tt.url)
		if backends.KindOf(err) != backends.Invalid || !strings.Contains(fmt.Sprint(err), tt.words) {
			t.Errorf("%s: got %v, want kind invalid and %q", tt.url, err, tt.words)
		}
		if strings.Contains(fmt.Sprint(err), "hunter2") || strings.Contains(fmt.Sprint(err), "ter2") {
			t.Errorf("%s: the error tells the password: %v", tt.url, err)
		}
	}
}

// Whatever a password consists of, no error may reveal any of it.
func FuzzErrorsHidePasswords(f *testing.F) {
	for _, p := range []string{"", "@", "/", "?", "#", "%", "%41", ":", "[", " ", "\x00", "&", "=", "://", "é", "?a=b"} {
		f.Add(p, "/path")
		f.Add("tail", "/"+p)
	}
	f.Fuzz(func(t *testing.T, password, path string) {
		const mark = "Zq9X"
		if strings.Contains(path, mark) {
			return // the path itself contains the mark
		}
		for _, url := range []string{
			"other://user:" + mark + password + "@bucket" + path,
			"other://bucket" + path + "?token=" + mark + password,
			"other://bucket" + path + "?region=" + mark + password + "&nothing=1",
			"user:" + mark + password + "@other://bucket" + path,
			"ftp://user:" + mark + password + "@host" + path,
		} {
			s, err := registry(nil).Open(t.Context(), url, backends.Options{})
			if err != nil && strings.Contains(err.Error(), mark) {
				t.Errorf("%q: the error tells the password: %v", url, err)
			}
			if err == nil && !strings.Contains(path, "?") && strings.Contains(s.Name(), mark) {
				t.Errorf("%q: the name tells the password: %v", url, s.Name())
			}
		}
	})
}

func TestSchemesOfOneNamePanic(t *testing.T) {
	defer func() {
		if r := recover(); r == nil {
			t.Error("two schemes of one name were registered")
		}
	}()
	backends.NewRegistry(mem.New().Scheme(), mem.New().Scheme())
}

func TestSelfOfURLs(t *testing.T) {
	for _, tt := range []struct {
		url, parent string
		found       bool
	}{
		{"other://b/models/m.bin", "other://b/models", true},
		{"other://b/models/m.bin/", "", false}, // it names a directory
		{"other://b/models", "", false},
		{"other://b/", "", false},
		{"other://b", "", false},
	} {
		s, err := registry(nil).Open(t.Context(), tt.url, backends.Options{})
		if err != nil {
			t.Fatal(err)
		}
		parent, obj, err := s.Self(t.Context())
		if !tt.found {
			if backends.KindOf(err) != backends.NotExist {
				t.Errorf("%s: got %v, %v; want kind not-exist", tt.url, obj, err)
			}
			continue
		}
		if err != nil || obj.Key != "m.bin" || obj.Size != 5 || parent.Name() != tt.parent {
			t.Errorf("%s: got %+v, %v in %s; want m.bin in %s", tt.url, obj, err, parent.Name(), tt.parent)
		}
		if got, _, err := parent.ReadAll(t.Context(), obj.Key, 10); string(got) != "12345" {
			t.Errorf("%s reads %q, %v", tt.url, got, err)
		}
	}
}

// NFS sends a request when it is opened. A job that started during a restart of the server failed
// at once, while running jobs waited.
func TestOpenRetriesLikeOtherCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		comesBack := time.Now().Add(20 * time.Second)
		tries := 0
		r := backends.NewRegistry(backends.Scheme{Name: "late", Open: func(ctx context.Context, _ backends.Target) (backends.Opened, error) {
			if tries++; tries == 1 {
				<-ctx.Done() // a silent server
				return backends.Opened{}, context.Cause(ctx)
			}
			if time.Now().Before(comesBack) {
				return backends.Opened{}, backends.Errorf(backends.Unavailable, "open", "", "connection refused")
			}
			return backends.Opened{Backend: mem.New()}, nil
		}})
		opts := backends.Options{StallAfter: 5 * time.Second, RetryFor: time.Minute}
		if _, err := r.Open(t.Context(), "late://host/", opts); err != nil || tries < 4 {
			t.Errorf("after %d tries: %v", tries, err)
		}
		tries, comesBack = 0, time.Now().Add(time.Hour)
		start := time.Now()
		_, err := r.Open(t.Context(), "late://host/", opts)
		if took := time.Since(start); backends.KindOf(err) != backends.Unavailable || took > time.Minute+5*time.Second {
			t.Errorf("a server that stays away: %v after %v, want kind unavailable within the patience", err, took)
		}
	})
}
