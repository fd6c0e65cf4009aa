package lossyfs

import (
	"errors"
	"fmt"
	"maps"
	"os/exec"
	"slices"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fuse"
)

// Mount mounts the file system on a directory, which is absolute, until unmount is called or
// the process ends. It needs root and /dev/fuse.
func (f *FS) Mount(dir string) (unmount func() error, err error) {
	server, err := fuse.NewServer(&kernel{RawFileSystem: fuse.NewDefaultRawFileSystem(), fs: f}, dir, &fuse.MountOptions{
		DirectMountStrict: true, FsName: "lossyfs", Name: "lossyfs", DisableXAttrs: true, DisableReadDirPlus: true,
		AllowOther: true, MaxWrite: 128 << 10,
	})
	if err != nil {
		return nil, fmt.Errorf("mount a file system on %s: %w", dir, err)
	}
	go server.Serve()
	if err := server.WaitMount(); err != nil {
		return nil, errors.Join(err, server.Unmount())
	}
	release, err := guard(dir)
	if err != nil {
		return nil, errors.Join(err, server.Unmount())
	}
	return func() error {
		defer release()
		if server.Unmount() == nil {
			return nil
		}
		// A process that just ended, or one that is being forked, still has a file open.
		return syscall.Unmount(dir, syscall.MNT_DETACH)
	}, nil
}

// guard starts a process that unmounts dir when this one has ended, however it did: a test
// that is cut off left mounts that answer every call with an error. release ends the guard.
func guard(dir string) (release func(), err error) {
	cmd := exec.Command("sh", "-c", `cat >/dev/null; umount -l "$0" 2>/dev/null`, dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // what ends this process's group spares it
	alive, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("guard the mount on %s: %w", dir, err)
	}
	return func() {
		_ = alive.Close() // which ends it
		_ = cmd.Wait()    // there may be nothing left to unmount
	}, nil
}

// kernel answers the kernel's requests.
type kernel struct {
	fuse.RawFileSystem
	fs *FS
}

// enter locks the file system, has the call fail if it is to fail, and finds the inode.
func (k *kernel) enter(what string, ino uint64, name string) (*node, fuse.Status) {
	k.fs.mu.Lock()
	if errno := k.fs.failLocked(what, ino, name); errno != 0 && errno != Short {
		return nil, fuse.Status(errno)
	}
	n := k.fs.state.nodes[ino]
	if n == nil {
		return nil, fuse.Status(syscall.ESTALE)
	}
	return n, fuse.OK
}

func (k *kernel) leave() { k.fs.mu.Unlock() }

func fill(n *node, out *fuse.Attr) {
	*out = fuse.Attr{
		Ino: n.id, Size: uint64(len(n.data)), Blocks: uint64((len(n.data)+4095)/4096) * 8, Mode: n.mode, Nlink: uint32(n.links),
		Mtime: uint64(n.mtime / 1e9), Mtimensec: uint32(n.mtime % 1e9), Ctime: uint64(n.ctime / 1e9), Ctimensec: uint32(n.ctime % 1e9),
		Atime: uint64(n.mtime / 1e9), Atimensec: uint32(n.mtime % 1e9),
		Owner: fuse.Owner{Uid: n.uid, Gid: n.gid}, Blksize: 4096,
	}
	if n.isDir() {
		out.Nlink, out.Size, out.Blocks = 2, 4096, 8
	} else if n.target != "" {
		out.Size = uint64(len(n.target))
	}
}

func answer(n *node, out *fuse.EntryOut) {
	*out = fuse.EntryOut{NodeId: n.id, Generation: 1}
	fill(n, &out.Attr)
}

func (k *kernel) Lookup(_ <-chan struct{}, header *fuse.InHeader, name string, out *fuse.EntryOut) fuse.Status {
	dir, status := k.enter("lookup", header.NodeId, name)
	defer k.leave()
	if !status.Ok() {
		return status
	}
	n := k.fs.state.nodes[dir.entries[name]]
	if n == nil {
		return fuse.ENOENT
	}
	answer(n, out)
	return fuse.OK
}

func (k *kernel) GetAttr(_ <-chan struct{}, in *fuse.GetAttrIn, out *fuse.AttrOut) fuse.Status {
	n, status := k.enter("getattr", in.NodeId, "")
	defer k.leave()
	if status.Ok() {
		fill(n, &out.Attr)
	}
	return status
}

func (k *kernel) SetAttr(_ <-chan struct{}, in *fuse.SetAttrIn, out *fuse.AttrOut) fuse.Status {
	n, status := k.enter("setattr", in.NodeId, "")
	defer k.leave()
	if !status.Ok() {
		return status
	}
	attr := &node{mode: n.mode, uid: n.uid, gid: n.gid, mtime: n.mtime}
	if mode, ok := in.GetMode(); ok {
		attr.mode = n.mode&syscall.S_IFMT | mode&0o7777
	}
	if uid, ok := in.GetUID(); ok {
		attr.uid = uid
	}
	if gid, ok := in.GetGID(); ok {
		attr.gid = gid
	}
	if at, ok := in.GetMTime(); ok {
		attr.mtime = at.UnixNano()
	}
	if size, ok := in.GetSize(); ok {
		k.fs.noteLocked(op{what: opTruncate, ino: n.id, size: int64(size)})
	}
	if attr.mode != n.mode || attr.uid != n.uid || attr.gid != n.gid || attr.mtime != n.mtime {
		k.fs.noteLocked(op{what: opAttr, ino: n.id, attr: attr})
	}
	fill(n, &out.Attr)
	return fuse.OK
}

