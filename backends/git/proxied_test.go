package git

import (
	"bytes"
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/conformance"
	"github.com/stager-dev/stager/backends/conformance/live"
)

// Git servers of companies stand behind nginx, which buffers requests and responses, and speaks
// HTTP/1.0 to the server.
func TestReadingHalfOfContractBehindNginx(t *testing.T) {
	server := live.Start(t, "git")
	front := live.Start(t, "http", "-before=http://"+server.Env["GIT_SERVER"])
	for _, directory := range []string{"", "private"} { // which demands credentials
		t.Run(cmp.Or(directory, "public"), func(t *testing.T) {
			served := server.Env["GIT_REPOSITORIES"]
			dir := plant(t, filepath.Join(served, directory))
			at := strings.TrimPrefix(front.Env["WEB"], "http") + strings.TrimPrefix(dir, served)
			if directory == "" { // Git itself takes nginx for a Git server
				clone := filepath.Join(t.TempDir(), "clone")
				git(t, dir, "clone", "--quiet", "http"+at, clone)
				if _, err := os.Stat(filepath.Join(clone, "big.bin")); err != nil {
					t.Fatal(err)
				}
			}
			store, err := tryLive(t, server, "git+http"+at+"@main", backends.Options{})
			if err != nil {
				t.Fatal(err)
			}
			objects, keys := listing(t, store)
			if want := below(); !slices.Equal(keys, want) {
				t.Fatalf("the listing has %q, want %q", keys, want)
			}
			conformance.Inspect(t, func(*testing.T) *backends.Store { return store }, objects)
			for _, obj := range objects {
				if !bytes.Equal(read(t, store, obj), conformance.ContentsOf(obj.Key, obj.Size).Bytes()) {
					t.Errorf("reading %q: other bytes than were stored", obj.Key)
				}
			}
		})
	}
}
