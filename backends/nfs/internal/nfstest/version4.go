package nfstest

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"

	"github.com/buildbarn/go-xdr/pkg/protocols/nfsv4"
)

// execution is the state of a COMPOUND being executed. The server is locked.
type execution struct {
	s       *Server
	client  *client
	session *session
	slot    *slot
	keep    bool

	at, saved *node
	current   nfsv4.Stateid4
}

// compound executes a COMPOUND and writes its response.
func (s *Server) compound(in io.Reader, out *bytes.Buffer) (Fault, error) {
	var args nfsv4.Compound4args
	if _, err := args.ReadFrom(in); err != nil {
		return Fault{}, fmt.Errorf("%w: %w", errArguments, err)
	}
	if args.Minorversion != 1 {
		out.Write(words(uint32(nfsv4.NFS4ERR_MINOR_VERS_MISMATCH), 0, 0))
		return Fault{}, nil
	}
	ops := opNumbers(args.Argarray)
	s.mu.Lock()
	for _, op := range ops {
		s.counts[op]++
	}
	fault, at := s.takeLocked(ops...)
	s.mu.Unlock()
	if fault.Do != nil {
		fault.Do()
	}
	if fault.Cut == CutBefore {
		return fault, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expireLocked()
	x := &execution{s: s}
	var results bytes.Buffer
	status, n := nfsv4.NFS4_OK, uint32(0)
	for i, arg := range args.Argarray {
		var body io.WriterTo
		var replay []byte
		seq, isSequence := arg.(*nfsv4.NfsArgop4_OP_SEQUENCE)
		switch {
		case i == at && fault.Status != nfsv4.NFS4_OK:
			status = fault.Status
		case isSequence && i > 0:
			status = nfsv4.NFS4ERR_SEQUENCE_POS
		case isSequence:
			if status, body, replay = x.sequence(&seq.Opsequence); replay != nil {
				out.Write(replay)
				return fault, nil
			}
		case x.client == nil && !outside(arg):
			status = nfsv4.NFS4ERR_OP_NOT_IN_SESSION
		default:
			status, body = x.do(arg)
		}
		n++
		results.Write(words(uint32(arg.GetArgop()), uint32(status)))
		if status != nfsv4.NFS4_OK {
			break
		}
		if body != nil {
			if _, err := body.WriteTo(&results); err != nil {
				return fault, err
			}
		}
		if isSequence {
			x.slot.first = bytes.Clone(results.Bytes())
		}
	}
	start := out.Len()
	out.Write(words(uint32(status), 0, n))
	out.Write(results.Bytes())
	if x.slot != nil {
		x.slot.answer, x.slot.more = nil, len(args.Argarray) > 1
		if x.keep || !x.slot.more {
			x.slot.answer = bytes.Clone(out.Bytes()[start:])
		}
	}
	return fault, nil
}

// outside reports whether an operation may be in a compound without SEQUENCE.
func outside(arg nfsv4.NfsArgop4) bool {
	switch arg.(type) {
	case *nfsv4.NfsArgop4_OP_EXCHANGE_ID, *nfsv4.NfsArgop4_OP_CREATE_SESSION,
		*nfsv4.NfsArgop4_OP_DESTROY_SESSION, *nfsv4.NfsArgop4_OP_DESTROY_CLIENTID:
		return true
	}
	return false
}

// do executes an operation and returns its status and results.
func (x *execution) do(arg nfsv4.NfsArgop4) (nfsv4.Nfsstat4, io.WriterTo) {
	const ok = nfsv4.NFS4_OK
	switch a := arg.(type) {
	case *nfsv4.NfsArgop4_OP_EXCHANGE_ID:
		return x.exchangeID(&a.OpexchangeId)
	case *nfsv4.NfsArgop4_OP_CREATE_SESSION:
		return x.createSession(&a.OpcreateSession)
	case *nfsv4.NfsArgop4_OP_DESTROY_SESSION:
		if x.s.sessions[a.OpdestroySession.DsaSessionid] == nil {
			return nfsv4.NFS4ERR_BADSESSION, nil
		}
		delete(x.s.sessions, a.OpdestroySession.DsaSessionid)
		return ok, nil
	case *nfsv4.NfsArgop4_OP_DESTROY_CLIENTID:
		return x.destroyClient(a.OpdestroyClientid.DcaClientid), nil
	case *nfsv4.NfsArgop4_OP_RECLAIM_COMPLETE:
		return x.reclaimComplete(), nil
	case *nfsv4.NfsArgop4_OP_FREE_STATEID:
		return x.freeStateid(a.OpfreeStateid.FsaStateid), nil
	case *nfsv4.NfsArgop4_OP_PUTROOTFH:
		x.at = x.s.root
		return ok, nil
	case *nfsv4.NfsArgop4_OP_PUTFH:
		if x.at = x.s.nodeLocked(a.Opputfh.Object); x.at == nil {
			return nfsv4.NFS4ERR_STALE, nil
		}
		return ok, nil
	}
	if x.at == nil {
		return nfsv4.NFS4ERR_NOFILEHANDLE, nil
	}
	switch a := arg.(type) {
	case *nfsv4.NfsArgop4_OP_GETFH:
		return ok, &nfsv4.Getfh4resok{Object: x.at.handle()}
	case *nfsv4.NfsArgop4_OP_SAVEFH:
		x.saved = x.at
		return ok, nil
	case *nfsv4.NfsArgop4_OP_RESTOREFH:
		x.at = x.saved
		return ok, nil
	case *nfsv4.NfsArgop4_OP_LOOKUP:
		return x.lookup(a.Oplookup.Objname), nil
	case *nfsv4.NfsArgop4_OP_GETATTR:
		return ok, &nfsv4.Getattr4resok{ObjAttributes: x.attributes(x.at, a.Opgetattr.AttrRequest)}
	case *nfsv4.NfsArgop4_OP_VERIFY:
		if is := x.attributes(x.at, a.Opverify.ObjAttributes.Attrmask); !bytes.Equal(is.AttrVals, a.Opverify.ObjAttributes.AttrVals) {
			return nfsv4.NFS4ERR_NOT_SAME, nil
		}
		return ok, nil
	case *nfsv4.NfsArgop4_OP_ACCESS:
		granted := a.Opaccess.Access
		if x.s.ReadOnly || x.at == x.s.root && x.s.ReadOnlyRoot {
			granted &^= nfsv4.ACCESS4_EXTEND | nfsv4.ACCESS4_MODIFY | nfsv4.ACCESS4_DELETE
		}
		return ok, &nfsv4.Access4resok{Supported: a.Opaccess.Access, Access: granted}
	case *nfsv4.NfsArgop4_OP_READLINK:
		if x.at.kind != symlink {
			return nfsv4.NFS4ERR_WRONG_TYPE, nil
		}
		return ok, &nfsv4.Readlink4resok{Link: x.at.data}
	case *nfsv4.NfsArgop4_OP_READDIR:
		return x.readdir(&a.Opreaddir)
	case *nfsv4.NfsArgop4_OP_OPEN:
		return x.open(&a.Opopen)
	case *nfsv4.NfsArgop4_OP_CLOSE:
		return x.close(a.Opclose.OpenStateid)
	case *nfsv4.NfsArgop4_OP_READ:
		return x.read(&a.Opread)
	case *nfsv4.NfsArgop4_OP_WRITE:
		return x.write(&a.Opwrite)
	case *nfsv4.NfsArgop4_OP_COMMIT:
		x.at.durable = bytes.Clone(x.at.data)
		return ok, &nfsv4.Commit4resok{Writeverf: x.s.verifier}
	case *nfsv4.NfsArgop4_OP_CREATE:
		return x.mkdir(&a.Opcreate)
	case *nfsv4.NfsArgop4_OP_REMOVE:
		if status := x.s.removeLocked(x.at, a.Opremove.Target); status != ok {
			return status, nil
		}
		return ok, &nfsv4.Remove4resok{}
	case *nfsv4.NfsArgop4_OP_RENAME:
		if status := x.s.renameLocked(x.saved, a.Oprename.Oldname, x.at, a.Oprename.Newname); status != ok {
			return status, nil
		}
		return ok, &nfsv4.Rename4resok{}
	case *nfsv4.NfsArgop4_OP_LINK:
		if status := x.s.linkLocked(x.saved, x.at, a.Oplink.Newname); status != ok {
			return status, nil
		}
		return ok, &nfsv4.Link4resok{}
	}
	return nfsv4.NFS4ERR_NOTSUPP, nil
}

func (x *execution) lookup(name string) nfsv4.Nfsstat4 {
	n, status := x.s.childLocked(x.at, name)
	if x.at.kind == symlink {
		status = nfsv4.NFS4ERR_SYMLINK
	}
	if status == nfsv4.NFS4_OK {
		x.at = n
	}
	return status
}

// attributes returns those requested attributes of a node that the server supports.
func (x *execution) attributes(n *node, mask []uint32) nfsv4.Fattr4 {
	var v []byte
	got := make([]uint32, 2)
	put := func(bit int, value func() []byte) {
		if len(mask) > bit/32 && mask[bit/32]&(1<<(bit%32)) != 0 {
			got[bit/32] |= 1 << (bit % 32)
			v = append(v, value()...)
		}
	}
	long := func(u uint64) func() []byte { return func() []byte { return binary.BigEndian.AppendUint64(nil, u) } }
	put(nfsv4.FATTR4_TYPE, func() []byte { return words(uint32(n.kind)) })
	put(nfsv4.FATTR4_CHANGE, long(n.change))
	put(nfsv4.FATTR4_SIZE, long(uint64(len(n.data))))
	put(nfsv4.FATTR4_LEASE_TIME, func() []byte { return words(uint32(x.s.lease().Seconds())) })
	put(nfsv4.FATTR4_RDATTR_ERROR, func() []byte { return words(0) })
	put(nfsv4.FATTR4_FILEID, long(n.id))
	put(nfsv4.FATTR4_TIME_MODIFY, func() []byte {
		return append(binary.BigEndian.AppendUint64(nil, uint64(n.changed.Unix())), words(uint32(n.changed.Nanosecond()))...)
	})
	return nfsv4.Fattr4{Attrmask: got, AttrVals: v}
}

func (x *execution) readdir(a *nfsv4.Readdir4args) (nfsv4.Nfsstat4, io.WriterTo) {
	if x.at.kind != directory {
		return nfsv4.NFS4ERR_NOTDIR, nil
	}
	if x.s.List != nil {
		return nfsv4.NFS4_OK, &nfsv4.Readdir4resok{Reply: x.s.List(a.Cookie)}
	}
	list := nfsv4.Dirlist4{Eof: true}
	last := &list.Entries
	size := uint32(0)
	for i, name := range x.at.sorted() {
		cookie := uint64(i) + 3
		if cookie <= a.Cookie {
			continue
		}
		if size += uint32(len(name)) + 100; size > a.Maxcount {
			list.Eof = false
			break
		}
		*last = &nfsv4.Entry4{Cookie: cookie, Name: name, Attrs: x.attributes(x.at.names[name], a.AttrRequest)}
		last = &(*last).Nextentry
	}
	return nfsv4.NFS4_OK, &nfsv4.Readdir4resok{Reply: list}
}

func (x *execution) mkdir(a *nfsv4.Create4args) (nfsv4.Nfsstat4, io.WriterTo) {
	if _, ok := a.Objtype.(*nfsv4.Createtype4_NF4DIR); !ok {
		return nfsv4.NFS4ERR_BADTYPE, nil
	}
	n, status := x.s.makeLocked(x.at, a.Objname, directory)
	if status != nfsv4.NFS4_OK {
		return status, nil
	}
	x.at = n
	return status, &nfsv4.Create4resok{}
}

func (x *execution) open(a *nfsv4.Open4args) (nfsv4.Nfsstat4, io.WriterTo) {
	const ok = nfsv4.NFS4_OK
	claim, byName := a.Claim.(*nfsv4.OpenClaim4_CLAIM_NULL)
	if !byName {
		return nfsv4.NFS4ERR_NOTSUPP, nil
	}
	if !x.client.complete {
		return nfsv4.NFS4ERR_GRACE, nil
	}
	n, status := x.s.childLocked(x.at, claim.File)
	if create, creates := a.Openhow.(*nfsv4.Openflag4_OPEN4_CREATE); creates {
		_, unchecked := create.How.(*nfsv4.Createhow4_UNCHECKED4)
		switch {
		case status == nfsv4.NFS4ERR_NOENT:
			n, status = x.s.makeLocked(x.at, claim.File, regular)
		case status == ok && !unchecked:
			return nfsv4.NFS4ERR_EXIST, nil
		}
	}
	switch {
	case status != ok:
		return status, nil
	case n.kind == directory:
		return nfsv4.NFS4ERR_ISDIR, nil
	case n.kind == symlink:
		return nfsv4.NFS4ERR_SYMLINK, nil
	}
	x.current = nfsv4.Stateid4{Seqid: 1}
	binary.BigEndian.PutUint64(x.current.Other[:], x.s.nextIDLocked())
	x.client.opens[x.current.Other] = &opened{n, a.ShareAccess & nfsv4.OPEN4_SHARE_ACCESS_BOTH}
	x.at = n
	return ok, &nfsv4.Open4resok{Stateid: x.current, Delegation: &nfsv4.OpenDelegation4_OPEN_DELEGATE_NONE{}}
}

func (x *execution) close(id nfsv4.Stateid4) (nfsv4.Nfsstat4, io.WriterTo) {
	if _, status := x.stateOf(id); status != nfsv4.NFS4_OK {
		return status, nil
	}
	if id.Other == [12]byte{} {
		id = x.current
	}
	delete(x.client.opens, id.Other)
	return nfsv4.NFS4_OK, &nfsv4.Stateid4{}
}

func (x *execution) read(a *nfsv4.Read4args) (nfsv4.Nfsstat4, io.WriterTo) {
	o, status := x.stateOf(a.Stateid)
	if status != nfsv4.NFS4_OK {
		return status, nil
	}
	most := uint64(a.Count)
	if x.s.MaxRead > 0 {
		most = min(most, uint64(x.s.MaxRead))
	}
	data, eof := o.node.readAt(a.Offset, most)
	return status, &nfsv4.Read4resok{Eof: eof, Data: data}
}

func (x *execution) write(a *nfsv4.Write4args) (nfsv4.Nfsstat4, io.WriterTo) {
	o, status := x.stateOf(a.Stateid)
	if status != nfsv4.NFS4_OK {
		return status, nil
	}
	if o.access&nfsv4.OPEN4_SHARE_ACCESS_WRITE == 0 {
		return nfsv4.NFS4ERR_OPENMODE, nil
	}
	data := x.s.cutToWrite(a.Data)
	o.node.writeAt(data, int(a.Offset), a.Stable != nfsv4.UNSTABLE4)
	return status, &nfsv4.Write4resok{Count: uint32(len(data)), Committed: a.Stable, Writeverf: x.s.verifier}
}