// create makes what did not exist.
func (k *kernel) create(what string, header *fuse.InHeader, name string, mode uint32, target string, out *fuse.EntryOut) fuse.Status {
	dir, status := k.enter(what, header.NodeId, name)
	defer k.leave()
	switch {
	case !status.Ok():
		return status
	case k.fs.state.nodes[dir.entries[name]] != nil:
		return fuse.Status(syscall.EEXIST)
	}
	answer(k.fs.makeLocked(dir, name, mode, header.Uid, header.Gid, target), out)
	return fuse.OK
}

func (k *kernel) Mknod(_ <-chan struct{}, in *fuse.MknodIn, name string, out *fuse.EntryOut) fuse.Status {
	return k.create("mknod", &in.InHeader, name, in.Mode, "", out)
}

func (k *kernel) Mkdir(_ <-chan struct{}, in *fuse.MkdirIn, name string, out *fuse.EntryOut) fuse.Status {
	return k.create("mkdir", &in.InHeader, name, syscall.S_IFDIR|in.Mode&0o7777, "", out)
}

func (k *kernel) Symlink(_ <-chan struct{}, header *fuse.InHeader, target, name string, out *fuse.EntryOut) fuse.Status {
	return k.create("symlink", header, name, syscall.S_IFLNK|0o777, target, out)
}

func (k *kernel) Create(_ <-chan struct{}, in *fuse.CreateIn, name string, out *fuse.CreateOut) fuse.Status {
	return k.create("create", &in.InHeader, name, syscall.S_IFREG|in.Mode&0o7777, "", &out.EntryOut)
}

func (k *kernel) Readlink(_ <-chan struct{}, header *fuse.InHeader) ([]byte, fuse.Status) {
	n, status := k.enter("readlink", header.NodeId, "")
	defer k.leave()
	if !status.Ok() {
		return nil, status
	}
	return []byte(n.target), fuse.OK
}

func (k *kernel) remove(what string, header *fuse.InHeader, name string) fuse.Status {
	dir, status := k.enter(what, header.NodeId, name)
	defer k.leave()
	if !status.Ok() {
		return status
	}
	n := k.fs.state.nodes[dir.entries[name]]
	switch {
	case n == nil:
		return fuse.ENOENT
	case n.isDir() && len(n.entries) > 0:
		return fuse.Status(syscall.ENOTEMPTY)
	}
	k.fs.noteLocked(op{what: opNames, names: []entry{{dir.id, name, 0}}, path: "remove " + k.fs.names[n.id]})
	return fuse.OK
}

func (k *kernel) Unlink(_ <-chan struct{}, header *fuse.InHeader, name string) fuse.Status {
	return k.remove("unlink", header, name)
}

func (k *kernel) Rmdir(_ <-chan struct{}, header *fuse.InHeader, name string) fuse.Status {
	return k.remove("rmdir", header, name)
}

func (k *kernel) Link(_ <-chan struct{}, in *fuse.LinkIn, name string, out *fuse.EntryOut) fuse.Status {
	dir, status := k.enter("link", in.NodeId, name)
	defer k.leave()
	n := k.fs.state.nodes[in.Oldnodeid]
	switch {
	case !status.Ok():
		return status
	case n == nil:
		return fuse.Status(syscall.ESTALE)
	case k.fs.state.nodes[dir.entries[name]] != nil:
		return fuse.Status(syscall.EEXIST)
	}
	k.fs.noteLocked(op{what: opNames, names: []entry{{dir.id, name, n.id}}, path: "link " + k.fs.names[n.id] + " " + name})
	answer(n, out)
	return fuse.OK
}

const (
	renameNoReplace = 1
	renameExchange  = 2
)

func (k *kernel) Rename(_ <-chan struct{}, in *fuse.RenameIn, from, to string) fuse.Status {
	dir, status := k.enter("rename", in.NodeId, from)
	defer k.leave()
	if !status.Ok() {
		return status
	}
	into := k.fs.state.nodes[in.Newdir]
	if into == nil {
		return fuse.Status(syscall.ESTALE)
	}
	n, old := k.fs.state.nodes[dir.entries[from]], k.fs.state.nodes[into.entries[to]]
	back := uint64(0)
	switch {
	case n == nil, in.Flags&renameExchange != 0 && old == nil:
		return fuse.ENOENT
	case in.Flags&renameNoReplace != 0 && old != nil:
		return fuse.Status(syscall.EEXIST)
	case in.Flags&renameExchange != 0:
		back = old.id
	case old == n:
		return fuse.OK
	case old != nil && old.isDir() && len(old.entries) > 0:
		return fuse.Status(syscall.ENOTEMPTY)
	}
	before := k.fs.names[n.id]
	k.fs.names[n.id] = k.fs.names[into.id] + "/" + to
	k.fs.noteLocked(op{
		what: opNames, names: []entry{{into.id, to, n.id}, {dir.id, from, back}},
		path: "rename " + before + " " + k.fs.names[n.id],
	})
	return fuse.OK
}

