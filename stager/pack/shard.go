package pack

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"iter"
	"math"
	"time"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/stager/plan"
)

const (
	block   = 512       // contents are padded to a multiple
	trailer = 2 * block // zeros at the end of an archive
)

// shard is the layout of one archive.
type shard struct {
	key     string
	files   plan.Members
	starts  []int64 // offsets of the files' headers, and of the trailer
	samples int
	classes map[string]int
	unnamed bool // a sample lies in no directory, so the classes are unknown
	sum     hash.Hash
}

func newShard(key string) *shard {
	sh := &shard{key: key, starts: []int64{0}, classes: make(map[string]int), sum: sha256.New()}
	sh.sum.Write([]byte("tar 1\n")) // change this when the layout changes, so that versions differ
	return sh
}

// end returns the offset of the next file.
func (sh *shard) end() int64 { return sh.starts[len(sh.starts)-1] }

// object returns the shard as a store lists it.
func (sh *shard) object() backends.Object {
	return backends.Object{
		Key: sh.key, Size: sh.end() + trailer, Version: backends.Version("sha256:" + hex.EncodeToString(sh.sum.Sum(nil))),
	}
}

// add appends a sample if the shard then has at most size bytes, or is empty.
func (sh *shard) add(s sample, size int64) (fits bool, err error) {
	starts := sh.starts
	for _, obj := range s.files.All() {
		head, err := header(obj)
		if err != nil {
			return false, err
		}
		at := starts[len(starts)-1] + int64(len(head))
		if obj.Size > math.MaxInt64/2-at {
			return false, fmt.Errorf("%s: the store reports an invalid size of %d bytes", obj.Key, obj.Size)
		}
		starts = append(starts, at+padded(obj.Size))
	}
	if len(sh.starts) > 1 && starts[len(starts)-1]+trailer > size {
		return false, nil
	}
	sh.starts = starts
	for _, obj := range s.files.All() {
		sh.sum.Write(sh.files.Add(obj)) // a hash never fails
	}
	if s.name != "" {
		sh.samples++
		if class := s.class(); class != "" {
			sh.classes[class]++
		} else {
			sh.unnamed = true
		}
	}
	return true, nil
}

// header returns the header of a file.
func header(obj backends.Object) ([]byte, error) {
	var head bytes.Buffer
	err := tar.NewWriter(&head).WriteHeader(&tar.Header{Name: obj.Key, Size: obj.Size, Mode: 0o644, ModTime: time.Unix(0, 0)})
	if err != nil {
		return nil, fmt.Errorf("%s cannot be stored in a tar archive: %w", obj.Key, err)
	}
	return head.Bytes(), nil
}

// padded returns a size rounded up to the next block.
func padded(size int64) int64 { return (size + block - 1) / block * block }

// shards divides samples into archives.
func shards(from iter.Seq2[sample, error], prefix string, size int64) ([]*shard, error) {
	var all []*shard
	for s, err := range from {
		if err != nil {
			return nil, err
		}
		if len(all) > 0 {
			fits, err := all[len(all)-1].add(s, size)
			if err != nil {
				return nil, err
			}
			if fits {
				continue
			}
		}
		if len(all) > lastShard {
			return nil, fmt.Errorf("more than %d shards of %d bytes would be needed; use larger shards", lastShard+1, size)
		}
		sh := newShard(keyOf(prefix, len(all)))
		if _, err := sh.add(s, size); err != nil {
			return nil, err
		}
		all = append(all, sh)
	}
	return all, nil
}

// lastShard is the highest number whose key is as long as that of the first shard.
const lastShard = 999_999

func keyOf(prefix string, i int) string { return fmt.Sprintf("%s%06d.tar", prefix, i) }
