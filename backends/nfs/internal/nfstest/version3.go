package nfstest

import (
	"bytes"
	"fmt"
	"io"

	"github.com/buildbarn/go-xdr/pkg/protocols/mount"
	"github.com/buildbarn/go-xdr/pkg/protocols/nfsv3"
	"github.com/buildbarn/go-xdr/pkg/protocols/nfsv4"
)

// procedures is added to the procedures of version 3, so that they share the counters and scripts
// with the operations of version 4.
const procedures = 1 << 20

// Next3 scripts faults for the next calls of a procedure of version 3.
func (s *Server) Next3(proc uint32, faults ...Fault) {
	s.Next(nfsv4.NfsOpnum4(procedures+proc), faults...)
}

// Count3 returns how often a procedure of version 3 was called.
func (s *Server) Count3(proc uint32) int { return s.Count(nfsv4.NfsOpnum4(procedures + proc)) }

// mount serves the mount service. Everything in the root is an export.
func (s *Server) mount(proc uint32, in io.Reader, out *bytes.Buffer) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch proc {
	case 1:
		dir, _, err := mount.ReadDirpath(in)
		if err != nil {
			return fmt.Errorf("%w: %w", errArguments, err)
		}
		n := s.findLocked(dir)
		switch {
		case n == nil:
			out.Write(words(uint32(nfsv4.NFS4ERR_NOENT)))
			return nil
		case n == s.root && s.ReadOnlyRoot:
			out.Write(words(uint32(nfsv4.NFS4ERR_ACCESS)))
			return nil
		case n.kind != directory:
			out.Write(words(uint32(nfsv4.NFS4ERR_NOTDIR)))
			return nil
		}
		out.Write(words(0))
		_, err = (&mount.Mountres3Ok{Fhandle: n.handle(), AuthFlavors: []int32{1}}).WriteTo(out)
		return err
	case 5:
		var list *mount.Exportnode
		for _, name := range s.root.sorted() {
			list = &mount.Exportnode{ExDir: "/" + name, ExGroups: &mount.Groupnode{GrName: "everybody"}, ExNext: list}
		}
		_, err := mount.WriteExports(out, list)
		return err
	}
	return errArguments
}