func (k *kernel) Open(_ <-chan struct{}, in *fuse.OpenIn, _ *fuse.OpenOut) fuse.Status {
	n, status := k.enter("open", in.NodeId, "")
	defer k.leave()
	if status.Ok() && in.Flags&syscall.O_TRUNC != 0 && len(n.data) > 0 {
		k.fs.noteLocked(op{what: opTruncate, ino: n.id})
	}
	return status
}

func (k *kernel) Read(_ <-chan struct{}, in *fuse.ReadIn, buf []byte) (fuse.ReadResult, fuse.Status) {
	n, status := k.enter("read", in.NodeId, "")
	defer k.leave()
	if !status.Ok() {
		return nil, status
	}
	return fuse.ReadResultData(buf[:copy(buf, n.data[min(int(in.Offset), len(n.data)):])]), fuse.OK
}

func (k *kernel) Write(_ <-chan struct{}, in *fuse.WriteIn, data []byte) (uint32, fuse.Status) {
	k.fs.mu.Lock()
	defer k.leave()
	errno := k.fs.failLocked("write", in.NodeId, "")
	n := k.fs.state.nodes[in.NodeId]
	switch {
	case errno == Short:
		data = data[:1]
	case errno != 0:
		return 0, fuse.Status(errno)
	case n == nil:
		return 0, fuse.Status(syscall.ESTALE)
	}
	k.fs.noteLocked(op{what: opWrite, ino: n.id, off: int64(in.Offset), data: slices.Clone(data)})
	return uint32(len(data)), fuse.OK
}

func (k *kernel) Fallocate(_ <-chan struct{}, in *fuse.FallocateIn) fuse.Status {
	n, status := k.enter("fallocate", in.NodeId, "")
	defer k.leave()
	switch {
	case !status.Ok():
		return status
	case in.Mode&1 != 0: // the size stays
		return fuse.OK
	case in.Mode != 0:
		return fuse.Status(syscall.EOPNOTSUPP)
	}
	if end := int64(in.Offset + in.Length); end > int64(len(n.data)) {
		k.fs.noteLocked(op{what: opTruncate, ino: n.id, size: end})
	}
	return fuse.OK
}

func (k *kernel) Fsync(_ <-chan struct{}, in *fuse.FsyncIn) fuse.Status {
	n, status := k.enter("fsync", in.NodeId, "")
	defer k.leave()
	if status.Ok() {
		k.fs.noteLocked(op{what: opSync, ino: n.id})
	}
	return status
}

func (k *kernel) FsyncDir(cancel <-chan struct{}, in *fuse.FsyncIn) fuse.Status {
	return k.Fsync(cancel, in)
}

func (k *kernel) OpenDir(_ <-chan struct{}, in *fuse.OpenIn, _ *fuse.OpenOut) fuse.Status {
	_, status := k.enter("opendir", in.NodeId, "")
	defer k.leave()
	return status
}

func (k *kernel) ReadDir(_ <-chan struct{}, in *fuse.ReadIn, out *fuse.DirEntryList) fuse.Status {
	dir, status := k.enter("readdir", in.NodeId, "")
	defer k.leave()
	if !status.Ok() {
		return status
	}
	// An offset is the inode number of the entry before, so that removals move nothing. A
	// second link of a file in one directory is listed right after the first.
	type item struct {
		name string
		ino  uint64
	}
	var items []item
	for name, ino := range maps.All(dir.entries) {
		items = append(items, item{name, ino})
	}
	slices.SortFunc(items, func(a, b item) int { return int(a.ino) - int(b.ino) })
	for _, i := range items {
		if i.ino <= in.Offset {
			continue
		}
		if !out.AddDirEntry(fuse.DirEntry{Name: i.name, Ino: i.ino, Mode: k.fs.state.nodes[i.ino].mode, Off: i.ino}) {
			break
		}
	}
	return fuse.OK
}

func (k *kernel) StatFs(_ <-chan struct{}, in *fuse.InHeader, out *fuse.StatfsOut) fuse.Status {
	_, status := k.enter("statfs", in.NodeId, "")
	defer k.leave()
	*out = fuse.StatfsOut{Blocks: 1 << 20, Bfree: 1 << 20, Bavail: 1 << 20, Files: 1 << 20, Ffree: 1 << 20, Bsize: 4096, Frsize: 4096, NameLen: 255}
	return status
}

func (k *kernel) Flush(<-chan struct{}, *fuse.FlushIn) fuse.Status { return fuse.OK }

func (k *kernel) Access(<-chan struct{}, *fuse.AccessIn) fuse.Status { return fuse.ENOSYS }
