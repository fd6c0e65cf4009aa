package download

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"

	"github.com/stager-dev/stager/backends"
)

// Verify says how the bytes of an object are checked, besides their number, which
// always is.
type Verify string

const (
	// VerifyAuto compares the checksum that the store tells, if it tells one. Large
	// objects are asked for it once more where the store tells it only on request.
	VerifyAuto Verify = "auto"
	// VerifySize checks nothing but the size.
	VerifySize Verify = "size"
	// VerifyFull wants a checksum: an object of which the store has none is an error
	// of kind Unsupported.
	VerifyFull Verify = "full"
)

// check tells whether v is one of them; "" is VerifyAuto.
func (v Verify) check() error {
	switch v {
	case "", VerifyAuto, VerifySize, VerifyFull:
		return nil
	}
	return backends.Errorf(backends.Invalid, "verify", "", "%q is not one of auto, size, full", string(v))
}

// errSums is in errors of checksums that differ: the bytes may come right when they
// are fetched again.
var errSums = errors.New("the checksum differs")

// verify compares the whole file with the checksum that the store has of the object
// and returns that, or the zero value when there is none and none is insisted on.
func (t *transfer) verify(ctx context.Context) (backends.Checksum, error) {
	none := backends.Checksum{}
	if t.opts.Verify == VerifySize {
		return none, nil
	}
	told, err := t.reportedSum(ctx)
	if err != nil {
		return none, err
	}
	if told.Algorithm.New() == nil {
		if t.opts.Verify != VerifyFull {
			return none, nil
		}
		return none, t.fail(backends.Unsupported, errors.New(
			"the store has no checksum of it that could be compared; ask for less than full verification, or store it with one"))
	}
	got, ok := t.sum(told.Algorithm)
	if !ok && t.in == nil {
		return none, t.fail(backends.Unsupported, fmt.Errorf(
			"the store tells %s of it only now, when its bytes have passed; unpack nothing, or verify by size", told))
	}
	if !ok {
		if got, err = t.readBack(ctx, told.Algorithm); err != nil {
			return none, err
		}
	}
	if got != told {
		return none, t.fail(backends.Corrupt, fmt.Errorf("%w: the store has %s, and the bytes that came have %s", errSums, told, got))
	}
	return told, nil
}

// reportedSum is what the store says: in the listing, with the bytes, or when asked.
func (t *transfer) reportedSum(ctx context.Context) (backends.Checksum, error) {
	t.mu.Lock()
	told := t.reported
	t.mu.Unlock()
	// A small object that came in one piece would have brought its checksum along.
	askable := t.opts.Verify == VerifyFull || t.store.Capabilities().Checksum != "" && !t.isWhole()
	if !told.IsZero() || !askable {
		return told, nil
	}
	now, err := t.store.Stat(ctx, t.obj.Key)
	if err != nil {
		return told, err
	}
	if now.Version != t.obj.Version && t.obj.Version != "" || now.Size != t.obj.Size {
		return told, t.fail(backends.Changed, fmt.Errorf("it was replaced while it was read (version %q, now %q)", t.obj.Version, now.Version))
	}
	return now.Sum, nil
}

// isWhole tells whether the object came in one stream from its beginning to its end.
func (t *transfer) isWhole() bool {
	return t.obj.Size == 0 || len(t.pieces) == 1 && t.pieces[0].Len == t.obj.Size
}

// sum joins the sums of the pieces, if these were taken by the algorithm and are all
// there is of the object.
func (t *transfer) sum(a backends.Algorithm) (backends.Checksum, bool) {
	if a != t.algorithm {
		return backends.Checksum{}, false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	whole := t.sums[0]
	for i := 1; i < len(t.sums); i++ {
		whole = a.Combine(whole, t.sums[i], t.pieces[i].Len)
	}
	return backends.Checksum{Algorithm: a, Value: hex.EncodeToString(whole)}, true
}

// readBack sums the file as it lies on the disk.
func (t *transfer) readBack(ctx context.Context, a backends.Algorithm) (backends.Checksum, error) {
	h := a.New()
	from := io.NewSectionReader(t.in, 0, t.obj.Size)
	buf := make([]byte, min(1<<20, t.obj.Size))
	for {
		if ctx.Err() != nil {
			return backends.Checksum{}, t.fail(backends.Canceled, context.Cause(ctx))
		}
		n, err := from.Read(buf)
		h.Write(buf[:n])
		if errors.Is(err, io.EOF) {
			return backends.SumOf(a, h), nil
		}
		if err != nil {
			return backends.Checksum{}, local(t.obj.Key, err)
		}
	}
}
