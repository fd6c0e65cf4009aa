package api

import (
	"archive/tar"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"github.com/stager-dev/stager/window/disk"
)

// A stream sends a shard that is a directory as a tar archive: its files by name, and nothing that
// differs from one time to the next.

// treeTar writes the archive of the files below root.
func treeTar(to io.Writer, root *os.Root) error {
	archive := tar.NewWriter(to)
	err := eachFile(root, func(name string, size int64) error {
		if err := archive.WriteHeader(treeHeader(name, size)); err != nil {
			return err
		}
		file, err := disk.OpenFile(root, name, os.O_RDONLY, 0)
		if err != nil {
			return err
		}
		defer file.Close() // opened for reading
		if n, err := io.Copy(archive, io.LimitReader(file, size)); err != nil || n != size {
			return fmt.Errorf("%s has %d bytes of %d: %w", name, n, size, err)
		}
		return nil
	})
	if err != nil {
		return err // omit the end of the archive
	}
	return archive.Close()
}

// treeTarSize returns the number of bytes that treeTar writes.
func treeTarSize(root *os.Root) (int64, error) {
	var n counter
	archive := tar.NewWriter(&n)
	err := eachFile(root, func(name string, size int64) error {
		if err := archive.WriteHeader(treeHeader(name, size)); err != nil {
			return err
		}
		_, err := io.CopyN(archive, zeros{}, size)
		return err
	})
	if err == nil {
		err = archive.Close()
	}
	return int64(n), err
}

func treeHeader(name string, size int64) *tar.Header {
	return &tar.Header{Typeflag: tar.TypeReg, Name: name, Size: size, Mode: 0o444, ModTime: time.Unix(0, 0)}
}

// eachFile calls do for the files below root, in ascending order.
func eachFile(root *os.Root, do func(name string, size int64) error) error {
	return fs.WalkDir(disk.FS(root), ".", func(name string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		return do(name, info.Size())
	})
}

// counter counts the bytes written to it.
type counter int64

func (c *counter) Write(p []byte) (int, error) {
	*c += counter(len(p))
	return len(p), nil
}

// zeros replaces contents of which only the length counts.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}
