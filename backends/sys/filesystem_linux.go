package sys

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// names lists the names of file systems by their magic number, as far as stager distinguishes them.
var names = map[int64]string{
	unix.NFS_SUPER_MAGIC: "nfs", unix.SMB_SUPER_MAGIC: "smb", unix.SMB2_SUPER_MAGIC: "smb", unix.CIFS_SUPER_MAGIC: "cifs",
	unix.FUSE_SUPER_MAGIC: "fuse", unix.CEPH_SUPER_MAGIC: "ceph", unix.V9FS_MAGIC: "9p", unix.OVERLAYFS_SUPER_MAGIC: "overlay",
	unix.TMPFS_MAGIC: "tmpfs", unix.EXT4_SUPER_MAGIC: "ext4", unix.XFS_SUPER_MAGIC: "xfs", unix.BTRFS_SUPER_MAGIC: "btrfs",
	unix.PROC_SUPER_MAGIC: "proc",
}

// local are the file systems on which all writers share one kernel, and thus its locks.
var local = map[int64]bool{
	unix.EXT4_SUPER_MAGIC: true, unix.XFS_SUPER_MAGIC: true, unix.BTRFS_SUPER_MAGIC: true, unix.TMPFS_MAGIC: true,
	unix.OVERLAYFS_SUPER_MAGIC: true, unix.F2FS_SUPER_MAGIC: true, unix.RAMFS_MAGIC: true, unix.HUGETLBFS_MAGIC: true,
	0x2fc12fc1: true, // ZFS
	0xca451a4e: true, // bcachefs
	0x3153464a: true, // JFS
	0x52654973: true, // ReiserFS
	0x4d44:     true, // FAT
	0x5346544e: true, // NTFS
	0x2011bab0: true, // exFAT
}

func describe(st *unix.Statfs_t) FileSystem {
	number := int64(st.Type) & 0xffffffff // its type depends on the architecture
	name, known := names[number]
	if !known {
		name = fmt.Sprintf("%#x", number)
	}
	return FileSystem{Name: name, Free: int64(st.Bavail) * st.Bsize, Local: local[number], MapsSilently: name == "tmpfs"}
}
