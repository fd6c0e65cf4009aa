package download

import (
	"fmt"
	"io/fs"
	"time"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/stager/unpack"
	"github.com/stager-dev/stager/window/disk"
)

// dirSize stands for the size of a file in a mark about a directory.
const dirSize = -1

// archive names the version of the archive that a line is about.
func (l line) archive() string { return fmt.Sprintf("%d %s", l.Size, l.Version) }

// archiveVersion tells an archive from others of its key. A store without versions has
// its time to go by.
func archiveVersion(obj backends.Object) string {
	if obj.Version != "" || obj.ModTime.IsZero() {
		return string(obj.Version)
	}
	return obj.ModTime.UTC().Format(time.RFC3339Nano)
}

// addDir notes that an archive becomes a directory, before it does.
func (r *record) addDir(obj backends.Object, directory string, kept disk.State, c unpack.Contents) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.writeLocked(line{Path: directory, Size: obj.Size, MTime: kept.ModTime.UnixNano(), Version: archiveVersion(obj), Unpacked: &c, Inode: kept.Inode})
}

// judgeDir compares a local directory with the archive that is to become it: made is what
// was in the archive when the directory is that, and known whether an earlier run made a
// directory there.
func (r *record) judgeDir(obj backends.Object, directory string, now disk.State) (made *unpack.Contents, known bool) {
	m, found := r.find(directory)
	c, known := r.dirs[m.path]
	if !found || !known {
		return nil, false
	}
	l := line{Size: obj.Size, Version: archiveVersion(obj)}
	same := m.changed == 0 || m.changed == r.changedHash(int64(now.Inode)) // of a directory the inode is kept there
	if same && m.file == r.fileHash(dirSize, now.ModTime.UnixNano(), 0) && m.version == r.hash("archive", l.archive()) {
		return &c, true
	}
	return nil, true
}

// made reports whether an earlier run made a directory of that name.
func (r *record) made(directory string) bool {
	_, known := r.dirs[r.hash(r.source, directory)]
	return known
}

// unpacked tells whether a file in the directory of an archive has the time that stager
// gave to those that it unpacked.
func (r *record) unpacked(obj backends.Object, directory string, info fs.FileInfo) bool {
	if !info.Mode().IsRegular() {
		return false
	}
	m, found := r.find(directory)
	return found && m.file == r.fileHash(dirSize, info.ModTime().UnixNano(), 0) || info.ModTime().Equal(obj.ModTime)
}
