package sftp

import (
	"errors"
	"io"
	"os"
	"sync"
	"testing"

	"github.com/pkg/sftp"

	"github.com/stager-dev/stager/backends/conformance"
)

// refusing are the files of a server that refuses one call, or breaks the connection before its
// response.
type refusing struct {
	files sftp.Handlers
	lose  bool

	mu    sync.Mutex // guards the fields below
	cut   func()
	calls int
	fails int
}

func (r *refusing) call(do func() error) error {
	r.mu.Lock()
	r.calls++
	fails, cut := r.calls == r.fails, r.cut
	r.mu.Unlock()
	if !fails {
		return do()
	}
	if !r.lose {
		return sftp.ErrSSHFxPermissionDenied
	}
	err := do()
	cut()
	return err
}

func (r *refusing) Filewrite(q *sftp.Request) (w io.WriterAt, err error) {
	err = r.call(func() error {
		w, err = r.files.FilePut.Filewrite(q)
		return err
	})
	return &refusingFile{w, r}, err
}

func (r *refusing) Filecmd(q *sftp.Request) error {
	return r.call(func() error { return r.files.FileCmd.Filecmd(q) })
}

func (r *refusing) PosixRename(q *sftp.Request) error {
	return r.call(func() error { return r.files.FileCmd.(sftp.PosixRenameFileCmder).PosixRename(q) })
}

func (r *refusing) Filelist(q *sftp.Request) (l sftp.ListerAt, err error) {
	err = r.call(func() error {
		l, err = r.files.FileList.Filelist(q)
		return err
	})
	return l, err
}

func (r *refusing) Lstat(q *sftp.Request) (l sftp.ListerAt, err error) {
	err = r.call(func() error {
		l, err = r.files.FileList.(sftp.LstatFileLister).Lstat(q)
		return err
	})
	return l, err
}

func (r *refusing) failAt(call int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls, r.fails = 0, call
}

func (r *refusing) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.calls
}

// names returns the names of all files.
func (r *refusing) names() []string {
	l, err := r.files.FileList.Filelist(sftp.NewRequest("List", "/"))
	if err != nil {
		return []string{err.Error()}
	}
	all := make([]os.FileInfo, 10)
	n, _ := l.ListAt(all, 0) // there are fewer
	var names []string
	for _, info := range all[:n] {
		names = append(names, info.Name())
	}
	return names
}

type refusingFile struct {
	io.WriterAt
	r *refusing
}

func (f *refusingFile) WriteAt(p []byte, off int64) (n int, err error) {
	err = f.r.call(func() error {
		n, err = f.WriterAt.WriteAt(p, off)
		return err
	})
	return n, err
}

// Close loses what was written if it is refused.
func (f *refusingFile) Close() error {
	err := f.r.call(func() error { return nil })
	if err != nil {
		err = errors.Join(err, f.WriterAt.(interface{ Truncate(size int64) error }).Truncate(0))
	}
	return err
}

// A server without posix-rename refused the second of the three calls that replace a file: the old one
// was removed, the new one had no name, and the upload had failed.
func TestUploadsWithACallThatFails(t *testing.T) {
	for name, lose := range map[string]bool{"refused": false, "lost": true} {
		for without, extensions := range map[string][]string{
			"": {"posix-rename@openssh.com", "hardlink@openssh.com"}, " without extensions": nil,
		} {
			t.Run(name+without, func(t *testing.T) {
				conformance.FailingCalls(t, func(use func(conformance.TB, conformance.Scripted)) {
					files := sftp.InMemHandler()
					r := &refusing{files: files, lose: lose}
					address, fingerprint := startPlain(t, func(channel io.ReadWriteCloser, cut func()) (server, error) {
						r.mu.Lock()
						r.cut = cut
						r.mu.Unlock()
						return sftp.NewRequestServer(channel, sftp.Handlers{FileGet: files.FileGet, FilePut: r, FileCmd: r, FileList: r}), nil
					})
					if err := sftp.SetSFTPExtensions(extensions...); err != nil {
						t.Fatal(err)
					}
					store, err := openPlain(t, address, fingerprint, "/", io.Discard)
					if err != nil {
						t.Fatal(err)
					}
					defer store.Close()
					use(t, conformance.Scripted{Store: store, FailAt: r.failAt, Calls: r.count, Names: r.names})
				})
			})
		}
	}
}
