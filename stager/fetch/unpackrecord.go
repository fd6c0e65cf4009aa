package fetch

import (
	"fmt"
	"io/fs"
	"time"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/stager/unpack"
	"github.com/stager-dev/stager/window/disk"
)

// folderSize stands for the size of a file in a mark about a folder.
const folderSize = -1

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

// addFolder notes that an archive becomes a folder, before it does.
func (r *record) addFolder(obj backends.Object, folder string, kept disk.State, c unpack.Contents) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.writeLocked(line{Path: folder, Size: obj.Size, MTime: kept.ModTime.UnixNano(), Version: archiveVersion(obj), Unpacked: &c, Inode: kept.Inode})
}

// judgeFolder compares a local folder with the archive that is to become it: made is what
// was in the archive when the folder is that, and known whether an earlier run made a
// folder there.
func (r *record) judgeFolder(obj backends.Object, folder string, now disk.State) (made *unpack.Contents, known bool) {
	m, found := r.find(folder)
	c, known := r.folders[m.path]
	if !found || !known {
		return nil, false
	}
	l := line{Size: obj.Size, Version: archiveVersion(obj)}
	same := m.changed == 0 || m.changed == r.changedHash(int64(now.Inode)) // of a folder the inode is kept there
	if same && m.file == r.fileHash(folderSize, now.ModTime.UnixNano(), 0) && m.version == r.hash("archive", l.archive()) {
		return &c, true
	}
	return nil, true
}

// made reports whether an earlier run made a folder of that name.
func (r *record) made(folder string) bool {
	_, known := r.folders[r.hash(r.source, folder)]
	return known
}

// unpacked tells whether a file in the folder of an archive has the time that stager
// gave to those that it unpacked.
func (r *record) unpacked(obj backends.Object, folder string, info fs.FileInfo) bool {
	if !info.Mode().IsRegular() {
		return false
	}
	m, found := r.find(folder)
	return found && m.file == r.fileHash(folderSize, info.ModTime().UnixNano(), 0) || info.ModTime().Equal(obj.ModTime)
}
