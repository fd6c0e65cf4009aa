package sys

import (
	"slices"

	"golang.org/x/sys/unix"
)

// names maps the names of macOS to those of Linux, where stager distinguishes them. The drivers of
// FAT, exFAT, NTFS and WebDAV invent inode numbers and owners as FUSE does.
var names = map[string]string{
	"smbfs": "smb", "msdos": "fuse", "exfat": "fuse", "ntfs": "fuse", "webdav": "fuse", "lifs": "fuse", "macfuse": "fuse", "osxfuse": "fuse",
}

// local are the file systems on which all writers share one kernel, and thus its locks.
var local = []string{"apfs", "hfs", "msdos", "exfat"}

func describe(st *unix.Statfs_t) FileSystem {
	kind := unix.ByteSliceToString(st.Fstypename[:])
	name, known := names[kind]
	if !known {
		name = kind
	}
	return FileSystem{
		Name: name, Free: int64(st.Bavail) * int64(st.Bsize), Local: slices.Contains(local, kind) && st.Flags&unix.MNT_LOCAL != 0,
		MapsSilently: true, // nothing promises when a mapping sets the times
	}
}
