package download

import (
	"fmt"
	"io/fs"
	"time"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/stager/unpack"
	"github.com/stager-dev/stager/window/disk"
)

// dirSize replaces the file size in a mark about a directory.
const dirSize = -1

// archive identifies the version of a line's archive.
func (l line) archive() string { return fmt.Sprintf("%d %s", l.Size, l.Version) }

// archiveVersion distinguishes archives with the same key. If the store has no versions, it uses
// the time.
func archiveVersion(obj backends.Object) string {
	if obj.Version != "" || obj.ModTime.IsZero() {
		return string(obj.Version)
	}
	return obj.ModTime.UTC().Format(time.RFC3339Nano)
}

// addDir records that an archive becomes a directory, before it does.
func (r *record) addDir(obj backends.Object, directory string, kept disk.State, c unpack.Contents) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.writeLocked(line{Path: directory, Size: obj.Size, MTime: kept.ModTime.UnixNano(), Version: archiveVersion(obj), Unpacked: &c, Inode: kept.Inode})
}

// judgeDir compares a local directory with the archive for its path. made describes the archive's
// contents if the directory is current. known reports whether an earlier run created a directory
// there.
func (r *record) judgeDir(obj backends.Object, directory string, now disk.State) (made *unpack.Contents, known bool) {
	c, known := r.dirs[r.hash(r.source, directory)]
	marks := r.find(directory)
	if len(marks) == 0 || !known {
		return nil, false
	}
	m := marks[0]
	l := line{Size: obj.Size, Version: archiveVersion(obj)}
	same := m.changed == 0 || m.changed == r.changedHash(int64(now.Inode)) // for a directory the field holds the inode
	if same && m.file == r.fileHash(dirSize, now.ModTime.UnixNano(), 0) && m.version == r.hash("archive", l.archive()) {
		return &c, true
	}
	return nil, true
}

// made reports whether an earlier run created a directory of that name.
func (r *record) made(directory string) bool {
	_, known := r.dirs[r.hash(r.source, directory)]
	return known
}

// unpacked reports whether a file in an archive's directory has the time that stager gave to the
// files that it unpacked.
func (r *record) unpacked(obj backends.Object, directory string, info fs.FileInfo) bool {
	if !info.Mode().IsRegular() {
		return false
	}
	marks := r.find(directory)
	return len(marks) > 0 && marks[0].file == r.fileHash(dirSize, info.ModTime().UnixNano(), 0) || info.ModTime().Equal(obj.ModTime)
}
