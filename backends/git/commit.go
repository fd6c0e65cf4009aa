package git

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"io"
	"iter"
	"log/slog"
	"net/http"
	"os"
	"sort"
	"strings"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/internal/fileshare"
	"github.com/stager-dev/stager/backends/internal/objectstore"
)

// partSize matters little: all reads are of a file of this machine.
const partSize = 16 << 20

// commit is one commit of a repository. Keys are paths in it.
type commit struct {
	data    *os.File // the contents of all files
	files   []file   // in the order of their keys
	skipped []backends.Skipped
}

var _ backends.Backend = (*commit)(nil)

// maxRounds bounds how often blobs are fetched: those of files, of links, and of the targets of links.
const maxRounds = 10

// checkout fetches a commit.
func checkout(ctx context.Context, r *remote, set settings, log *slog.Logger) (c *commit, err error) {
	if err := r.discover(ctx); err != nil {
		return nil, err
	}
	newHash, err := r.hash()
	if err != nil {
		return nil, err
	}
	hash, err := r.resolve(ctx, set.revision)
	if err != nil {
		return nil, err
	}
	if hex.DecodedLen(len(hash)) != newHash().Size() {
		return nil, backends.Errorf(backends.NotExist, "open", "", "hashes of this repository have %d digits, not %d", hex.EncodedLen(newHash().Size()), len(hash))
	}
	objects, err := newObjects(newHash, set.maxSize)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = objects.file.Close() // it is of no use
		}
	}()
	partial := set.base != "" && r.can("fetch", "filter")
	args := []string{"deepen 1"}
	if partial {
		args = append(args, "filter blob:none")
	}
	if err := r.fetch(ctx, objects, []string{unhex(hash)}, args...); err != nil {
		return nil, err
	}
	tree, id, err := objects.commitTree(unhex(hash))
	if err != nil {
		return nil, err
	}
	for range maxRounds {
		w, err := objects.walk(tree, set.base)
		if err != nil {
			return nil, err
		}
		if len(w.missing) == 0 {
			log.Info("fetched a commit of a Git repository", "commit", hex.EncodeToString([]byte(id)), "files", len(w.files), "bytes", backends.Size(objects.size))
			return &commit{data: objects.file, files: w.files, skipped: w.skipped}, nil
		}
		if !partial {
			break
		}
		var wanted []string
		for id := range w.missing {
			wanted = append(wanted, id)
		}
		if err := r.fetch(ctx, objects, wanted); err != nil {
			return nil, err
		}
	}
	return nil, corrupt("files of the commit are missing")
}

// Capabilities implements backends.Backend. A commit never changes.
func (c *commit) Capabilities() backends.Capabilities {
	return backends.Capabilities{PinnedReads: true, Parallelism: 8, PartSize: partSize, Checksum: backends.SHA256}
}

// Close removes the temporary file.
func (c *commit) Close() error { return c.data.Close() }

// Create fails: repositories are only read.
func (c *commit) Create(_ context.Context, key string, _ backends.CreateOptions) (backends.Writer, error) {
	return nil, backends.Errorf(backends.Unsupported, "create", key, "Git repositories are only read")
}

// Delete fails: repositories are only read.
func (c *commit) Delete(_ context.Context, key string) error {
	return backends.Errorf(backends.Unsupported, "delete", key, "Git repositories are only read")
}

// describe returns the object of a file.
func (f *file) describe() backends.Object {
	return backends.Object{
		Key: f.key, Size: f.size, Version: backends.Version(hex.EncodeToString([]byte(f.id))),
		Sum: backends.Checksum{Algorithm: backends.SHA256, Value: hex.EncodeToString(f.sum[:])},
	}
}

// from returns the position of the first file whose key is not before key.
func (c *commit) from(key string) int {
	return sort.Search(len(c.files), func(i int) bool { return c.files[i].key >= key })
}

