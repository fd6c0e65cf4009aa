package plan

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
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
	counts := identities[order.By].counts
	if counts == nil && order.Equal() {
		counts = appendSamples
	}
	for i := range m.Len() {
		o, err := m.Objects.At(i)
		if err != nil {
			return "", err
		}
		d.Add(o)
		if counts != nil && m.Counts != nil {
			d.text = counts(d.text, m.Counts[i])
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
	if !identities[in.Order.By].listed || len(in.Sources) > 0 || in.Window.Grouped() || in.Order.Equal() {
		return nil
	}
	return newDigester(Manifest{Unpacked: in.Unpack == UnpackAuto}, in.Order, Shard{})
}

// identity is what the digest of an order depends on besides its seed and the objects.
type identity struct {
	// listed means that the listed objects and the input's specification are all: no list of names, no
	// counts, no shares.
	listed bool
	fields func(h io.Writer, order OrderSpec, m Manifest) // writes what else specifies the order; nil: nothing
	counts func(text []byte, of Counts) []byte            // appends what the order needs of an object's counts; nil: nothing
}

// identities has all orders.
var identities = map[string]identity{
	ByName:  {listed: true},
	ByList:  {}, // a list chooses among the objects
	Shuffle: {listed: true},
	ByBlock: {
		listed: true,
		fields: func(h io.Writer, order OrderSpec, _ Manifest) { fmt.Fprintf(h, "block %d\n", order.Block) },
	},
	Balanced: {
		fields: func(h io.Writer, order OrderSpec, m Manifest) {
			fmt.Fprintf(h, "balanced %d %d %q\n", order.candidates(), order.Over, m.Classes)
		},
		counts: func(text []byte, of Counts) []byte { return fmt.Appendf(text, "%v\n", of) },
	},
	Weighted: {
		fields: func(h io.Writer, order OrderSpec, m Manifest) {
			fmt.Fprintf(h, "weighted %q\n", order.within())
			for _, s := range m.Shares {
				fmt.Fprintf(h, "%d %d\n", s.Objects, s.Weight)
			}
		},
		counts: appendSamples,
	},
}

func appendSamples(text []byte, of Counts) []byte {
	return append(strconv.AppendInt(text, int64(of.Samples), 10), '\n')
}

// newDigester starts the digest with everything but the objects.
func newDigester(m Manifest, order OrderSpec, part Shard) *Digester {
	h := sha256.New()
	fmt.Fprintf(h, "stager plan 1\n%s %d\n%v\n", order.By, order.Seed, part)
	if fields := identities[order.By].fields; fields != nil {
		fields(h, order, m)
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
