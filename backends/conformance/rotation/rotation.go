// Package rotation tests backends whose credentials are files of a Secret that is replaced.
package rotation

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stager-dev/stager/backends"
)

// Case is a backend whose credentials are files of a Secret, in front of a server that accepts one
// generation of them at a time.
type Case struct {
	Scheme backends.Scheme
	URL    func(server string) string // of an object store at that address
	Files  func(generation string) map[string]string
	// Has reports whether a request carries the credentials of a generation.
	Has func(r *http.Request, generation string) bool
	// Serve answers accepted requests, Refuse all others. All stores hold one object, "key", whose
	// contents are "x".
	Serve, Refuse http.HandlerFunc
	// Lists reports whether a request lists objects, which is answered with Listing: the object "key".
	Lists   func(*http.Request) bool
	Listing string
	// Reads and Writes report whether Serve sends the contents of the object, and takes requests that
	// change it.
	Reads, Writes bool
}

// Run tests what happens when credentials are replaced in a mounted Secret, and the
// store refuses the old ones at once: requests under way succeed with the new ones. Credentials that
// are still refused then are an error at once, not at the end of all retries.
func Run(t *testing.T, r Case) {
	var accepted atomic.Value
	accepted.Store("generation-0")
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		switch {
		case !r.Has(req, accepted.Load().(string)):
			r.Refuse(w, req)
		case r.Lists(req):
			w.Header().Set("Content-Type", http.DetectContentType([]byte(r.Listing)))
			_, _ = io.WriteString(w, r.Listing) // the client sees if it fails
		default:
			r.Serve(w, req)
		}
	}))
	t.Cleanup(server.Close)
	open := func(secrets string) (*backends.Store, error) {
		store, err := backends.NewRegistry(r.Scheme).Open(t.Context(), r.URL(server.URL), backends.Options{Secrets: secrets, RetryFor: time.Hour})
		if err == nil {
			t.Cleanup(func() { _ = store.Close() })
		}
		return store, err
	}
	write := func(secrets, generation string) {
		t.Helper()
		for name, text := range r.Files(generation) {
			if err := os.WriteFile(filepath.Join(secrets, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	secrets := t.TempDir()
	write(secrets, "generation-0")
	store, err := open(secrets)
	if err != nil {
		t.Fatal(err)
	}
	calls := map[string]func() error{
		"stat": func() error { _, err := store.Stat(t.Context(), "key"); return err },
		"list": func() error {
			var keys []string
			for obj, err := range store.List(t.Context(), "") {
				if err != nil {
					return err
				}
				keys = append(keys, obj.Key)
			}
			if len(keys) == 0 || keys[0] != "key" {
				return fmt.Errorf("got the keys %q, want key", keys)
			}
			return nil
		},
	}
	if r.Reads {
		obj, err := store.Stat(t.Context(), "key")
		if err != nil {
			t.Fatal(err)
		}
		calls["read"] = func() error {
			_, err := store.ReadRange(t.Context(), obj, 0, 1, make(memory, 1), nil)
			return err
		}
	}
	if r.Writes {
		calls["put"] = func() error {
			_, err := store.PutBytes(t.Context(), "key", []byte("x"), backends.CreateOptions{})
			return err
		}
		calls["delete"] = func() error { return store.Delete(t.Context(), "key") }
	}
	generation := 0
	for name, call := range calls {
		if err := call(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		generation++
		next := fmt.Sprint("generation-", generation)
		accepted.Store(next)
		write(secrets, next)
		var all sync.WaitGroup
		for range 4 { // each is sent with the old ones, and refused
			all.Go(func() {
				if err := call(); err != nil {
					t.Errorf("%s after %s came: %v, want that it is read and used", name, next, err)
				}
			})
		}
		all.Wait()
	}
	accepted.Store("generation-of-others")
	wrong := t.TempDir()
	write(wrong, "generation-wrong")
	if store, err = open(wrong); err == nil { // not every backend sends a request to open
		_, err = store.Stat(t.Context(), "key")
	}
	var e *backends.Error
	if !errors.As(err, &e) || e.Kind != backends.Permission || e.Again || strings.Contains(err.Error(), "gave up") {
		t.Errorf("with wrong credentials: %+v, want kind permission at once", err)
	}
}

type memory []byte

func (m memory) WriteAt(p []byte, off int64) (int, error) { return copy(m[off:], p), nil }
