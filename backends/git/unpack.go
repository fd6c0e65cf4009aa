package git

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"hash"
	"io"
	"sort"

	"github.com/klauspost/compress/zlib"

	"github.com/stager-dev/stager/backends"
)

// The kinds of objects in packs that are differences from another object.
const (
	offsetDelta = 6
	hashDelta   = 7
)

// maxObjects bounds the memory for the places of objects.
const maxObjects = 4 << 20

// unpack adds the objects of a pack.
func (o *objects) unpack(from io.Reader) error {
	body := &checked{from: from, sum: o.newHash()}
	u := &unpacker{objects: o, body: body, in: bufio.NewReaderSize(body, 64<<10), ops: bufio.NewReaderSize(nil, 4<<10), buf: make([]byte, 32<<10)}
	err := u.all()
	var known *backends.Error
	var local *backends.LocalError
	switch {
	case err == nil:
		return o.flush()
	case body.err != nil && !errors.Is(body.err, io.EOF):
		return body.err // of the connection, or of the server
	case errors.As(err, &known), errors.As(err, &local):
		return err
	}
	return corrupt("%w", cut(err)) // also a stream that ends too early but well
}

type unpacker struct {
	*objects
	body   *checked
	in     *bufio.Reader
	zip    io.ReadCloser // reused; nil at first
	ops    *bufio.Reader // reused
	placed []placed
	base   []byte // reused
	buf    []byte // reused
}

// placed is the place of an object in the pack.
type placed struct {
	start int64
	object
}

func (u *unpacker) all() error {
	var head [12]byte
	if _, err := io.ReadFull(u.in, head[:]); err != nil {
		return err
	}
	version, count := binary.BigEndian.Uint32(head[4:]), binary.BigEndian.Uint32(head[8:])
	if string(head[:4]) != "PACK" || version != 2 && version != 3 || count > maxObjects {
		return corrupt("a pack of version %d with %d objects", version, count)
	}
	for range count {
		start := u.body.n - int64(u.in.Buffered())
		obj, err := u.one(start)
		if err != nil {
			return err
		}
		u.placed = append(u.placed, placed{start, obj})
	}
	if _, err := u.in.Peek(1); !errors.Is(err, io.EOF) {
		return corrupt("a pack with more than its objects")
	}
	return u.body.verify()
}

// one reads the object at the current position.
func (u *unpacker) one(start int64) (object, error) {
	c, err := u.in.ReadByte()
	if err != nil {
		return object{}, err
	}
	kind, size := c>>4&7, int64(c&15)
	for shift := 4; c&0x80 != 0; shift += 7 {
		if c, err = u.in.ReadByte(); err != nil {
			return object{}, err
		}
		if shift > 55 {
			return object{}, corrupt("the size of an object is too large")
		}
		size |= int64(c&0x7f) << shift
	}
	switch kind {
	case offsetDelta:
		back, err := u.offset()
		if err != nil {
			return object{}, err
		}
		i := sort.Search(len(u.placed), func(i int) bool { return u.placed[i].start >= start-back })
		if i == len(u.placed) || u.placed[i].start != start-back {
			return object{}, corrupt("a difference without its base")
		}
		return u.delta(u.placed[i].object, size)
	case hashDelta:
		id := make([]byte, u.newHash().Size())
		if _, err := io.ReadFull(u.in, id); err != nil {
			return object{}, err
		}
		base, ok := u.by[string(id)]
		if !ok {
			return object{}, corrupt("a difference without its base")
		}
		return u.delta(base, size)
	}
	if kindNames[objectKind(kind)] == "" {
		return object{}, corrupt("an object of the unknown kind %d", kind)
	}
	a, err := u.begin(objectKind(kind), size)
	if err != nil {
		return object{}, err
	}
	if err := u.inflate(); err != nil {
		return object{}, err
	}
	if _, err := io.CopyBuffer(a, u.zip, u.buf); err != nil {
		return object{}, err
	}
	return a.end()
}

// offset reads how far before a difference its base begins.
func (u *unpacker) offset() (back int64, err error) {
	for i := 0; ; i++ {
		c, err := u.in.ReadByte()
		if err != nil {
			return 0, err
		}
		if i > 7 {
			return 0, corrupt("the base of a difference is too far away")
		}
		back |= int64(c & 0x7f)
		if c&0x80 == 0 {
			return back, nil
		}
		back = (back + 1) << 7
	}
}

// inflate starts to decompress at the current position.
func (u *unpacker) inflate() (err error) {
	if u.zip == nil {
		u.zip, err = zlib.NewReader(u.in)
		return err
	}
	return u.zip.(zlib.Resetter).Reset(u.in, nil) // every reader of zlib is one
}

// checked passes on a pack without the hash at its end, and compares that.
type checked struct {
	from io.Reader
	sum  hash.Hash
	buf  []byte
	n    int64 // bytes that were passed on
	err  error
}

// Read implements io.Reader.
func (c *checked) Read(p []byte) (int, error) {
	tail := c.sum.Size()
	if c.buf == nil {
		c.buf = make([]byte, 0, 64<<10)
	}
	for len(c.buf) <= tail {
		if c.err != nil {
			return 0, c.err
		}
		var n int
		n, c.err = c.from.Read(c.buf[len(c.buf):cap(c.buf)])
		c.buf = c.buf[:len(c.buf)+n]
	}
	n := copy(p, c.buf[:len(c.buf)-tail])
	c.sum.Write(p[:n])
	c.n += int64(n)
	c.buf = c.buf[:copy(c.buf, c.buf[n:])]
	return n, nil
}

// verify compares the hash after everything was read.
func (c *checked) verify() error {
	if !bytes.Equal(c.sum.Sum(nil), c.buf) {
		return corrupt("the hash of the pack is wrong")
	}
	return nil
}
