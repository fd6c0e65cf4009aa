package sftp

import (
	"errors"
	"io"
	"sync/atomic"
	"testing"

	"github.com/pkg/sftp"

	"github.com/stager-dev/stager/backends"
)

// sharing are the files of a server that does not rename files that are open, as Windows does not.
type sharing struct {
	sftp.FileWriter
	sftp.FileCmder
	open    atomic.Int32
	failing error // what closing a written file returns
}

func (s *sharing) Filewrite(r *sftp.Request) (io.WriterAt, error) {
	w, err := s.FileWriter.Filewrite(r)
	if err != nil {
		return nil, err
	}
	s.open.Add(1)
	return &written{w, s}, nil
}

func (s *sharing) Filecmd(r *sftp.Request) error {
	if r.Method == "Rename" && s.open.Load() > 0 {
		return errors.New("the file is open")
	}
	return s.FileCmder.Filecmd(r)
}

type written struct {
	io.WriterAt
	s *sharing
}

func (w *written) Close() error {
	w.s.open.Add(-1)
	return w.s.failing
}

// The file was closed in the background: a rename could reach the server before, and what the server
// said of data that it could not store was lost. The object counted as published.
func TestWrittenFilesAreClosedBeforeTheirRename(t *testing.T) {
	for _, tt := range []struct {
		name    string
		failing error
	}{
		{"closed", nil},
		{"not stored", sftp.ErrSSHFxPermissionDenied},
	} {
		t.Run(tt.name, func(t *testing.T) {
			files := sftp.InMemHandler()
			s := &sharing{FileWriter: files.FilePut, FileCmder: files.FileCmd, failing: tt.failing}
			files.FilePut, files.FileCmd = s, s
			address, fingerprint := startPlain(t, func(channel io.ReadWriteCloser, _ func()) (server, error) {
				return sftp.NewRequestServer(channel, files), nil
			})
			store, err := openPlain(t, address, fingerprint, "/", io.Discard)
			if err != nil {
				t.Fatal(err)
			}
			defer store.Close()
			for range 20 {
				_, err := store.PutBytes(t.Context(), "k", []byte("text"), backends.CreateOptions{})
				if (err != nil) != (tt.failing != nil) || err != nil && backends.KindOf(err) != backends.Permission {
					t.Fatalf("got %v, want %v", err, tt.failing)
				}
			}
			if _, err := store.Stat(t.Context(), "k"); (err == nil) != (tt.failing == nil) {
				t.Errorf("got %v of the key after uploads that ended with %v", err, tt.failing)
			}
		})
	}
}
