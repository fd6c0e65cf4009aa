package hdfs

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stager-dev/stager/backends"
)

// The library compares checksums, but returns the bytes even if they differ when there is room for
// a whole chunk. A file of one whole block was then read without an error, and a prefetch reported
// it as verified.
func TestReadSkipsRottenBlock(t *testing.T) {
	server := need(t)
	s := openLive(t, directory(t))
	contents := bytes.Repeat([]byte("good"), 1<<20/4) // one block
	contents[0] = 'G'
	obj, err := s.PutBytes(t.Context(), "k", contents, backends.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	block := ""
	err = filepath.WalkDir(filepath.Join(filepath.Dir(server.Env["HADOOP_CONF_DIR"]), "data"), func(path string, _ fs.DirEntry, err error) error {
		if name := filepath.Base(path); err == nil && strings.HasPrefix(name, "blk_") && !strings.HasSuffix(name, ".meta") {
			if held, err := os.ReadFile(path); err == nil && bytes.Equal(held, contents) {
				block = path
			}
		}
		return nil
	})
	if err != nil || block == "" {
		t.Fatalf("the block is nowhere: %v", err)
	}
	rot := func(with string, at int64) {
		f, err := os.OpenFile(block, os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if _, err := f.WriteAt([]byte(with), at); err != nil {
			t.Fatal(err)
		}
	}
	for _, at := range []int64{0, 4, 512 << 10, 1<<20 - 4} {
		rot("rots", at)
		to := &kept{}
		_, err := s.ReadRange(t.Context(), obj, 0, obj.Size, to, nil)
		wantRefused(t, "reading what rots", err, backends.Corrupt, "checksums")
		if !bytes.Equal(to.got, contents[:len(to.got)]) {
			t.Errorf("rot at %d: wrong bytes are among the %d that came", at, len(to.got))
		}
		rot(string(contents[at:at+4]), at)
	}
	if err := read(t, s, obj); err != nil {
		t.Errorf("reading it when it is whole again: %v", err)
	}
}

// kept collects bytes that are written in order.
type kept struct{ got []byte }

func (k *kept) WriteAt(p []byte, off int64) (int, error) {
	k.got = append(k.got[:off], p...)
	return len(p), nil
}
