package hdfs

import (
	"context"
	"errors"
	"io/fs"
	"path"
	"strings"
	"time"

	"github.com/colinmarc/hdfs/v2"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/internal/fileshare"
)

var _ backends.Sweeper = (*store)(nil)

// Sweep implements backends.Sweeper. It removes temporary files, and directories that are empty
// afterwards or that a killed writer left empty. For a file that is being written, the NameNode
// reports neither its length nor its last write, but only when it was created.
func (b *store) Sweep(ctx context.Context, prefix string, over func(backends.Orphan) bool) error {
	dir := strings.TrimSuffix(prefix[:strings.LastIndexByte(prefix, '/')+1], "/")
	if dir != "" && checkKey("sweep", dir) != nil {
		return nil // no key has this prefix
	}
	_, err := b.sweepDir(ctx, dir, prefix, over)
	return err
}

// sweepDir reports whether the directory was empty.
func (b *store) sweepDir(ctx context.Context, dir, prefix string, over func(backends.Orphan) bool) (empty bool, err error) {
	after := ""
	for more := true; more; {
		var page []*hdfs.FileStatus
		err := b.with(ctx, "sweep", dir, func(s *session) (err error) {
			page, more, err = s.list("/"+dir, after)
			return err
		})
		if errors.Is(err, fs.ErrNotExist) || notADir(err) {
			return false, nil // it was removed meanwhile or never existed
		}
		if err != nil {
			return false, err
		}
		for _, st := range page {
			name := string(st.GetPath())
			if name == "" {
				return false, nil // dir is a file
			}
			after = name
			if err := b.sweepEntry(ctx, path.Join(dir, name), st, prefix, over); err != nil {
				return false, err
			}
		}
		more = more && len(page) > 0
	}
	return after == "", nil
}

func (b *store) sweepEntry(ctx context.Context, key string, st *hdfs.FileStatus, prefix string, over func(backends.Orphan) bool) error {
	switch {
	case isDir(st) && !fileshare.Reserved(path.Base(key)) && (strings.HasPrefix(key, prefix) || strings.HasPrefix(prefix, key+"/")):
		empty, err := b.sweepDir(ctx, key, prefix, over)
		gone := empty && strings.HasPrefix(key, prefix) &&
			over(backends.Orphan{Key: path.Join(key, fileshare.Temporary), Directory: true, Touched: time.UnixMilli(int64(st.GetModificationTime()))})
		if err != nil || !gone {
			return err
		}
		return b.with(ctx, "sweep", key, func(s *session) error {
			b.prune(s, key)
			return nil
		})
	case st.GetFileType() != isFile, !strings.HasPrefix(path.Base(key), fileshare.Temporary), !strings.HasPrefix(key, prefix):
		return nil
	case !over(backends.Orphan{Key: key, Size: int64(st.GetLength()), Touched: time.UnixMilli(int64(st.GetModificationTime())), Marked: true}):
		return nil
	}
	return b.discard(ctx, "/"+key)
}
