package floor

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stager-dev/stager/e2e/servers"
)

// Every way of moving files arrives with their bytes: small and in ranges, with and without TLS, to and from
// the server, with more connections than files and with fewer.
func TestJobsMoveEqualBytes(t *testing.T) {
	base := t.TempDir()
	want := make(map[string][]byte)
	files := filepath.Join(base, "files")
	if err := os.Mkdir(files, 0o755); err != nil {
		t.Fatal(err)
	}
	for i, size := range []int{0, 1, 50_000, bufSize, 3*bufSize + 4096, 2*rangeSize + bufSize} {
		name := fmt.Sprintf("%d %%.bin", i)
		want[name] = bytes.Repeat([]byte{byte(i), 1, 2, 3, 5, 7, 11}, size/7+1)[:size]
		if err := os.WriteFile(filepath.Join(files, name), want[name], 0o600); err != nil {
			t.Fatal(err)
		}
	}
	compare := func(t *testing.T, dir string) {
		t.Helper()
		entries, err := os.ReadDir(dir)
		if err != nil || len(entries) != len(want) {
			t.Fatalf("got %d files, %v, want %d", len(entries), err, len(want))
		}
		for name, text := range want {
			got, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil || !bytes.Equal(got, text) {
				t.Errorf("%s has %d bytes, %v, want the %d that were sent", name, len(got), err, len(text))
			}
		}
	}
	for kind, start := range map[string]func(dir, bucket string) (*servers.Quick, error){"http": servers.StartQuick, "https": servers.StartQuickTLS} {
		server, err := start(t.TempDir(), "b")
		if err != nil {
			t.Fatal(err)
		}
		defer server.Close()
		for _, conns := range []int{1, 4, 32} {
			t.Run(fmt.Sprintf("%s, %d connections", kind, conns), func(t *testing.T) {
				put := Job{URL: fmt.Sprintf("%s/b/%d/", server.Endpoint, conns), CA: server.CAFile, Files: files, Conns: conns}
				if err := Run(put.Args()); err != nil {
					t.Fatal(err)
				}
				get := put
				get.To = t.TempDir()
				if err := Run(get.Args()); err != nil {
					t.Fatal(err)
				}
				compare(t, get.To)
			})
		}
	}
}

func TestJobNamesWhatFailed(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "a"), []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	server, err := servers.StartQuick(t.TempDir(), "b")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	err = Job{URL: server.Endpoint + "/b/", Files: dir, To: t.TempDir(), Conns: 1}.Run()
	if want := "a: the server answered \"HTTP/1.1 404"; err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("got error %v, want one that begins with %s", err, want)
	}
}
