package hdfs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path"
	"strings"
	"time"

	"github.com/colinmarc/hdfs/v2"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/internal/fileshare"
)

// store is an HDFS file system. Its keys are paths without the leading slash.
type store struct {
	pool      *pool
	base      string // directory of the URL; its parents are never removed
	partSize  int64
	blockSize int64 // for written files; 0: the default of the NameNode
	replicas  int   // likewise
	log       *slog.Logger
	left      backends.Orphans
}

var (
	_ backends.Backend    = (*store)(nil)
	_ backends.KeyChecker = (*store)(nil)
)

// Capabilities implements backends.Backend. A rename replaces or fails atomically. Reads go by file
// id, so they never return data of another file with the same name.
func (b *store) Capabilities() backends.Capabilities {
	return backends.Capabilities{
		AtomicReplace: true, ConditionalCreate: true, Guard: backends.GuardClaim, PinnedReads: true,
		Parallelism: 16, PartSize: b.partSize,
	}
}

// Close removes the temporary files of failed writes and closes idle connections.
func (b *store) Close() error {
	b.left.SweepAtClose(b.discard)
	b.pool.close()
	return nil
}

// with runs f with a session from the pool, and cuts the session when ctx ends.
func (b *store) with(ctx context.Context, op, key string, f func(*session) error) error {
	s, err := b.pool.get(ctx)
	if err != nil {
		return explain(ctx, op, key, err)
	}
	defer b.pool.put(s)
	stop := context.AfterFunc(ctx, s.cut)
	err = f(s)
	if !stop() {
		s.cut() // at once, in case the goroutine of AfterFunc has not run yet
	}
	return explain(ctx, op, key, s.judge(err))
}

// judge returns the error of a call. After a response that does not match its request, the session
// is broken: the library takes each later response for the previous one.
func (s *session) judge(err error) error {
	if err == nil {
		return nil
	}
	if text := err.Error(); strings.Contains(text, "unexpected sequence number") || strings.Contains(text, "invalid response from namenode") {
		s.broken.Store(true)
	}
	return err
}

// Stat implements backends.Source. An empty file that is open for writing is not an object: its
// length is unknown until its first block is full or it is closed.
func (b *store) Stat(ctx context.Context, key string) (obj backends.Object, err error) {
	if err := findable("stat", key); err != nil {
		return obj, err
	}
	err = b.with(ctx, "stat", key, func(s *session) error {
		st, err := fileStatus(s.namenode, "stat", key)
		if err != nil {
			return err
		}
		if st.GetLength() == 0 {
			if open, err := s.beingWritten("/" + key); err != nil {
				return err
			} else if open {
				return beingWritten("stat", key)
			}
		}
		obj = describe(key, st)
		return nil
	})
	return obj, err
}

// fileStatus returns the status of a regular file, and kind NotExist for anything else.
func fileStatus(n *namenode, op, key string) (*hdfs.FileStatus, error) {
	st, err := n.status("/" + key)
	switch {
	case isException(err, "ParentNotDirectoryException"), belowAFile(err):
		return nil, fs.ErrNotExist // the path goes through a file
	case err != nil:
		return nil, err
	case isDir(st):
		return nil, backends.Errorf(backends.NotExist, op, key, "this is a directory, not a file")
	case st.GetFileType() != isFile:
		return nil, backends.Errorf(backends.NotExist, op, key, "this is a symbolic link, not a file")
	}
	return st, nil
}

// File types of Hadoop's protocol. The library does not export them.
const (
	fileTypeDir = 1
	isFile      = 2
)

// Encoding of erasure coding in Hadoop's protocol.
const (
	replicated = 0 // policy id of files that are not erasure-coded
	hasEC      = 4 // flag
)

func isDir(st *hdfs.FileStatus) bool { return st.GetFileType() == fileTypeDir }

func beingWritten(op, key string) error {
	return backends.Errorf(backends.Changed, op, key,
		"another client has this file open for writing: wait until it is closed (a dead writer keeps it open for up to an hour; hdfs debug recoverLease closes it)")
}

func isException(err error, class string) bool {
	var remote hdfs.Error
	return errors.As(err, &remote) && strings.HasSuffix(remote.Exception(), "."+class)
}

// belowAFile reports whether a NameNode denied access because a parent in the path is a file. It
// returns this error to users that are not superusers.
func belowAFile(err error) bool {
	var remote hdfs.Error
	return isException(err, "AccessControlException") && errors.As(err, &remote) && strings.Contains(remote.Message(), "is not a directory")
}

// describe returns the object for a file. The version contains the file id, which is never reused
// in the name space, and the properties that an append or a truncation changes.
func describe(key string, st *hdfs.FileStatus) backends.Object {
	return backends.Object{
		Key: key, Size: int64(st.GetLength()), ModTime: time.UnixMilli(int64(st.GetModificationTime())),
		Version: backends.Version(fmt.Sprintf("%x-%x-%x", st.GetFileId(), st.GetLength(), st.GetModificationTime())),
	}
}

// plain rejects files whose blocks do not simply hold their bytes. The library would return
// ciphertext, or a sixth of the file.
func plain(op, key string, st *hdfs.FileStatus) error {
	if st.GetFileEncryptionInfo() != nil {
		return backends.Errorf(backends.Unsupported, op, key,
			"the file is in an encryption zone, whose key stager cannot fetch: copy it to a directory outside of it (hadoop distcp)")
	}
	// Hadoop's built-in policies are identified only by their number.
	if st.GetEcPolicy().GetId() != replicated || st.GetFlags()&hasEC != 0 {
		return backends.Errorf(backends.Unsupported, op, key,
			"the file is erasure-coded, which stager can neither read nor write: copy it to a directory whose files are replicated (hdfs ec -setPolicy -replicate)")
	}
	return nil
}

// Delete implements backends.Sink. It also removes directories that become empty, below that of the
// URL.
func (b *store) Delete(ctx context.Context, key string) error {
	if findable("delete", key) != nil {
		return fileshare.Ended(ctx, "delete", key) // no object has this name
	}
	err := b.with(ctx, "delete", key, func(s *session) error {
		if _, err := fileStatus(s.namenode, "delete", key); err != nil {
			return err
		}
		if err := s.remove("/" + key); err != nil {
			return err
		}
		b.prune(s, path.Dir(key))
		return nil
	})
	if backends.KindOf(err) == backends.NotExist {
		return nil
	}
	return err
}

// prune removes dir and its parents as long as they are empty and below the directory of the URL.
func (b *store) prune(s *session, dir string) {
	fileshare.Prune(dir, b.base, func(dir string) error { return s.remove("/" + dir) })
}

// checkKey rejects keys that cannot be the path of an object.
func checkKey(op, key string) error {
	if strings.Contains(key, ":") {
		return backends.Errorf(backends.Invalid, op, key, "invalid file name: HDFS does not allow colons")
	}
	return fileshare.CheckKey(op, key)
}

// CheckKey implements backends.KeyChecker.
func (b *store) CheckKey(key string) error { return checkKey("create", key) }

// findable is checkKey for lookups: a key that cannot exist returns kind NotExist.
func findable(op, key string) error {
	if err := checkKey(op, key); err != nil {
		return backends.Errorf(backends.NotExist, op, key, "%w", errors.Unwrap(err))
	}
	return nil
}