// version3 executes a procedure and writes its response.
func (s *Server) version3(proc uint32, in io.Reader, out *bytes.Buffer) (Fault, error) {
	s.mu.Lock()
	s.counts[procedures+proc]++
	fault, _ := s.takeLocked(procedures + proc)
	s.mu.Unlock()
	if fault.Do != nil {
		fault.Do()
	}
	if fault.Cut == CutBefore {
		return fault, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	status, body := fault.Status, io.WriterTo(nil)
	if status == nfsv4.NFS4_OK {
		var err error
		if status, body, err = s.procedureLocked(proc, in); err != nil {
			return fault, fmt.Errorf("%w: %w", errArguments, err)
		}
	}
	out.Write(words(uint32(status)))
	if status != nfsv4.NFS4_OK {
		out.Write(words(0, 0)) // no attributes before or after
		return fault, nil
	}
	_, err := body.WriteTo(out)
	return fault, err
}

// procedureLocked executes a procedure and returns its status and results. An error reports
// malformed arguments.
func (s *Server) procedureLocked(proc uint32, in io.Reader) (status nfsv4.Nfsstat4, body io.WriterTo, err error) {
	const ok = nfsv4.NFS4_OK
	at := func(h nfsv3.NfsFh3) *node {
		n := s.nodeLocked(h.Data)
		if n == nil {
			status = nfsv4.NFS4ERR_STALE
			n = &node{}
		}
		return n
	}
	read := func(args io.ReaderFrom) bool {
		_, err = args.ReadFrom(in)
		return err == nil
	}
	made := func(dir nfsv3.NfsFh3, name string, k kind) *node {
		d := at(dir)
		if status != ok {
			return nil
		}
		n, st := s.makeLocked(d, name, k)
		status = st
		return n
	}
	switch proc {
	case 1:
		var a nfsv3.Getattr3args
		if read(&a) {
			body = &nfsv3.Getattr3resok{ObjAttributes: at(a.Object).attributes3()}
		}
	case 3:
		var a nfsv3.Lookup3args
		if read(&a) {
			if dir := at(a.What.Dir); status == ok {
				var n *node
				if n, status = s.childLocked(dir, a.What.Name); status == ok {
					body = &nfsv3.Lookup3resok{Object: n.handle3(), ObjAttributes: n.known3(), DirAttributes: dir.known3()}
				}
			}
		}
	case 5:
		var a nfsv3.Readlink3args
		if read(&a) {
			n := at(a.Symlink)
			body = &nfsv3.Readlink3resok{SymlinkAttributes: n.known3(), Data: string(n.data)}
		}
	case 6:
		var a nfsv3.Read3args
		if read(&a) {
			n, most := at(a.File), uint64(a.Count)
			if s.MaxRead > 0 {
				most = min(most, uint64(s.MaxRead))
			}
			data, eof := n.readAt(a.Offset, most)
			body = &nfsv3.Read3resok{FileAttributes: n.known3(), Count: uint32(len(data)), Eof: eof, Data: data}
		}
	case 7:
		var a nfsv3.Write3args
		if read(&a) {
			n, data := at(a.File), s.cutToWrite(a.Data)
			n.writeAt(data, int(a.Offset), a.Stable != nfsv3.UNSTABLE)
			body = &nfsv3.Write3resok{FileWcc: change3(), Count: uint32(len(data)), Committed: a.Stable, Verf: s.verifier}
		}
	case 8:
		var a nfsv3.Create3args
		if read(&a) {
			n := made(a.Where.Dir, a.Where.Name, regular)
			if _, unchecked := a.How.(*nfsv3.Createhow3_UNCHECKED); unchecked && status == nfsv4.NFS4ERR_EXIST {
				n, status = s.childLocked(at(a.Where.Dir), a.Where.Name)
			}
			if status == ok {
				body = &nfsv3.Create3resok{Obj: &nfsv3.PostOpFh3_TRUE{Handle: n.handle3()}, ObjAttributes: n.known3(), DirWcc: change3()}
			}
		}
	case 9:
		var a nfsv3.Mkdir3args
		if read(&a) {
			if n := made(a.Where.Dir, a.Where.Name, directory); status == ok {
				body = &nfsv3.Mkdir3resok{Obj: &nfsv3.PostOpFh3_TRUE{Handle: n.handle3()}, ObjAttributes: n.known3(), DirWcc: change3()}
			}
		}
	case 12, 13:
		var a nfsv3.Remove3args
		if read(&a) {
			body = &nfsv3.Remove3resok{DirWcc: change3()}
			if dir := at(a.Object.Dir); status == ok {
				status = s.removeLocked(dir, a.Object.Name)
			}
		}
	case 14:
		var a nfsv3.Rename3args
		if read(&a) {
			body = &nfsv3.Rename3resok{FromdirWcc: change3(), TodirWcc: change3()}
			if from, to := at(a.From.Dir), at(a.To.Dir); status == ok {
				status = s.renameLocked(from, a.From.Name, to, a.To.Name)
			}
		}
	case 15:
		var a nfsv3.Link3args
		if read(&a) {
			body = &nfsv3.Link3resok{FileAttributes: &nfsv3.PostOpAttr_FALSE{}, LinkdirWcc: change3()}
			if n, dir := at(a.File), at(a.Link.Dir); status == ok {
				status = s.linkLocked(n, dir, a.Link.Name)
			}
		}
	case 16:
		var a nfsv3.Readdir3args
		if read(&a) {
			body = s.names3(at(a.Dir), &a)
		}
	case 17:
		var a nfsv3.Readdirplus3args
		if s.NoPlus {
			return nfsv4.NFS4ERR_NOTSUPP, nil, nil
		}
		if read(&a) {
			body = s.list3(at(a.Dir), &a)
		}
	case 19:
		var a nfsv3.Fsinfo3args
		if read(&a) {
			n := at(a.Fsroot)
			body = &nfsv3.Fsinfo3resok{ObjAttributes: n.known3(), Rtmax: 1 << 20, Wtmax: 1 << 20}
		}
	case 21:
		var a nfsv3.Commit3args
		if read(&a) {
			n := at(a.File)
			n.durable = bytes.Clone(n.data)
			body = &nfsv3.Commit3resok{FileWcc: change3(), Verf: s.verifier}
		}
	default:
		err = errArguments
	}
	return status, body, err
}

// list3 omits the attributes of every third name, as servers may.
func (s *Server) list3(dir *node, a *nfsv3.Readdirplus3args) *nfsv3.Readdirplus3resok {
	list := nfsv3.Dirlistplus3{Eof: true}
	last := &list.Entries
	size := uint32(0)
	for i, name := range append([]string{".", ".."}, dir.sorted()...) {
		cookie := uint64(i) + 1
		if cookie <= a.Cookie {
			continue
		}
		if size += uint32(len(name)) + 200; size > a.Maxcount {
			list.Eof = false
			break
		}
		e := &nfsv3.Entryplus3{Name: name, Cookie: cookie, NameAttributes: &nfsv3.PostOpAttr_FALSE{}, NameHandle: &nfsv3.PostOpFh3_FALSE{}}
		if n := dir.names[name]; n != nil && i%3 != 0 {
			e.Fileid, e.NameAttributes = n.id, n.known3()
		}
		*last = e
		last = &e.Nextentry
	}
	return &nfsv3.Readdirplus3resok{DirAttributes: dir.known3(), Reply: list}
}

// names3 serves READDIR.
func (s *Server) names3(dir *node, a *nfsv3.Readdir3args) *nfsv3.Readdir3resok {
	list := nfsv3.Dirlist3{Eof: true}
	last := &list.Entries
	size := uint32(0)
	for i, name := range append([]string{".", ".."}, dir.sorted()...) {
		cookie := uint64(i) + 1
		if cookie <= a.Cookie {
			continue
		}
		if size += uint32(len(name)) + 24; size > a.Count {
			list.Eof = false
			break
		}
		e := &nfsv3.Entry3{Name: name, Cookie: cookie}
		*last = e
		last = &e.Nextentry
	}
	return &nfsv3.Readdir3resok{DirAttributes: dir.known3(), Reply: list}
}

func (n *node) handle3() nfsv3.NfsFh3 { return nfsv3.NfsFh3{Data: n.handle()} }

func (n *node) attributes3() nfsv3.Fattr3 {
	at := nfsv3.Nfstime3{Seconds: uint32(n.changed.Unix()), Nseconds: uint32(n.changed.Nanosecond())}
	return nfsv3.Fattr3{
		Type: nfsv3.Ftype3(n.kind), Nlink: uint32(n.links), Size: uint64(len(n.data)), Fileid: n.id,
		Mtime: at, Ctime: nfsv3.Nfstime3{Seconds: at.Seconds, Nseconds: uint32(n.change)}, // two changes at the same time differ
	}
}

func (n *node) known3() nfsv3.PostOpAttr { return &nfsv3.PostOpAttr_TRUE{Attributes: n.attributes3()} }

func change3() nfsv3.WccData {
	return nfsv3.WccData{Before: &nfsv3.PreOpAttr_FALSE{}, After: &nfsv3.PostOpAttr_FALSE{}}
}
