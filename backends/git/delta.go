package git

import (
	"encoding/binary"
	"errors"
	"io"
)

// smallBase is the size of bases that are read into memory: many small parts are copied from them.
const smallBase = 4 << 20

// delta adds the object that a difference of so many bytes makes of a base.
func (u *unpacker) delta(base object, size int64) (object, error) {
	if err := u.inflate(); err != nil {
		return object{}, err
	}
	counted := &io.LimitedReader{R: u.zip, N: size + 1} // one more, to find out about a longer one
	u.ops.Reset(counted)
	was, err := binary.ReadUvarint(u.ops)
	if err != nil {
		return object{}, err
	}
	is, err := binary.ReadUvarint(u.ops)
	if err != nil {
		return object{}, err
	}
	if was != uint64(base.size) || is > 1<<60 {
		return object{}, corrupt("a difference does not fit its base")
	}
	all, err := u.load(base)
	if err != nil {
		return object{}, err
	}
	a, err := u.begin(base.kind, int64(is))
	if err != nil {
		return object{}, err
	}
	for {
		op, err := u.ops.ReadByte()
		if errors.Is(err, io.EOF) && counted.N == 1 {
			return a.end()
		}
		if err == nil {
			err = u.apply(a, op, base, all)
		}
		if err != nil {
			return object{}, err
		}
	}
}

// load returns the contents of a small base; nil of others.
func (u *unpacker) load(base object) ([]byte, error) {
	section, err := u.section(base)
	if err != nil || base.size > smallBase {
		return nil, err
	}
	if u.base == nil || int64(cap(u.base)) < base.size {
		u.base = make([]byte, base.size)
	}
	u.base = u.base[:base.size]
	if _, err := io.ReadFull(section, u.base); err != nil {
		return nil, unreadable(err)
	}
	return u.base, nil
}

// apply carries out one operation: bytes of the difference, or a part of the base.
func (u *unpacker) apply(a *addition, op byte, base object, all []byte) error {
	if op == 0 {
		return corrupt("a difference has an unknown operation")
	}
	if op&0x80 == 0 {
		if _, err := io.ReadFull(u.ops, u.buf[:op]); err != nil {
			return err
		}
		_, err := a.Write(u.buf[:op])
		return err
	}
	var off, n int64
	for i := range 7 {
		if op>>i&1 == 0 {
			continue
		}
		c, err := u.ops.ReadByte()
		switch {
		case err != nil:
			return err
		case i < 4:
			off |= int64(c) << (8 * i)
		default:
			n |= int64(c) << (8 * (i - 4))
		}
	}
	if n == 0 {
		n = 1 << 16
	}
	if off+n > base.size {
		return corrupt("a difference goes beyond its base")
	}
	if all != nil {
		_, err := a.Write(all[off:][:n])
		return err
	}
	_, err := io.CopyBuffer(a, io.NewSectionReader(u.file, base.at+off, n), u.buf)
	return err
}
