package smb

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	smb2 "github.com/cloudsoda/go-smb2"

	"github.com/stager-dev/stager/backends"
)

func TestURLs(t *testing.T) {
	for _, tt := range []struct {
		url     string
		want    settings
		prefix  string
		refused string
	}{
		{"smb://server/share", settings{address: "server:445", host: "server", share: "share", signing: true, mapped: true}, "", ""},
		{"smb://alice@server:4450/share/a/b/", settings{address: "server:4450", host: "server", share: "share", user: "alice", signing: true, mapped: true}, "a/b", ""},
		{"smb://CORP;alice@server/share/a?signing=off&auth=ntlm", settings{address: "server:445", host: "server", share: "share", user: "alice", domain: "CORP", auth: "ntlm", mapped: true}, "a", ""},
		{"smb://[::1]/share/?mapchars=off", settings{address: "[::1]:445", host: "::1", share: "share", signing: true}, "", ""},
		{"smb://[::1]:1445/share/", settings{address: "[::1]:1445", host: "::1", share: "share", signing: true, mapped: true}, "", ""},
		{"smb://server", settings{}, "", "must contain a server and a share"},
		{"smb:///share", settings{}, "", "must contain a server and a share"},
		{"smb://server/a%5Cb", settings{}, "", `has "/" between`},
		{"smb://server/share?signing=maybe", settings{}, "", "on or off"},
		{"smb://server/share?auth=basic", settings{}, "", "ntlm or kerberos"},
		{"smb://alice:secret@server/share", settings{}, "", "credentials do not belong in a URL"},
		{"smb://server/share?password=secret", settings{}, "", "unknown parameter"},
	} {
		var got backends.Opened
		scheme := Scheme()
		scheme.Open = func(ctx context.Context, target backends.Target) (_ backends.Opened, err error) {
			got, err = open(ctx, target)
			return got, err
		}
		_, err := backends.NewRegistry(scheme).Open(t.Context(), tt.url, backends.Options{})
		if tt.refused != "" {
			if backends.KindOf(err) != backends.Invalid || !strings.Contains(err.Error(), tt.refused) || strings.Contains(err.Error(), "secret@") {
				t.Errorf("%s: %v, want kind invalid with %q", tt.url, err, tt.refused)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", tt.url, err)
			continue
		}
		if is := got.Backend.(*Backend).pool.dialer.settings; is != tt.want || got.Prefix != tt.prefix {
			t.Errorf("%s: got %+v with prefix %q, want %+v with %q", tt.url, is, got.Prefix, tt.want, tt.prefix)
		}
	}
}

func TestSlashesTooMany(t *testing.T) {
	for path, want := range map[string]string{"share": "", "share/": "", "share//a//b/": "a/b", "share/../../a": "a", "share/a/./b": "a/b"} {
		got, err := Scheme().Open(t.Context(), backends.Target{Host: "server", Path: path})
		if err != nil || got.Prefix != want {
			t.Errorf("prefix of %q = %q, %v; want %q", path, got.Prefix, err, want)
		}
	}
}

func TestCredentialSources(t *testing.T) {
	secrets := t.TempDir()
	for name, text := range map[string]string{"username": "file-user\n", "password": " file password \r\n"} {
		if err := os.WriteFile(filepath.Join(secrets, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	getenv := func(name string) string {
		return map[string]string{"SMB_USERNAME": "env-user", "SMB_PASSWORD": "env password", "SMB_DOMAIN": "ENV"}[name]
	}
	for _, tt := range []struct {
		what string
		d    *dialer
		want string
	}{
		{"environment", &dialer{opts: backends.Options{Getenv: getenv}}, "ENV;env-user:env password"},
		{"files before environment", &dialer{opts: backends.Options{Getenv: getenv, Secrets: secrets}}, "ENV;file-user: file password "},
		{"the URL before both", &dialer{settings: settings{user: "url-user", domain: "URL"}, opts: backends.Options{Getenv: getenv, Secrets: secrets}}, "URL;url-user: file password "},
	} {
		how, err := tt.d.initiator(t.Context())
		if err != nil {
			t.Errorf("%s: %v", tt.what, err)
			continue
		}
		ntlm := how.(*smb2.NTLMInitiator)
		if got := fmt.Sprintf("%s;%s:%s", ntlm.Domain, ntlm.User, ntlm.Password); got != tt.want {
			t.Errorf("%s: got %q, want %q", tt.what, got, tt.want)
		}
	}
}

func TestKerberosNotConfigured(t *testing.T) {
	dir := t.TempDir()
	for _, tt := range []struct{ auth, env, words string }{
		{"", "", "no user and password were found"},
		{"kerberos", "KRB5CCNAME=" + dir + "/none", "there is no keytab and no ticket"},
		{"", "KRB5_CLIENT_KTNAME=FILE:" + dir + "/none", "there is no keytab and no ticket"},
		{"", "KRB5CCNAME=KCM:", "type KCM"},
	} {
		d := &dialer{settings: settings{host: "server", auth: tt.auth}, opts: backends.Options{Getenv: func(name string) string {
			if n, v, _ := strings.Cut(tt.env, "="); n == name {
				return v
			}
			return ""
		}}}
		_, err := d.initiator(t.Context())
		if backends.KindOf(err) != backends.Permission || !strings.Contains(fmt.Sprint(err), tt.words) {
			t.Errorf("auth %q with %q: %v, want kind permission with %q", tt.auth, tt.env, err, tt.words)
		}
	}
}
