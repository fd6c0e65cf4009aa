package plan

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"strconv"

	"github.com/stager-dev/stager/backends"
)

// Digest identifies what a node delivers: the objects of a manifest, their order, and the node's
// partition. Work that was started with another digest belongs to another plan. It is a SHA-256 in
// hexadecimal.
//
// It does not depend on the number of epochs, so that a run may be extended. It depends on counts
// only where they affect the order.
func Digest(m Manifest, order OrderSpec, part Shard) (string, error) {
	d := newDigester(m, order, part)
	for i := range m.Len() {
		o, err := m.Objects.At(i)
		if err != nil {
			return "", err
		}
		d.Add(o)
		switch {
		case order.By == Balanced:
			d.text = fmt.Appendf(d.text, "%v\n", m.Counts[i])
		case (order.By == Weighted || order.Equal()) && m.Counts != nil:
			d.text = append(strconv.AppendInt(d.text, int64(m.Counts[i].Samples), 10), '\n')
		}
	}
	return d.Sum(), nil
}

// Digester computes the [Digest] of a manifest while its objects are listed, so that no second pass
// reads all of them. Call Add for each object in order, then Sum once.
type Digester struct {
	hash hash.Hash
	text []byte // not yet in hash; appended, not formatted: there are millions of objects
}

// NewDigester returns the Digester of an input's whole order, not of a partition. It is nil if the
// digest depends on more than the input's specification and its listed objects: on a list of names,
// counts, groups or several sources.
func NewDigester(in Input) *Digester {
	switch in.Order.By {
	case ByName, Shuffle, ByBlock:
	default:
		return nil
	}
	if len(in.Sources) > 0 || in.Window.Grouped() || in.Order.Equal() {
		return nil
	}
	return newDigester(Manifest{Unpacked: in.Unpack == UnpackAuto}, in.Order, Shard{})
}

// newDigester starts the digest with everything but the objects.
func newDigester(m Manifest, order OrderSpec, part Shard) *Digester {
	h := sha256.New()
	fmt.Fprintf(h, "stager plan 1\n%s %d\n%v\n", order.By, order.Seed, part)
	switch order.By {
	case ByBlock:
		fmt.Fprintf(h, "block %d\n", order.Block)
	case Balanced:
		fmt.Fprintf(h, "balanced %d %d %q\n", order.candidates(), order.Over, m.Classes)
	}
	if order.By == Weighted {
		fmt.Fprintf(h, "weighted %q\n", order.within())
		for _, s := range m.Shares {
			fmt.Fprintf(h, "%d %d\n", s.Objects, s.Weight)
		}
	}
	if order.Equal() {
		fmt.Fprintf(h, "equalize %s\n", order.Equalize)
	}
	if m.Unpacked {
		fmt.Fprintln(h, "unpacked")
	}
	return &Digester{hash: h}
}

// Add appends an object.
func (d *Digester) Add(o backends.Object) {
	if len(d.text) >= 32<<10 {
		d.hash.Write(d.text)
		d.text = d.text[:0]
	}
	d.text = append(appendQuoted(d.text, o.Key), ' ')
	d.text = append(strconv.AppendInt(d.text, o.Size, 10), ' ')
	d.text = append(appendQuoted(d.text, string(o.Version)), '\n')
}

// Sum returns the digest of the added objects.
func (d *Digester) Sum() string {
	d.hash.Write(d.text)
	return hex.EncodeToString(d.hash.Sum(nil))
}

// appendQuoted is [strconv.AppendQuote], three times as fast for what needs no escapes, as most keys
// and versions.
func appendQuoted(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			return strconv.AppendQuote(b, s)
		}
	}
	return append(append(append(b, '"'), s...), '"')
}
