package az

import (
	"net/url"
	"strings"
	"testing"

	"github.com/stager-dev/stager/backends"
)

// environ returns an environment of NAME=VALUE pairs.
func environ(pairs ...string) func(string) string {
	return func(name string) string {
		for _, p := range pairs {
			if n, v, _ := strings.Cut(p, "="); n == name {
				return v
			}
		}
		return ""
	}
}

// target returns the Target of a URL.
func target(t *testing.T, raw string, env ...string) backends.Target {
	t.Helper()
	u, err := url.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	return backends.Target{
		Scheme: u.Scheme, Host: u.Host, User: u.User.Username(), Path: strings.TrimPrefix(u.Path, "/"), Params: u.Query(),
		Options: backends.Options{Getenv: environ(env...)},
	}
}

func TestURLsNameAccountAndContainer(t *testing.T) {
	const text = "AZURE_STORAGE_CONNECTION_STRING=DefaultEndpointsProtocol=https;AccountName=linked;AccountKey=a2V5;EndpointSuffix=core.chinacloudapi.cn"
	for _, tt := range []struct {
		url                          string
		env                          []string
		account, container, endpoint string
	}{
		{"az://data/a/?account=mine", nil, "mine", "data", "https://mine.blob.core.windows.net"},
		{"az://data/", []string{"AZURE_STORAGE_ACCOUNT_NAME=mine"}, "mine", "data", "https://mine.blob.core.windows.net"},
		{"az://data/", []string{"AZURE_STORAGE_ACCOUNT=mine"}, "mine", "data", "https://mine.blob.core.windows.net"},
		{"az://$web/", []string{text}, "linked", "$web", "https://linked.blob.core.chinacloudapi.cn"},
		{"az://data/?account=other", []string{text}, "other", "data", "https://other.blob.core.windows.net"},
		{"abfss://data@mine.dfs.core.windows.net/a/", nil, "mine", "data", "https://mine.blob.core.windows.net"},
		{"abfss://data@mine.dfs.core.usgovcloudapi.net/a/", []string{"AZURE_STORAGE_ACCOUNT=other"}, "mine", "data", "https://mine.blob.core.usgovcloudapi.net"},
		{"az://data/?endpoint=mine.blob.core.windows.net", nil, "mine", "data", "https://mine.blob.core.windows.net"},
		{"az://data/?endpoint=http://127.0.0.1:10000/emulated", nil, "emulated", "data", "http://127.0.0.1:10000/emulated"},
		{"az://data/?endpoint=http://127.0.0.1:10000&account=emulated", nil, "emulated", "data", "http://127.0.0.1:10000/emulated"},
		{"az://", []string{"AZURE_STORAGE_ACCOUNT_NAME=mine"}, "mine", "", "https://mine.blob.core.windows.net"},
	} {
		got, err := parse(target(t, tt.url, tt.env...))
		if err != nil || got.account != tt.account || got.container != tt.container || got.endpoint != tt.endpoint {
			t.Errorf("%s with %q = %+v, %v; want account %s, container %s at %s", tt.url, tt.env, got, err, tt.account, tt.container, tt.endpoint)
		}
	}
}

func TestURLsThatNameNoContainerAreRejected(t *testing.T) {
	for _, tt := range []struct {
		url   string
		env   []string
		words string
	}{
		{"az://data/", nil, "set ?account= or AZURE_STORAGE_ACCOUNT_NAME"},
		{"az://Data/?account=mine", nil, "a container has 3 to 63 letters"},
		{"az://a--b/?account=mine", nil, "a container has 3 to 63 letters"},
		{"az://data@mine/", nil, "name the account by ?account="},
		{"az://data/?account=My-Account", nil, "a storage account has 3 to 24 letters"},
		{"az://data/?account=mine&endpoint=ftp://host", nil, "the endpoint must look like"},
		{"az://data/?account=mine&anonymous=perhaps", nil, "must be true or false"},
		{"abfss://mine.dfs.core.windows.net/", nil, "looks like abfss://container@account"},
		{"abfss://data@mine.example.com/", nil, "looks like abfss://container@account"},
		{"az://data/", []string{"AZURE_STORAGE_CONNECTION_STRING=AccountName=mine"}, "neither AccountKey nor SharedAccessSignature"},
	} {
		_, err := parse(target(t, tt.url, tt.env...))
		if err == nil || !strings.Contains(err.Error(), tt.words) {
			t.Errorf("%s with %q: got %v, want %q", tt.url, tt.env, err, tt.words)
		}
	}
}

func TestKeysThatAzureChangesAreRejected(t *testing.T) {
	s := new(store)
	for _, key := range []string{"", "a.", "a./b", "...", `a\b`, strings.Repeat("x", 1025)} {
		if err := s.CheckKey(key); backends.KindOf(err) != backends.Invalid {
			t.Errorf("CheckKey(%q) = %v, want kind invalid", key, err)
		}
	}
	for _, key := range []string{"a", "a/b.tar", ".hidden", "a..b", "a b", "100%"} {
		if err := s.CheckKey(key); err != nil {
			t.Errorf("CheckKey(%q) = %v, want nil", key, err)
		}
	}
}

func TestBlockIDsRoundTrip(t *testing.T) {
	sum := []byte{1, 2, 3, 4, 5, 6, 7, 8}
	b := newBlock(strings.Repeat("U", uploadLength), 50_000, 7, sum)
	got, ok := parseBlock(b.id, 7)
	if !ok || got.upload != b.upload || got.number != b.number || !got.hasSum(sum) || got.sent.Unix() != b.sent.Unix() || len(b.id) > 88 {
		t.Errorf("parseBlock(%q) = %+v, %t; want %+v", b.id, got, ok, b)
	}
	for _, id := range []string{"", "AAAA", "c3RhZ2Vy", b.id[:len(b.id)-4]} {
		if got, ok := parseBlock(id, 7); ok {
			t.Errorf("parseBlock(%q) = %+v, want none", id, got)
		}
	}
}
