package download

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"

	"github.com/stager-dev/stager/backends"
)

// Verify selects how the bytes of an object are verified. Their number always is.
type Verify string

const (
	// VerifyAuto compares the checksum if the store reports one. If the store reports it only on
	// request, an additional request is sent for large objects.
	VerifyAuto Verify = "auto"
	// VerifySize checks only the size.
	VerifySize Verify = "size"
	// VerifyFull requires a checksum. If the store has none for an object, the error has kind
	// Unsupported.
	VerifyFull Verify = "full"
)

// check returns an error for an unknown value; "" means VerifyAuto.
func (v Verify) check() error {
	switch v {
	case "", VerifyAuto, VerifySize, VerifyFull:
		return nil
	}
	return backends.Errorf(backends.Invalid, "verify", "", "%q is not one of auto, size, full", string(v))
}

// errSums is wrapped by errors about checksums that differ: fetching again may help.
var errSums = errors.New("the checksum differs")

// verify compares the whole file with the store's checksum and returns it. It returns the zero
// value if the store has no checksum and none is required.
func (t *transfer) verify(ctx context.Context) (backends.Checksum, error) {
	none := backends.Checksum{}
	if t.opts.Verify == VerifySize {
		return none, nil
	}
	stated, err := t.reportedSum(ctx)
	if err != nil {
		return none, err
	}
	if stated.Algorithm.Size() == 0 {
		if t.opts.Verify != VerifyFull {
			return none, nil
		}
		return none, t.fail(backends.Unsupported, errors.New(
			"the store has no usable checksum of it; do not request full verification, or store it with a checksum"))
	}
	got, ok := t.sum(stated.Algorithm)
	if !ok && t.in == nil {
		return none, t.fail(backends.Unsupported, fmt.Errorf(
			"the store returned %s only after the last byte; disable unpacking, or verify by size", stated))
	}
	if !ok {
		if got, err = t.readBack(ctx, stated.Algorithm); err != nil {
			return none, err
		}
	}
	if got != stated {
		return none, t.fail(backends.Corrupt, fmt.Errorf("%w: the store has %s, the received bytes have %s", errSums, stated, got))
	}
	return stated, nil
}

// reportedSum returns the store's checksum: from the listing, from reading, or from an additional
// request.
func (t *transfer) reportedSum(ctx context.Context) (backends.Checksum, error) {
	t.mu.Lock()
	stated := t.reported
	t.mu.Unlock()
	// For a small object that was read in one piece, the response would have contained the
	// checksum.
	askable := t.opts.Verify == VerifyFull || t.store.Capabilities().Checksum != "" && !t.isWhole()
	if !stated.IsZero() || !askable {
		return stated, nil
	}
	now, err := t.store.Stat(ctx, t.obj.Key)
	if err != nil {
		return stated, err
	}
	if now.Version != t.obj.Version && t.obj.Version != "" || now.Size != t.obj.Size {
		return stated, t.fail(backends.Changed, fmt.Errorf("it was replaced during the read (version %q, now %q)", t.obj.Version, now.Version))
	}
	return now.Sum, nil
}

// isWhole reports whether the object was read in one stream from its beginning to its end.
func (t *transfer) isWhole() bool {
	return t.obj.Size == 0 || len(t.pieces) == 1 && t.pieces[0].Len == t.obj.Size
}

// sum combines the checksums of the pieces, if they use algorithm a and cover the whole object.
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

// readBack computes the checksum of the file on disk.
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
