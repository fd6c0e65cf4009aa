package sftp

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pkg/sftp"

	"github.com/stager-dev/stager/backends"
)

// losing are the files of a server that breaks its connection after the first rename that works, and
// before the response.
type losing struct {
	sftp.FileCmder
	vague bool // a missing file is a failure like any other, as servers of version 3 may say

	mu   sync.Mutex // guards the fields below
	cut  func()     // breaks the connection of the last session
	lost bool       // a response was lost, or none is to be
}

// does calls do with the fields that are guarded.
func (l *losing) does(do func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	do()
}

func (l *losing) Filecmd(r *sftp.Request) error {
	err := l.FileCmder.Filecmd(r)
	if r.Method != "Rename" {
		return err
	}
	l.does(func() {
		if err == nil && !l.lost {
			l.lost = true
			l.cut()
		}
	})
	if errors.Is(err, fs.ErrNotExist) && l.vague {
		return errors.New("failure")
	}
	return err
}

// The response to a rename was lost, and the rename was sent again. A server that said "failure" of the
// temporary file, which was gone, was taken to mean that the key exists: the key was removed, and with
// it what had just been published. Without hard links a new object was "not there".
func TestRenameWithLostResponseIsFound(t *testing.T) {
	for _, tt := range []struct {
		name string
		old  bool
		opts backends.CreateOptions
	}{
		{"new", false, backends.CreateOptions{}},
		{"over another", true, backends.CreateOptions{}},
		{"if absent", false, backends.CreateOptions{IfAbsent: true}},
	} {
		for _, vague := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, vague %t", tt.name, vague), func(t *testing.T) {
				files := sftp.InMemHandler()
				l := &losing{FileCmder: files.FileCmd, vague: vague}
				files.FileCmd = l
				address, fingerprint := startPlain(t, func(channel io.ReadWriteCloser, cut func()) (server, error) {
					l.does(func() { l.cut = cut })
					return sftp.NewRequestServer(channel, files), nil
				})
				store, err := openPlain(t, address, fingerprint, "/", io.Discard)
				if err != nil {
					t.Fatal(err)
				}
				defer store.Close()
				if tt.old {
					l.does(func() { l.lost = true })
					if _, err := store.PutBytes(t.Context(), "k", []byte("before"), backends.CreateOptions{}); err != nil {
						t.Fatal(err)
					}
					l.does(func() { l.lost = false })
				}
				want := strings.Repeat("after", 1000)
				_, err = store.PutBytes(t.Context(), "k", []byte(want), tt.opts)
				got, _, rerr := store.ReadAll(t.Context(), "k", 1<<20)
				lost := false
				l.does(func() { lost = l.lost })
				if err != nil || rerr != nil || string(got) != want || !lost {
					t.Errorf("put: %v; then the key has %d bytes, %v, want %d; the response was lost: %t", err, len(got), rerr, len(want), lost)
				}
			})
		}
	}
}

// openPlain opens a directory of a server of startPlain.
func openPlain(t *testing.T, address, fingerprint, dir string, log io.Writer) (*backends.Store, error) {
	t.Helper()
	return backends.NewRegistry(Scheme()).Open(t.Context(), "sftp://user@"+address+dir+"?hostkey="+strings.ReplaceAll(fingerprint, "+", "%2B"), backends.Options{
		Getenv:   func(name string) string { return map[string]string{"SFTP_PASSWORD": "secret"}[name] },
		RetryFor: time.Minute,
		Log:      slog.New(slog.NewTextHandler(log, nil)),
	})
}
