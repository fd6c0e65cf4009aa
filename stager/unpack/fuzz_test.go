package unpack_test

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"io"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"github.com/stager-dev/stager/stager/unpack"
)

// FuzzUnpack unpacks hostile bytes: they are refused, or the result is exactly what the format's
// library reports, under names that stay below the directory.
func FuzzUnpack(f *testing.F) {
	members := []member{file("a", "one"), {name: "deep/"}, file("deep/b", strings.Repeat("x", 3000)), file("./c", "")}
	formats := []unpack.Format{unpack.Tar, unpack.TarGzip, unpack.TarZstd, unpack.Zip}
	hostile := archives(f, file("../x", "1"), file("/y", "2"))
	nasty := archives(f, file("a", "1"), file("a", "2"), file("a/b", ""))
	for i, format := range formats {
		f.Add(byte(i), archives(f, members...)[format])
		f.Add(byte(i), hostile[format])
		f.Add(byte(i), nasty[format])
	}
	f.Add(byte(0), makeTar(f, member{name: "l", typeflag: tar.TypeSymlink}, member{name: "d", typeflag: tar.TypeChar}))
	f.Add(byte(0), paxSparse(f))
	f.Fuzz(func(t *testing.T, which byte, archive []byte) {
		format := formats[int(which)%len(formats)]
		s := &memoryDir{files: map[string]string{}, most: 16 << 20}
		c, err := unpack.Archive(format, bytes.NewReader(archive), bytes.NewReader(archive), int64(len(archive)), s)
		files, size := 0, 0
		for name, text := range s.files {
			name, directory := strings.CutSuffix(name, "/")
			if !filepath.IsLocal(name) || path.Clean(name) != name {
				t.Errorf("%q came out", name)
			}
			if !directory {
				files++
				size += len(text)
			}
		}
		if err != nil {
			return
		}
		if files != c.Files {
			t.Errorf("%d files came out, and %d are said", files, c.Files)
		}
		for name, text := range reported(t, format, archive) {
			got := strings.TrimPrefix(s.files[name], "#!")
			if _, there := s.files[name]; !there || got != strings.TrimPrefix(text, "#!") {
				t.Errorf("%q came out with %d bytes, want %d", name, len(got), len(text))
			}
			files--
		}
		if files != 0 {
			t.Errorf("%d files came out that the library does not report", files)
		}
	})
}

// reported returns the files of a valid archive.
func reported(t *testing.T, format unpack.Format, archive []byte) map[string]string {
	t.Helper()
	files := map[string]string{}
	if format == unpack.Zip {
		r, err := zip.NewReader(bytes.NewReader(archive), int64(len(archive)))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range r.File {
			if strings.HasSuffix(f.Name, "/") || f.Mode().IsDir() {
				continue
			}
			body, err := f.Open()
			if err != nil {
				t.Fatal(err)
			}
			text, err := io.ReadAll(body)
			if err != nil {
				t.Fatal(err)
			}
			files[path.Clean(f.Name)] = string(text)
		}
		return files
	}
	r := tar.NewReader(bytes.NewReader(plainOf(t, format, archive)))
	for {
		h, err := r.Next()
		if err == io.EOF {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.Typeflag != tar.TypeReg {
			continue
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		files[path.Clean(h.Name)] = string(text)
	}
}

func plainOf(t *testing.T, format unpack.Format, archive []byte) []byte {
	t.Helper()
	var r io.Reader = bytes.NewReader(archive)
	var err error
	switch format {
	case unpack.TarGzip:
		r, err = gzip.NewReader(r)
	case unpack.TarZstd:
		r, err = zstd.NewReader(r)
	case unpack.Tar, unpack.Zip:
	}
	if err != nil {
		t.Fatal(err)
	}
	plain, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return plain
}
