package rpc

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
)

// Encoder builds one message. Its first error stays, and is told by Conn.Start.
type Encoder struct {
	b   []byte
	err error
}

// Write appends XDR that somebody else encoded.
func (e *Encoder) Write(p []byte) (int, error) {
	e.b = append(e.b, p...)
	return len(p), nil
}

// Uint32 appends an unsigned integer, an enum or a bool.
func (e *Encoder) Uint32(v uint32) { e.b = binary.BigEndian.AppendUint32(e.b, v) }

// Uint64 appends an unsigned hyper integer.
func (e *Encoder) Uint64(v uint64) { e.b = binary.BigEndian.AppendUint64(e.b, v) }

// Opaque appends bytes of a variable length.
func (e *Encoder) Opaque(p []byte) { copy(e.Reserve(len(p)), p) }

// String appends a string, whatever its bytes.
func (e *Encoder) String(s string) { copy(e.Reserve(len(s)), s) }

// Reserve appends an opaque of n bytes, which the caller fills in. The slice is good
// until the next append.
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

// Fail makes err the message's error, unless it has one: it will not be sent.
func (e *Encoder) Fail(err error) {
	if e.err == nil {
		e.err = err
	}
}

// Len is how many bytes there are.
func (e *Encoder) Len() int { return len(e.b) }

// Bytes are the message so far, to change what was left open.
func (e *Encoder) Bytes() []byte { return e.b }

// ErrShort says that a message ends before its contents do.
var ErrShort = errors.New("the message is shorter than what it should hold")

// Decoder reads one message. After its first error, which stays, it reads zeros; so
// a caller may read a whole structure and ask for the error once.
type Decoder struct {
	b   []byte
	err error
}

// NewDecoder reads b, and hands out parts of it.
func NewDecoder(b []byte) *Decoder { return &Decoder{b: b} }

// Err is the first error.
func (d *Decoder) Err() error { return d.err }

// Fail makes err the decoder's error, unless it has one.
func (d *Decoder) Fail(err error) {
	if d.err == nil {
		d.err = err
	}
}

// Len is how many bytes are left.
func (d *Decoder) Len() int { return len(d.b) }

// Read hands bytes on to generated code.
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

// Fixed is the next n bytes, within the message. It is nil after an error.
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

// Opaque reads bytes of a variable length, at most limit; they lie within the message.
func (d *Decoder) Opaque(limit int) []byte {
	n := d.Uint32()
	if d.err == nil && uint64(n) > uint64(limit) {
		d.err = fmt.Errorf("%d bytes where at most %d may be", n, limit)
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

// Buffers of messages are kept for the next ones: short ones are cheap to make, and
// those that hold a block of a file are all about as long.
var buffers sync.Pool

const shortMessage = 16 << 10

func getBuffer(n int) []byte {
	if n > shortMessage {
		if p, ok := buffers.Get().(*[]byte); ok && cap(*p) >= n {
			return (*p)[:0]
		}
	}
	return make([]byte, 0, n)
}

func putBuffer(b []byte) {
	if cap(b) > shortMessage {
		b = b[:0]
		buffers.Put(&b)
	}
}

// Reply is the answer to a call: a Decoder that stands at the results.
type Reply struct {
	Decoder
	whole []byte
}

// Release gives the reply's memory back. What was decoded without a copy is gone.
func (r *Reply) Release() {
	putBuffer(r.whole)
	r.whole, r.b = nil, nil
	r.Fail(errors.New("the reply was released"))
}

var lastXID atomic.Uint32

// NewCall begins the message of a call. hint is how long its arguments will be, if
// they are long.
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

// Renew gives the message another transaction id: what is asked once more after it was
// answered is another call.
func (e *Encoder) Renew() { binary.BigEndian.PutUint32(e.b[4:], lastXID.Add(1)) }

// finish writes the record mark: one fragment, the last.
func (e *Encoder) finish() (xid uint32, err error) {
	if e.err == nil {
		binary.BigEndian.PutUint32(e.b, uint32(len(e.b)-4)|1<<31)
	}
	return binary.BigEndian.Uint32(e.b[4:]), e.err
}

// Credential says who calls. The zero value is nobody.
type Credential struct {
	flavor uint32
	body   []byte
}

// MaxGroups is how many supplementary groups a credential can carry.
const MaxGroups = 16

// System is the credential AUTH_SYS: numbers that the server believes. Groups beyond
// MaxGroups are left out, as the protocol has no room for them.
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
