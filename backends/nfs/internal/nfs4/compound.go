package nfs4

import (
	"encoding/binary"
	"fmt"
	"strings"
	"time"

	"github.com/buildbarn/go-xdr/pkg/protocols/nfsv4"

	"github.com/stager-dev/stager/backends/nfs/internal/remote"
	"github.com/stager-dev/stager/backends/nfs/internal/rpc"
)

const (
	program       = 100003
	version       = 4
	procCompound  = 1
	minorVersion  = 1
	maxHandle     = 128
	maxAttributes = 4096
)

// compound is a request under construction.
type compound struct {
	*rpc.Encoder
	countAt int    // offset of the number of operations
	ops     uint32 //
	slotAt  int    // offset of the arguments of SEQUENCE; 0: none
	keep    bool   // the server caches the response, as the request is not idempotent

	replied *rpc.Call // last call of this request that got a response
}

// newCompound starts a request within a session. hint is its expected length in bytes.
func (c *Client) newCompound(hint int) *compound {
	q := c.bareCompound(hint)
	q.op(nfsv4.OP_SEQUENCE)
	q.slotAt = q.Len()
	_, _ = q.Write(make([]byte, 16+4*4)) // setSlot fills this in
	return q
}

// bareCompound starts a request outside a session.
func (c *Client) bareCompound(hint int) *compound {
	q := &compound{Encoder: rpc.NewCall(c.cfg.Credential, program, version, procCompound, hint)}
	q.Uint32(0) // no tag
	q.Uint32(minorVersion)
	q.countAt = q.Len()
	q.Uint32(0)
	return q
}

// op appends the number of an operation. Its arguments follow.
func (q *compound) op(number nfsv4.NfsOpnum4) {
	q.ops++
	binary.BigEndian.PutUint32(q.Bytes()[q.countAt:], q.ops)
	q.Uint32(uint32(number))
}

// add appends an operation of generated code.
func (q *compound) add(arg nfsv4.NfsArgop4) {
	q.ops++
	binary.BigEndian.PutUint32(q.Bytes()[q.countAt:], q.ops)
	q.Put(arg)
}

// setSlot fills in the arguments of SEQUENCE.
func (q *compound) setSlot(s *session, l *slot) {
	p := q.Bytes()[q.slotAt:]
	copy(p, s.id[:])
	keep := uint32(0)
	if q.keep {
		keep = 1
	}
	for i, v := range []uint32{l.seq, l.id, s.highest, keep} {
		binary.BigEndian.PutUint32(p[16+4*i:], v)
	}
}

// handle is a file handle, opaque to clients.
type handle []byte

func (q *compound) putHandle(h handle) {
	q.op(nfsv4.OP_PUTFH)
	q.Opaque(h)
}

// lookup appends LOOKUP of a directory entry. Names may be any bytes, so it does not use generated
// code, which requires UTF-8.
func (q *compound) lookup(name string) {
	q.op(nfsv4.OP_LOOKUP)
	q.String(name)
}

// walk appends the operations that lead to a path.
func (q *compound) walk(from place) {
	if from.handle == nil {
		q.op(nfsv4.OP_PUTROOTFH)
	} else {
		q.putHandle(from.handle)
	}
	for _, name := range from.rest {
		q.lookup(name)
	}
}

// attributes lists the requested attributes, in the order of the response.
var attributes = []uint32{
	1<<nfsv4.FATTR4_TYPE | 1<<nfsv4.FATTR4_CHANGE | 1<<nfsv4.FATTR4_SIZE | 1<<nfsv4.FATTR4_RDATTR_ERROR | 1<<nfsv4.FATTR4_FILEID,
	1 << (nfsv4.FATTR4_TIME_MODIFY - 32),
}

func (q *compound) getAttr() {
	q.op(nfsv4.OP_GETATTR)
	q.bitmap(attributes[0]&^(1<<nfsv4.FATTR4_RDATTR_ERROR), attributes[1])
}

func (q *compound) bitmap(words ...uint32) {
	q.Uint32(uint32(len(words)))
	for _, w := range words {
		q.Uint32(w)
	}
}

// stateid identifies an open file.
type stateid [16]byte

// current is the stateid of the OPEN in the same compound.
var current = stateid{3: 1}

func (q *compound) stateid(id stateid) { _, _ = q.Write(id[:]) }

func (q *compound) read(id stateid, off int64, n int) {
	q.op(nfsv4.OP_READ)
	q.stateid(id)
	q.Uint64(uint64(off))
	q.Uint32(uint32(n))
}

// write appends a WRITE of n bytes and returns the space for them.
func (q *compound) write(id stateid, off int64, n int) []byte {
	q.op(nfsv4.OP_WRITE)
	q.stateid(id)
	q.Uint64(uint64(off))
	q.Uint32(uint32(nfsv4.UNSTABLE4))
	return q.Reserve(n)
}

func (q *compound) close(id stateid) {
	q.op(nfsv4.OP_CLOSE)
	q.Uint32(0)
	q.stateid(id)
}

