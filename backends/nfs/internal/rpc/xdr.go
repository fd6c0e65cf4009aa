package rpc

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
)

// Encoder builds one message. It keeps its first error, which Conn.Start returns.
type Encoder struct {
	b    []byte
	err  error
	data expected // of the response
}

// Write appends encoded XDR.
func (e *Encoder) Write(p []byte) (int, error) {
	e.b = append(e.b, p...)
	return len(p), nil
}

// Uint32 appends an unsigned integer, an enum or a bool.
func (e *Encoder) Uint32(v uint32) { e.b = binary.BigEndian.AppendUint32(e.b, v) }

// Uint64 appends an unsigned hyper integer.
func (e *Encoder) Uint64(v uint64) { e.b = binary.BigEndian.AppendUint64(e.b, v) }

// Opaque appends variable-length data.
func (e *Encoder) Opaque(p []byte) { copy(e.Reserve(len(p)), p) }

// String appends a string of any bytes.
func (e *Encoder) String(s string) { copy(e.Reserve(len(s)), s) }

// Reserve appends an opaque of n bytes for the caller to fill. The slice is valid until the next
// append.
func (e *Encoder) Reserve(n int) []byte {
	e.Uint32(uint32(n))
	at := len(e.b)
	if need := at + n + 3; need > cap(e.b) {
		e.b = append(make([]byte, 0, need+256), e.b...)
	}
	e.b = e.b[:at+n]
	for len(e.b)%4 != 0 {
		e.b = append(e.b, 0)
	}
	return e.b[at : at+n : at+n]
}

// Put appends a value of generated code.
func (e *Encoder) Put(v io.WriterTo) {
	if _, err := v.WriteTo(e); err != nil {
		e.Fail(err)
	}
}

// Fail sets the error of the message unless it has one. The message is then not sent.
func (e *Encoder) Fail(err error) {
	if e.err == nil {
		e.err = err
	}
}

// Len returns the length of the message in bytes.
func (e *Encoder) Len() int { return len(e.b) }

// Bytes returns the message so far, so that reserved fields can be filled in.
func (e *Encoder) Bytes() []byte { return e.b }

// ErrShort reports that a message ends before its contents.
var ErrShort = errors.New("the message is truncated")

// Decoder reads one message. It keeps its first error and then reads zeros, so a caller may read a
// whole structure before checking the error.
type Decoder struct {
	b   []byte
	err error
}

// NewDecoder returns a Decoder of b. Its results refer to b.
func NewDecoder(b []byte) *Decoder { return &Decoder{b: b} }

// Err returns the first error.
func (d *Decoder) Err() error { return d.err }

// Fail sets the error of the decoder unless it has one.
func (d *Decoder) Fail(err error) {
	if d.err == nil {
		d.err = err
	}
}

// Len returns the number of unread bytes.
func (d *Decoder) Len() int { return len(d.b) }

// Read implements io.Reader for generated code.
func (d *Decoder) Read(p []byte) (int, error) {
	if d.err != nil {
		return 0, d.err
	}
	if len(d.b) == 0 && len(p) > 0 {
		return 0, io.EOF
	}
	n := copy(p, d.b)
	d.b = d.b[n:]
	return n, nil
}

// Fixed returns the next n bytes without copying, or nil after an error.
func (d *Decoder) Fixed(n int) []byte {
	if d.err == nil && (n < 0 || n > len(d.b)) {
		d.err = ErrShort
	}
	if d.err != nil {
		return nil
	}
	p := d.b[:n:n]
	d.b = d.b[n:]
	return p
}

// Uint32 reads an unsigned integer, an enum or a bool.
func (d *Decoder) Uint32() uint32 {
	if p := d.Fixed(4); p != nil {
		return binary.BigEndian.Uint32(p)
	}
	return 0
}

// Uint64 reads an unsigned hyper integer.
func (d *Decoder) Uint64() uint64 {
	if p := d.Fixed(8); p != nil {
		return binary.BigEndian.Uint64(p)
	}
	return 0
}

// Opaque reads variable-length data of at most limit bytes, without copying.
func (d *Decoder) Opaque(limit int) []byte {
	n := d.Uint32()
	if d.err == nil && uint64(n) > uint64(limit) {
		d.err = fmt.Errorf("%d bytes, want at most %d", n, limit)
	}
	p := d.Fixed(int(n))
	d.Fixed(int(-n & 3))
	return p
}

// Get reads a value of generated code.
func (d *Decoder) Get(v io.ReaderFrom) {
	if d.err != nil {
		return
	}
	if _, err := v.ReadFrom(d); err != nil {
		d.err = fmt.Errorf("%w: %w", ErrShort, err)
	}
}

var lastXID atomic.Uint32

// NewCall starts the message of a call. hint is the expected length of its arguments, if they are
// long.
func NewCall(cred Credential, program, version, procedure uint32, hint int) *Encoder {
	e := &Encoder{b: getBuffer(512 + hint)}
	e.Uint32(0) // the record mark, see finish
	e.Uint32(lastXID.Add(1))
	for _, v := range []uint32{0, 2, program, version, procedure} { // a call of RPC version 2
		e.Uint32(v)
	}
	e.Uint32(cred.flavor)
	e.Opaque(cred.body)
	e.Uint32(0) // no verifier
	e.Uint32(0)
	return e
}

// Renew changes the transaction id. A request that is repeated after a response is a new call.
func (e *Encoder) Renew() { binary.BigEndian.PutUint32(e.b[4:], lastXID.Add(1)) }

// finish writes the record mark of a single, last fragment.
func (e *Encoder) finish() (xid uint32, err error) {
	if e.err == nil {
		binary.BigEndian.PutUint32(e.b, uint32(len(e.b)-4)|1<<31)
	}
	return binary.BigEndian.Uint32(e.b[4:]), e.err
}

// Credential identifies the caller. The zero value is anonymous.
type Credential struct {
	flavor uint32
	body   []byte
}

// MaxGroups is the maximum number of supplementary groups of a credential.
const MaxGroups = 16

// System returns an AUTH_SYS credential, whose ids the server trusts. It drops groups beyond
// MaxGroups, for which the protocol has no room.
func System(machine string, uid, gid uint32, groups []uint32) Credential {
	var e Encoder
	e.Uint32(0)
	e.String(machine[:min(len(machine), 255)])
	e.Uint32(uid)
	e.Uint32(gid)
	groups = groups[:min(len(groups), MaxGroups)]
	e.Uint32(uint32(len(groups)))
	for _, g := range groups {
		e.Uint32(g)
	}
	return Credential{flavor: 1, body: e.b}
}
