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
)

// store is one HDFS. Its keys are paths without the leading slash.
type store struct {
	pool      *pool
	base      string // the URL's directory; directories above it are never removed
	partSize  int64
	blockSize int64 // of files that are written; 0: what the NameNode likes
	replicas  int   // the same
	log       *slog.Logger
	left      backends.Orphans
}

var (
	_ backends.Backend    = (*store)(nil)
	_ backends.KeyChecker = (*store)(nil)
)

// Capabilities are HDFS's: a rename replaces in one step or refuses to, and reads go by the
// file's id, so that they never see another file of the same name.
func (b *store) Capabilities() backends.Capabilities {
	return backends.Capabilities{
		AtomicReplace: true, ConditionalCreate: true, Guard: backends.GuardClaim, PinnedReads: true,
		Parallelism: 16, PartSize: b.partSize,
	}
}

// Close removes what is left of broken writes and ends the connections that are not in
// use.
func (b *store) Close() error {
	b.left.SweepAtClose(b.discard)
	b.pool.close()
	return nil
}

// with lends f a session, which is cut when ctx ends.
func (b *store) with(ctx context.Context, op, key string, f func(*session) error) error {
	s, err := b.pool.get(ctx)
	if err != nil {
		return explain(ctx, op, key, err)
	}
	defer b.pool.put(s)
	stop := context.AfterFunc(ctx, s.cut)
	err = f(s)
	if !stop() {
		s.cut() // now, if the other goroutine has not come to it
	}
	return explain(ctx, op, key, s.judge(err))
}

// judge looks at the outcome of calls in a session. After an answer that does not fit
// the question none will. A NameNode whose first does not has mostly refused the
// greeting, as it does when it takes only clients with Kerberos; the library does not
// tell its reason.
func (s *session) judge(err error) error {
	if err == nil {
		s.served = true
		return nil
	}
	if text := err.Error(); strings.Contains(text, "unexpected sequence number") || strings.Contains(text, "invalid response from namenode") {
		s.broken.Store(true)
		if !s.served {
			return backends.Errorf(backends.Permission, "", "",
				"the NameNode refuses the greeting: it wants Kerberos, which core-site.xml in HADOOP_CONF_DIR or ?namenode-principal= turns on")
		}
	}
	return err
}

// Stat describes one object. An empty file that somebody has open for writing is not
// one: what it will hold does not show until its first block is full, or it is closed.
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

// fileStatus is that of a regular file; kind NotExist for anything else.
func fileStatus(n namenode, op, key string) (*hdfs.FileStatus, error) {
	st, err := n.status("/" + key)
	switch {
	case isException(err, "ParentNotDirectoryException"), belowAFile(err):
		return nil, fs.ErrNotExist // below a file there is nothing
	case err != nil:
		return nil, err
	case isDir(st):
		return nil, backends.Errorf(backends.NotExist, op, key, "this is a directory, not a file")
	case st.GetFileType() != isFile:
		return nil, backends.Errorf(backends.NotExist, op, key, "this is a symbolic link, not a file")
	}
	return st, nil
}

// The file types of Hadoop's protocol, whose names the library keeps to itself.
const (
	fileTypeDir = 1
	isFile      = 2
)

// How Hadoop's protocol tells of erasure coding.
const (
	replicated = 0 // the policy of files that are not
	hasEC      = 4 // a flag
)

func isDir(st *hdfs.FileStatus) bool { return st.GetFileType() == fileTypeDir }

func beingWritten(op, key string) error {
	return backends.Errorf(backends.Changed, op, key,
		"somebody has this file open for writing: wait until it is closed (a writer that died keeps it open for up to an hour; hdfs debug recoverLease closes it)")
}

func isException(err error, class string) bool {
	var remote hdfs.Error
	return errors.As(err, &remote) && strings.HasSuffix(remote.Exception(), "."+class)
}

// belowAFile tells whether a user who is no superuser is refused since a part of the
// path is a file.
func belowAFile(err error) bool {
	var remote hdfs.Error
	return isException(err, "AccessControlException") && errors.As(err, &remote) && strings.Contains(remote.Message(), "is not a directory")
}

// describe is a file as an object. Its version is its id, which no other file of the
// name space ever has, with what an append or a truncation changes.
func describe(key string, st *hdfs.FileStatus) backends.Object {
	return backends.Object{
		Key: key, Size: int64(st.GetLength()), ModTime: time.UnixMilli(int64(st.GetModificationTime())),
		Version: backends.Version(fmt.Sprintf("%x-%x-%x", st.GetFileId(), st.GetLength(), st.GetModificationTime())),
	}
}

// plain refuses files whose blocks are not simply their bytes. The library reads them
// all the same and hands out ciphertext, or a sixth of the file.
func plain(op, key string, st *hdfs.FileStatus) error {
	if st.GetFileEncryptionInfo() != nil {
		return backends.Errorf(backends.Unsupported, op, key,
			"the file lies in an encryption zone, whose key stager cannot ask for: copy it to a directory that is none (hadoop distcp)")
	}
	// Policies that Hadoop brings along are told by their number alone.
	if st.GetEcPolicy().GetId() != replicated || st.GetFlags()&hasEC != 0 {
		return backends.Errorf(backends.Unsupported, op, key,
			"the file is erasure-coded, which stager can neither read nor write: copy it to a directory whose files are replicated (hdfs ec -setPolicy -replicate)")
	}
	return nil
}

// Delete removes a file, and the directories below the URL's that it leaves empty.
func (b *store) Delete(ctx context.Context, key string) error {
	if findable("delete", key) != nil {
		return ended(ctx, "delete", key) // no object has this name
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

// prune removes dir and those it lies in, as far as they are empty and below the
// URL's directory.
func (b *store) prune(s *session, dir string) {
	for ; dir != "." && dir != b.base && (b.base == "" || strings.HasPrefix(dir, b.base+"/")); dir = path.Dir(dir) {
		if s.remove("/"+dir) != nil {
			return
		}
	}
}

// temporary is how the names of files begin that are not written to their end.
const temporary = ".stager-tmp-"

// private is a directory of stager's own, which is no data.
const private = ".stager"

// checkKey refuses keys that are no path of an object.
func checkKey(op, key string) error {
	why := ""
	switch {
	case !fs.ValidPath(key) || key == ".":
		why = `it must be a path without empty, "." and ".." parts, in UTF-8`
	case strings.ContainsAny(key, ":\x00"):
		why = "HDFS takes no colon and no zero byte"
	case hidden(key):
		why = fmt.Sprintf("the names %s and %s… are stager's own", private, temporary)
	default:
		return nil
	}
	return backends.Errorf(backends.Invalid, op, key, "this is no name for a file: %s", why)
}

// CheckKey implements backends.KeyChecker.
func (b *store) CheckKey(key string) error { return checkKey("create", key) }

// findable is checkKey for those who look for a file: what cannot be its name is not
// there.
func findable(op, key string) error {
	if err := checkKey(op, key); err != nil {
		return backends.Errorf(backends.NotExist, op, key, "%w", errors.Unwrap(err))
	}
	return nil
}

// hidden tells whether a key is among stager's own names.
func hidden(key string) bool {
	base := path.Base(key)
	return strings.HasPrefix(base, temporary) || base == private || strings.Contains("/"+key, "/"+private+"/")
}

// ended is the error of a context that is over.
func ended(ctx context.Context, op, key string) error {
	if ctx.Err() == nil {
		return nil
	}
	return &backends.Error{Op: op, Key: key, Kind: backends.Canceled, Err: context.Cause(ctx)}
}
