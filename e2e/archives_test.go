package e2e

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/rand"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/rogpeppe/go-internal/testscript"
)

// archivesCmd makes small, a directory of 40 files, in good the archives of it, one in each
// format that Go writes and one of nothing, and in bad those that must be refused.
func archivesCmd(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, !neg && len(args) == 3, "archives SMALL GOOD BAD")
	small, good, bad := ts.MkAbs(args[0]), ts.MkAbs(args[1]), ts.MkAbs(args[2])
	write := func(dir, name string, p []byte) {
		path := filepath.Join(dir, name)
		ts.Check(os.MkdirAll(filepath.Dir(path), 0o755))
		ts.Check(os.WriteFile(path, p, 0o644))
	}
	for i := range 40 {
		p := make([]byte, 1+1000*i)
		_, err := rand.Read(p)
		ts.Check(err)
		write(small, fmt.Sprintf("%s/%02d.jpg", []string{"cat", "dog"}[i%2], i), p)
	}
	plain := tarOf(ts, func(w *tar.Writer) error { return w.AddFS(os.DirFS(small)) })
	var zipped bytes.Buffer
	z := zip.NewWriter(&zipped)
	ts.Check(z.AddFS(os.DirFS(small)))
	ts.Check(z.Close())
	write(good, "plain.tar", plain)
	write(good, "deep/squeezed.tar.gz", gzipped(ts, plain))
	write(good, "zipped.zip", zipped.Bytes())
	write(good, "nothing.tar", tarOf(ts, func(*tar.Writer) error { return nil }))
	write(good, "note.txt", []byte("no archive\n"))

	entry := func(h tar.Header, from io.Reader) []byte {
		return tarOf(ts, func(w *tar.Writer) error {
			err := w.WriteHeader(&h)
			if err == nil {
				_, err = io.Copy(w, from)
			}
			return err
		})
	}
	nothing := bytes.NewReader(nil)
	const size = 64 << 20
	write(bad, "bomb.tar.gz", gzipped(ts, entry(tar.Header{Name: "zeros", Mode: 0o644, Size: size}, bytes.NewReader(make([]byte, size)))))
	write(bad, "cut.tar.gz", gzipped(ts, plain)[:100_000])
	write(bad, "device.tar", entry(tar.Header{Name: "d", Typeflag: tar.TypeChar}, nothing))
	write(bad, "link.tar", entry(tar.Header{Name: "l", Linkname: "/etc/passwd", Typeflag: tar.TypeSymlink}, nothing))
	write(bad, "text.tar", []byte("no archive\n"))
	write(bad, "text.zip", []byte("no archive\n"))
	write(bad, "up.tar", entry(tar.Header{Name: "../escaped", Mode: 0o644}, nothing))
}

func tarOf(ts *testscript.TestScript, fill func(*tar.Writer) error) []byte {
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	ts.Check(fill(w))
	ts.Check(w.Close())
	return buf.Bytes()
}

func gzipped(ts *testscript.TestScript, p []byte) []byte {
	var buf bytes.Buffer
	w := gzip.NewWriter(&buf)
	_, err := w.Write(p)
	ts.Check(err)
	ts.Check(w.Close())
	return buf.Bytes()
}
