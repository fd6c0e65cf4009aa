package nfs

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/conformance"
	"github.com/stager-dev/stager/backends/nfs/internal/nfstest"
)

// A server was killed when it had renamed a file and not said so. After its restart the commit was
// tried again, found that the server was another instance, wrote the data again through a file that it
// could not open by its temporary name, and ended with "removed or replaced while it was used": the
// upload of a checkpoint failed with the file in its place. Here the server is restarted before or
// after each request that an upload makes, of any kind.
func TestUploadsOutliveRestartAtEachRequest(t *testing.T) {
	const size = 20_000 // five blocks
	const away = 2 * time.Second
	want := conformance.ContentsOf("k", size).Bytes()
	uploads := map[string]func(context.Context, *backends.Store, backends.CreateOptions) error{
		"parts": func(ctx context.Context, store *backends.Store, opts backends.CreateOptions) error {
			_, err := store.Put(ctx, "k", conformance.ContentsOf("k", size), size, opts)
			return err
		},
		"bytes": func(ctx context.Context, store *backends.Store, opts backends.CreateOptions) error {
			_, err := store.PutBytes(ctx, "k", want, opts)
			return err
		},
	}
	restarts := map[string]func(*nfstest.Server) nfstest.Fault{
		"before": func(s *nfstest.Server) nfstest.Fault {
			return nfstest.Fault{Do: func() { s.RestartAfter(away) }, Cut: nfstest.CutBefore}
		},
		"after": func(s *nfstest.Server) nfstest.Fault {
			return nfstest.Fault{Then: func() { s.RestartAfter(away) }, Cut: nfstest.CutAfter}
		},
	}
	// run makes an upload, with a restart at a request, counted from the upload's first, 0 for none.
	run := func(t *testing.T, vers, how string, opts backends.CreateOptions, there bool, when string, at int) (requests int) {
		synctest.Test(t, func(t *testing.T) {
			s := nfstest.New()
			s.Mkdir("data")
			if there {
				s.WriteFile("data/k", []byte("before"))
			}
			begun := -1
			s.Each = func(n int) nfstest.Fault {
				if begun < 0 || at == 0 || n != begun+at {
					return nfstest.Fault{}
				}
				return restarts[when](s)
			}
			store, err := openFake(t.Context(), s, "data", vers+"&rsize=4KiB")
			if err != nil {
				t.Fatal(err)
			}
			begun = s.Requests()
			err = uploads[how](t.Context(), store, opts)
			requests = s.Requests() - begun
			got, _ := s.ReadFile("data/k")
			if err != nil || string(got) != string(want) {
				t.Errorf("restart %s request %d: %v, and the file has %d bytes or other ones, want %d", when, at, err, len(got), size)
			}
			if err := store.Close(); err != nil {
				t.Error(err)
			}
			if names := s.Names("data"); !slices.Equal(names, []string{"k"}) {
				t.Errorf("restart %s request %d: the directory has %q: something was left", when, at, names)
			}
			if trouble := s.Trouble(); len(trouble) > 0 {
				t.Errorf("the client broke the protocol: %q", trouble)
			}
		})
		return requests
	}
	eachVersion(t, func(t *testing.T, vers string) {
		tried := 0
		for how := range uploads {
			for _, tt := range []struct {
				name  string
				opts  backends.CreateOptions
				there bool
			}{
				{"new", backends.CreateOptions{}, false},
				{"over another", backends.CreateOptions{}, true},
				{"if absent", backends.CreateOptions{IfAbsent: true}, false},
			} {
				t.Run(fmt.Sprint(how, " ", tt.name), func(t *testing.T) {
					calm := run(t, vers, how, tt.opts, tt.there, "", 0)
					for when := range restarts {
						for at := 1; at <= calm; at++ {
							run(t, vers, how, tt.opts, tt.there, when, at)
							tried++
						}
					}
				})
			}
		}
		t.Logf("%d restarts", tried)
		if tried < 50 {
			t.Errorf("%d restarts, want one at each request of six uploads", tried)
		}
	})
}
