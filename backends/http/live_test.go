package http

import (
	"io"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/conformance"
	"github.com/stager-dev/stager/backends/conformance/live"
)

func TestReadingHalfOfContractOnRealServers(t *testing.T) {
	for _, kind := range []string{"nginx", "nginx-json", "apache", "python"} {
		t.Run(kind, func(t *testing.T) {
			server := live.Start(t, "http", "-kind="+kind)
			dir := filepath.Base(live.Plant(t, server.Env["WEB_DIR"], tree, began))
			open := func(t *testing.T) *backends.Store {
				store, err := backends.NewRegistry(Schemes()...).Open(t.Context(), server.Env["WEB"]+"/"+dir+"/data/", backends.Options{})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { store.Close() })
				return store
			}
			store := open(t)
			objects := listing(t, store, "")
			want := slices.DeleteFunc(below(), func(name string) bool {
				return strings.HasPrefix(name, ".") && strings.HasPrefix(kind, "nginx") // it hides them
			})
			if got := keys(objects); !slices.Equal(got, want) {
				t.Fatalf("the listing has %q, want %q", got, want)
			}
			conformance.Inspect(t, open, objects)
			for _, obj := range objects {
				wantReads(t, store, obj, "data/"+obj.Key)
			}
			if _, _, err := store.Sub("a").Self(t.Context()); backends.KindOf(err) != backends.NotExist {
				t.Errorf("a directory as an object: got %v, want kind not-exist", err)
			}

			big := objects[slices.IndexFunc(objects, func(obj backends.Object) bool { return obj.Key == "big.bin" })]
			live.PlantFile(t, filepath.Join(server.Env["WEB_DIR"], dir, "data/big.bin"), make([]byte, big.Size), began.Add(time.Hour))
			if _, err := store.ReadRange(t.Context(), big, 0, 10, make(memory, 10), nil); backends.KindOf(err) != backends.Changed {
				t.Errorf("reading an old version: got %v, want kind changed", err)
			}
		})
	}
}

// A server that is killed in the middle of an object is asked for the rest, or for all of it.
func TestReadsSurviveDeathOfRealServers(t *testing.T) {
	for _, kind := range []string{"nginx", "apache", "python"} {
		t.Run(kind, func(t *testing.T) {
			server := live.Start(t, "http", "-kind="+kind)
			dir := filepath.Base(live.Plant(t, server.Env["WEB_DIR"], tree, began))
			store, err := backends.NewRegistry(Schemes()...).Open(t.Context(), server.Env["WEB"]+"/"+dir+"/", backends.Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer store.Close()
			const key = "data/big.bin"
			obj, err := store.Stat(t.Context(), key)
			if err != nil {
				t.Fatal(err)
			}
			got := make(memory, obj.Size)
			killed := false
			at := writerAt(func(p []byte, off int64) (int, error) {
				if !killed {
					killed = true
					server.Order(t, "away 300ms")
				}
				return got.WriteAt(p, off)
			})
			if _, err := store.ReadRange(t.Context(), obj, 0, obj.Size, at, nil); err != nil {
				t.Errorf("reading: %v", err)
			}
			if want := conformance.ContentsOf(key, obj.Size).Bytes(); !slices.Equal([]byte(got), want) {
				t.Error("the bytes are not those of the object")
			}
		})
	}
}

// writerAt is a function as an io.WriterAt.
type writerAt func(p []byte, off int64) (int, error)

func (w writerAt) WriteAt(p []byte, off int64) (int, error) { return w(p, off) }

var _ io.WriterAt = writerAt(nil)