// List implements backends.Source.
func (c *commit) List(ctx context.Context, prefix string) iter.Seq2[backends.Object, error] {
	return func(yield func(backends.Object, error) bool) {
		for _, s := range c.skipped {
			if strings.HasPrefix(s.Key, prefix) {
				backends.Skip(ctx, s)
			}
		}
		for i := c.from(prefix); i < len(c.files) && strings.HasPrefix(c.files[i].key, prefix); i++ {
			if err := fileshare.Ended(ctx, "list", prefix); err != nil {
				yield(backends.Object{}, err)
				return
			}
			if !yield(c.files[i].describe(), nil) {
				return
			}
		}
	}
}

// find returns a file.
func (c *commit) find(ctx context.Context, op, key string) (*file, error) {
	if err := fileshare.Ended(ctx, op, key); err != nil {
		return nil, err
	}
	if i := c.from(key); i < len(c.files) && c.files[i].key == key {
		return &c.files[i], nil
	}
	return nil, backends.Errorf(backends.NotExist, op, key, "%w", backends.ErrNothing)
}

// Stat implements backends.Source.
func (c *commit) Stat(ctx context.Context, key string) (backends.Object, error) {
	f, err := c.find(ctx, "stat", key)
	if err != nil {
		return backends.Object{}, err
	}
	return f.describe(), nil
}

// pointerMark begins a file that stands for one of Git LFS.
const pointerMark = "version https://git-lfs.github.com/spec/v1\n"

// maxPointer is the maximum size of such a file.
const maxPointer = 1024

// OpenRange implements backends.Source.
func (c *commit) OpenRange(ctx context.Context, obj backends.Object, off, n int64) (io.ReadCloser, error) {
	f, err := c.find(ctx, "read", obj.Key)
	if err != nil {
		return nil, err
	}
	is := f.describe()
	switch {
	case obj.Version != "" && obj.Version != is.Version:
		return nil, backends.Errorf(backends.Changed, "read", obj.Key, "the file is the blob %s, not %s as listed", is.Version, obj.Version)
	case off < 0:
		return nil, backends.Errorf(backends.Invalid, "read", obj.Key, "invalid offset %d", off)
	case objectstore.NoBytes(is, off, n):
		return http.NoBody, nil
	case off >= is.Size:
		return nil, objectstore.BeyondEnd(obj.Key, off)
	}
	if f.size <= maxPointer {
		head := make([]byte, len(pointerMark))
		read, err := c.data.ReadAt(head, f.at)
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, unreadable(err)
		}
		if f.size >= int64(len(head)) && bytes.Equal(head[:read], []byte(pointerMark)) {
			return nil, backends.Errorf(backends.Unsupported, "read", obj.Key, "the file is kept in Git LFS, which is not read: exclude it, and read it from the store that holds it")
		}
	}
	left := n
	if n < 0 || n > f.size-off {
		left = f.size - off
	}
	body := &reader{Reader: io.NewSectionReader(c.data, f.at+off, left), ctx: ctx, key: obj.Key, sum: is.Sum}
	if n > left {
		body.Reader = io.MultiReader(body.Reader, tooShort{})
	}
	return body, nil
}

// reader is a range of a file.
type reader struct {
	io.Reader
	ctx context.Context //nolint:containedctx // that of OpenRange, which bounds all reads
	key string
	sum backends.Checksum
}

// Read implements io.Reader.
func (r *reader) Read(p []byte) (int, error) {
	if err := fileshare.Ended(r.ctx, "read", r.key); err != nil {
		return 0, err
	}
	n, err := r.Reader.Read(p)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		err = unreadable(err)
	}
	return n, err
}

// Close implements io.Closer.
func (r *reader) Close() error { return nil }

// ObjectChecksum implements backends.ChecksumReader.
func (r *reader) ObjectChecksum() backends.Checksum { return r.sum }

// tooShort is what follows the end of a file.
type tooShort struct{}

// Read implements io.Reader.
func (tooShort) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }
