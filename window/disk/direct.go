package disk

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Write says how the bytes of large files get to the disk.
type Write string

const (
	// WriteAuto is WriteDirect where that was seen to be faster: on ext4 and xfs.
	WriteAuto Write = "auto"
	// WriteDirect goes past the page cache: what others have there stays, and what was
	// written is read from the disk. Where the file system refuses, it is WriteBuffered.
	WriteDirect Write = "direct"
	// WriteBuffered leaves what was written in the page cache, as far as it has room.
	WriteBuffered Write = "buffered"
)

// writes are all of them.
var writes = []Write{WriteAuto, WriteDirect, WriteBuffered}

// directFrom is how large a file is at least that is written past the cache: of smaller
// ones the cache holds little, and opening them twice takes longer than it saves.
const directFrom = 8 << 20

// directAlign is what direct writes begin at and are multiples of. It is no less than
// a page, so that none ever shares a page with a write through the cache.
var directAlign = int64(max(4096, os.Getpagesize()))

// writing is how a folder's large files are written.
type writing struct {
	direct  atomic.Bool
	from    int64       // the least size of a file that is written so
	refused func(error) // told once why direct is not what was asked for; may be nil
}

// SetWrite chooses how large files are written that are opened from now on; until it is
// called they are buffered. "" is WriteAuto. Where the file system turns out not to take
// direct writes they are buffered, and refused, if it is not nil, is told why, once. It
// is called before the first Incoming.
func (f *Folder) SetWrite(how Write, refused func(error)) error {
	f.writing.refused, f.writing.from = refused, directFrom
	switch how {
	case "", WriteAuto:
		var st unix.Statfs_t
		if err := unix.Statfs(f.path, &st); err != nil {
			return &os.PathError{Op: "statfs", Path: f.path, Err: err}
		}
		f.writing.direct.Store(slices.Contains([]int64{unix.EXT4_SUPER_MAGIC, unix.XFS_SUPER_MAGIC}, int64(st.Type)))
	case WriteDirect, WriteBuffered:
		f.writing.direct.Store(how == WriteDirect)
	default:
		return fmt.Errorf("%q is not one of %s", string(how), list(writes))
	}
	return nil
}

func list(all []Write) string {
	var names []string
	for _, w := range all {
		names = append(names, string(w))
	}
	return strings.Join(names, ", ")
}

// refuse goes on through the cache, from the first refusal on.
func (w *writing) refuse(err error) {
	if w.direct.Swap(false) && w.refused != nil {
		w.refused(err)
	}
}

// isRefusal tells whether the file system does not take direct writes, or not of this
// alignment.
func isRefusal(err error) bool {
	return errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP)
}

// openDirect opens the file once more for direct writes, where they are wanted.
func (in *Incoming) openDirect() error {
	w := &in.folder.writing
	if in.size < w.from || !w.direct.Load() {
		return nil
	}
	file, err := in.folder.incoming.OpenFile(in.name, os.O_WRONLY|unix.O_DIRECT, 0)
	if err != nil && isRefusal(err) {
		w.refuse(err)
		return nil
	}
	in.direct = file
	return err
}

// write puts p at off: whole pages of aligned memory past the cache, the rest through it.
//
// A page is only ever written in one of the two ways while a file is on its way: a
// direct write takes whole pages, and ReadRange brings each byte once, so that the page
// on which a stream broke is finished through the cache.
func (in *Incoming) write(p []byte, off int64) (n int, err error) {
	if in.direct != nil && off%directAlign == 0 && in.folder.writing.direct.Load() && isAligned(p) {
		whole := len(p) - len(p)%int(directAlign)
		n, err = in.direct.WriteAt(p[:whole], off)
		switch {
		case err == nil:
		case n == 0 && isRefusal(err):
			in.folder.writing.refuse(err)
		default:
			return n, err
		}
	}
	if n == len(p) {
		return n, nil
	}
	m, err := in.file.WriteAt(p[n:], off+int64(n))
	return n + m, err
}

// isAligned tells whether p begins where direct writes may.
func isAligned(p []byte) bool {
	return uintptr(unsafe.Pointer(unsafe.SliceData(p)))%4096 == 0
}
