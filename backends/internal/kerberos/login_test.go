package kerberos

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jcmturner/gokrb5/v8/keytab"

	"github.com/stager-dev/stager/backends"
)

// loginOf returns a Login with an environment of NAME=VALUE entries.
func loginOf(secrets string, env ...string) *Login {
	return New(backends.Options{Secrets: secrets, Getenv: func(name string) string {
		for _, e := range env {
			if n, v, _ := strings.Cut(e, "="); n == name {
				return v
			}
		}
		return ""
	}}, "", "")
}

func keysOf(t *testing.T, user, realm string) string {
	t.Helper()
	tab := keytab.New()
	if err := tab.AddEntry(user, realm, "password", time.Now(), 1, 18); err != nil {
		t.Fatal(err)
	}
	b, err := tab.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestFilesUnusable(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	conf := "KRB5_CONFIG=" + file("krb5.conf", "[libdefaults]\ndefault_realm = R\nudp_preference_limit = 1\n[realms]\nR = {\n kdc = 127.0.0.1:1\n}\n")
	nobody := "KRB5_CONFIG=" + file("nobody.conf", "[libdefaults]\ndefault_realm = R\n[realms]\nR = {\n}\n")
	keys := "KRB5_CLIENT_KTNAME=FILE:" + file("keytab", keysOf(t, "stager", "R"))
	broken := file("broken", "neither keys nor tickets")
	for _, tt := range []struct {
		env   []string
		kind  backends.Kind
		words string
	}{
		{[]string{conf, "KRB5CCNAME=" + dir + "/none"}, backends.Permission, "there is no keytab and no ticket"},
		{[]string{conf, "KRB5_CLIENT_KTNAME=" + dir + "/none"}, backends.Permission, "there is no keytab and no ticket"},
		{[]string{conf, "KRB5CCNAME=KEYRING:persistent:0"}, backends.Permission, "kinit -c FILE:"},
		{[]string{conf, "KRB5CCNAME=KCM:"}, backends.Permission, "type KCM"},
		{[]string{conf, "KRB5CCNAME=DIR:/tmp/tickets"}, backends.Permission, "type DIR"},
		{[]string{conf, "KRB5CCNAME=" + broken}, backends.Permission, "cannot read the ticket cache " + broken},
		{[]string{conf, "KRB5CCNAME=" + file("short", "\x05\x04\x00")}, backends.Permission, "ticket cache"},
		{[]string{conf, "KRB5_CLIENT_KTNAME=" + broken}, backends.Permission, "cannot read the keytab " + broken},
		{[]string{conf, "KRB5_CLIENT_KTNAME=" + file("empty", "\x05\x02")}, backends.Permission, "keytab"},
		{[]string{"KRB5_CONFIG=" + dir + "/none", keys}, backends.Invalid, "KRB5_CONFIG"},
		{[]string{nobody, keys}, backends.Invalid, "has no Kerberos server"},
		{[]string{conf, keys}, backends.Unavailable, "no Kerberos server of the realm responds"},
	} {
		l := loginOf("", tt.env...)
		err := l.Check()
		if err == nil {
			_, err = l.Client()
		}
		if backends.KindOf(err) != tt.kind || !strings.Contains(fmt.Sprint(err), tt.words) {
			t.Errorf("%q: got %v (%v), want kind %v and %q", tt.env, err, backends.KindOf(err), tt.kind, tt.words)
		}
	}
}

func TestSecretsComeFirst(t *testing.T) {
	secrets := t.TempDir()
	l := loginOf(secrets, "KRB5_CLIENT_KTNAME=/env/keytab", "KRB5CCNAME=FILE:/env/cache")
	for _, tt := range []struct {
		add, path string
		isKeytab  bool
	}{
		{"", "/env/keytab", true},
		{"krb5cc", "/env/keytab", true},
		{"krb5.keytab", secrets + "/krb5.keytab", true},
	} {
		if tt.add != "" {
			if err := os.WriteFile(filepath.Join(secrets, tt.add), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if path, isKeytab, err := l.source(); path != tt.path || isKeytab != tt.isKeytab || err != nil || !l.Named() {
			t.Errorf("with %q among the secrets: %s, keytab %v, %v; want %s, %v", tt.add, path, isKeytab, err, tt.path, tt.isKeytab)
		}
	}
	if loginOf("").Named() {
		t.Error("nothing is named, and Named says so")
	}
}

func TestErrorsAreTranslated(t *testing.T) {
	for _, tt := range []struct {
		text  string
		kind  backends.Kind
		words string
	}{
		{"KRB Error: (37) KRB_AP_ERR_SKEW Clock skew too great", backends.Permission, "clocks"},
		{"KRB Error: (32) KRB_AP_ERR_TKT_EXPIRED Ticket expired", backends.Permission, "kinit"},
		{"cannot login, no user credentials available and no valid existing session", backends.Permission, "kinit"},
		{"KDC_ERR_PREAUTH_FAILED Pre-authentication information was invalid", backends.Permission, "again"},
		{"requesting: when requesting for nn/h: KRB Error: (7) KDC_ERR_S_PRINCIPAL_UNKNOWN Server not found", backends.Permission, "no service nn/h:"},
		{"[Root cause: Networking_Error] error communicating with KDC EXAMPLE.ORG: …", backends.Unavailable, "no Kerberos server"},
		{"something else", backends.Permission, "something else"},
	} {
		cause := errors.New(tt.text)
		err := Explain(cause)
		if backends.KindOf(err) != tt.kind || !strings.Contains(err.Error(), tt.words) || !errors.Is(err, cause) {
			t.Errorf("%q: %v (%v), want kind %v and %q", tt.text, err, backends.KindOf(err), tt.kind, tt.words)
		}
	}
}