// results is the response to a compound, read one operation after another.
type results struct {
	*rpc.Reply
	status remote.Status // of the last operation
	left   uint32
}

// begin decodes the head of a response.
func begin(r *rpc.Reply) *results {
	res := &results{Reply: r, status: remote.Status(r.Uint32())}
	r.Opaque(1024) // the tag
	res.left = r.Uint32()
	return res
}

// next decodes the head of the response to one operation. The results follow if it succeeded.
func (r *results) next(op nfsv4.NfsOpnum4) error {
	if r.left == 0 && r.Err() == nil {
		status := r.status
		if status == remote.OK {
			status = remote.ServerFault // the server omitted an operation
		}
		return &remote.Error{Status: status, Op: opName(op)}
	}
	r.left--
	got, status := nfsv4.NfsOpnum4(r.Uint32()), remote.Status(r.Uint32())
	switch {
	case r.Err() != nil:
		return remote.Malformed(r.Err())
	case got != op && got != nfsv4.OP_ILLEGAL:
		return remote.Malformed(fmt.Errorf("it returned %s for %s", opName(got), opName(op)))
	case status != remote.OK:
		return &remote.Error{Status: status, Op: opName(op)}
	}
	return nil
}

// skip reads the results of operations that return only a status.
func (r *results) skip(op nfsv4.NfsOpnum4, times int) error {
	for range times {
		if err := r.next(op); err != nil {
			return err
		}
	}
	return nil
}

// walked reads the results of walk.
func (r *results) walked(from place) error {
	first := nfsv4.OP_PUTROOTFH
	if from.handle != nil {
		first = nfsv4.OP_PUTFH
	}
	if err := r.next(first); err != nil {
		return err
	}
	return r.skip(nfsv4.OP_LOOKUP, len(from.rest))
}

func (r *results) handle() (handle, error) {
	if err := r.next(nfsv4.OP_GETFH); err != nil {
		return nil, err
	}
	h := handle(strings.Clone(string(r.Opaque(maxHandle))))
	return h, remote.Malformed(r.Err())
}

func (r *results) attr() (remote.Attr, error) {
	if err := r.next(nfsv4.OP_GETATTR); err != nil {
		return remote.Attr{}, err
	}
	a, err := decodeAttr(&r.Decoder)
	if err == nil {
		err = remote.Malformed(r.Err())
	}
	return a, err
}

// decodeAttr decodes a fattr4 with the attributes above. It returns a contained RDATTR_ERROR as an
// error.
func decodeAttr(d *rpc.Decoder) (remote.Attr, error) {
	var a remote.Attr
	var mask [2]uint32
	n := d.Uint32()
	for i := range n {
		if w := d.Uint32(); i < 2 {
			mask[i] = w
		} else if w != 0 {
			d.Fail(fmt.Errorf("unrequested attributes"))
		}
		if d.Err() != nil {
			return a, remote.Malformed(d.Err())
		}
	}
	if mask[0]&^attributes[0] != 0 || mask[1]&^attributes[1] != 0 {
		return a, remote.Malformed(fmt.Errorf("unrequested attributes"))
	}
	v := rpc.NewDecoder(d.Opaque(maxAttributes))
	has := func(bit int) bool { return mask[bit/32]&(1<<(bit%32)) != 0 }
	if has(nfsv4.FATTR4_TYPE) {
		a.Type = remote.Type(v.Uint32())
	}
	if has(nfsv4.FATTR4_CHANGE) {
		a.Change = v.Uint64()
	}
	if has(nfsv4.FATTR4_SIZE) {
		a.Size = int64(v.Uint64() & (1<<63 - 1))
	}
	failed := remote.OK
	if has(nfsv4.FATTR4_RDATTR_ERROR) {
		failed = remote.Status(v.Uint32())
	}
	if has(nfsv4.FATTR4_FILEID) {
		a.FileID = v.Uint64()
	}
	if has(nfsv4.FATTR4_TIME_MODIFY) {
		sec, nsec := int64(v.Uint64()), int64(v.Uint32())
		a.ModTime = time.Unix(sec, nsec)
	}
	switch {
	case d.Err() != nil:
		return a, remote.Malformed(d.Err())
	case v.Err() != nil:
		return a, remote.Malformed(v.Err())
	case failed != remote.OK:
		return a, &remote.Error{Status: failed, Op: "READDIR"}
	}
	return a, nil
}

// block decodes the results of READ without copying. More data than requested is an error.
func (r *results) block(most int) (data []byte, eof bool, err error) {
	if err := r.next(nfsv4.OP_READ); err != nil {
		return nil, false, err
	}
	eof = r.Uint32() != 0
	data = r.Opaque(most)
	return data, eof, remote.Malformed(r.Err())
}

func opName(op nfsv4.NfsOpnum4) string {
	if name, ok := nfsv4.NfsOpnum4_name[op]; ok {
		return strings.TrimPrefix(name, "OP_")
	}
	return fmt.Sprintf("operation %d", op)
}
