package conformance

import (
	"context"
	"io"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/stager-dev/stager/backends"
)

// Op is a method of a backend or of its writers.
type Op string

// The operations that faults can target. Create includes CreateParts, Write includes WritePart, and
// Commit and Abort are those of both writers.
const (
	List   Op = "list"
	Stat   Op = "stat"
	Read   Op = "read" // OpenRange and the stream it returns
	Create Op = "create"
	Write  Op = "write"
	Commit Op = "commit"
	Abort  Op = "abort"
	Delete Op = "delete"
)

// A Call is a recorded call. Off and N are those of OpenRange and WritePart.
type Call struct {
	Op     Op
	Key    string // or prefix
	Off, N int64
}

// A Fault is one failure in one call.
type Fault struct {
	stream bool  // it occurs in the returned stream or listing, not in the call
	after  int64 // bytes, or objects of a listing, before it occurs
	late   bool  // the call is made, then its response is lost
	do     func(context.Context) error
}

// Pass is no fault: the call succeeds.
func Pass() Fault { return Fault{do: func(context.Context) error { return nil }} }

// Fail fails the call with an error of kind.
func Fail(kind backends.Kind) Fault {
	return FailWith(backends.Errorf(kind, "", "", "the test's script says %s", kind))
}

// FailWith fails the call with err.
func FailWith(err error) Fault {
	return Fault{do: func(context.Context) error { return err }}
}

// Lost makes the call and loses the response: the caller gets an error of kind and cannot know the
// outcome.
func Lost(kind backends.Kind) Fault {
	f := Fail(kind)
	f.late = true
	return f
}

// Hang blocks the call until its context ends.
func Hang() Fault { return Fault{do: hang} }

func hang(ctx context.Context) error {
	<-ctx.Done()
	return context.Cause(ctx)
}

// Slow delays the call by d.
func Slow(d time.Duration) Fault {
	return Fault{do: func(ctx context.Context) error {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(d):
			return nil
		}
	}}
}

// Cut ends a stream after n bytes, or a listing after n objects, like a lost connection.
func Cut(n int64) Fault { return Break(n, io.ErrUnexpectedEOF) }

// Break ends a stream after n bytes, or a listing after n objects, with err.
func Break(n int64, err error) Fault {
	return Fault{stream: true, after: n, do: func(context.Context) error { return err }}
}

// Stall blocks a stream after n bytes, or a listing after n objects, until its context ends.
func Stall(n int64) Fault { return Fault{stream: true, after: n, do: hang} }

// Meanwhile calls f after n bytes of a stream or n objects of a listing, for example to change the
// object. Then the stream continues.
func Meanwhile(n int64, f func()) Fault {
	return Fault{stream: true, after: n, do: func(context.Context) error { f(); return nil }}
}

// Faults injects scripted faults into backends and records every call. The zero value injects none.
// All methods are safe for concurrent use.
type Faults struct {
	mu     sync.Mutex // guards the fields below
	queues map[Op][]entry
	always map[Op]Fault
	calls  []Call
}

type entry struct {
	key   string
	fault Fault
}

// Add queues faults. Each of the next calls of op consumes one, in this order. Faults within a
// stream are for Read and List only.
func (f *Faults) Add(op Op, faults ...Fault) *Faults { return f.AddFor(op, "", faults...) }

// AddFor queues faults for calls of op on one key of the backend.
func (f *Faults) AddFor(op Op, key string, faults ...Fault) *Faults {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.queues == nil {
		f.queues = make(map[Op][]entry)
	}
	for _, fault := range faults {
		fault.check(op)
		f.queues[op] = append(f.queues[op], entry{key, fault})
	}
	return f
}

// Always sets the fault of calls of op for which none is queued.
func (f *Faults) Always(op Op, fault Fault) *Faults {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.always == nil {
		f.always = make(map[Op]Fault)
	}
	fault.check(op)
	f.always[op] = fault
	return f
}

// check panics if the script makes no sense.
func (f Fault) check(op Op) {
	if f.stream && op != Read && op != List {
		panic("conformance: " + string(op) + " has no stream that a fault could lie in")
	}
}

// Calls returns the recorded calls of op, in order; of all operations if op is "".
func (f *Faults) Calls(op Op) []Call {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(f.calls), func(c Call) bool { return op != "" && c.Op != op })
}

// Left returns the number of queued faults that were not consumed. Tests usually expect 0.
func (f *Faults) Left() (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, q := range f.queues {
		n += len(q)
	}
	return n
}

// Wrap returns b with the faults injected. It implements PartCreator if b does.
func (f *Faults) Wrap(b backends.Backend) backends.Backend {
	faulty := &faulty{b, f}
	if parts, ok := b.(backends.PartCreator); ok {
		return &faultyParts{faulty, parts}
	}
	return faulty
}

// take records a call and returns its fault.
func (f *Faults) take(call Call) Fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, call)
	for i, e := range f.queues[call.Op] {
		if e.key == "" || e.key == call.Key {
			f.queues[call.Op] = slices.Delete(f.queues[call.Op], i, i+1)
			return e.fault
		}
	}
	if fault, ok := f.always[call.Op]; ok {
		return fault
	}
	return Pass()
}

// around makes a call and injects its fault.
func (f *Faults) around(ctx context.Context, call Call, do func(Fault) error) error {
	fault := f.take(call)
	if !fault.late && !fault.stream {
		if err := fault.do(ctx); err != nil {
			return err
		}
	}
	if err := do(fault); err != nil || !fault.late {
		return err
	}
	return fault.do(ctx)
}

// faulty is a backend with injected faults.
type faulty struct {
	backends.Backend
	faults *Faults
}

func (b *faulty) List(ctx context.Context, prefix string) iter.Seq2[backends.Object, error] {
	return func(yield func(backends.Object, error) bool) {
		fault := b.faults.take(Call{Op: List, Key: prefix})
		if !fault.stream {
			if err := fault.do(ctx); err != nil {
				yield(backends.Object{}, err)
				return
			}
		}
		var n int64
		broken := func() bool {
			if !fault.stream || n != fault.after {
				return false
			}
			err := fault.do(ctx)
			if err != nil {
				yield(backends.Object{}, err)
			}
			return err != nil
		}
		for obj, err := range b.Backend.List(ctx, prefix) {
			if broken() || !yield(obj, err) {
				return
			}
			n++
		}
		broken()
	}
}

func (b *faulty) Stat(ctx context.Context, key string) (obj backends.Object, err error) {
	err = b.faults.around(ctx, Call{Op: Stat, Key: key}, func(Fault) error {
		obj, err = b.Backend.Stat(ctx, key)
		return err
	})
	return obj, err
}

func (b *faulty) Delete(ctx context.Context, key string) error {
	return b.faults.around(ctx, Call{Op: Delete, Key: key}, func(Fault) error {
		return b.Backend.Delete(ctx, key)
	})
}

func (b *faulty) OpenRange(ctx context.Context, obj backends.Object, off, n int64) (body io.ReadCloser, err error) {
	err = b.faults.around(ctx, Call{Read, obj.Key, off, n}, func(fault Fault) error {
		if body, err = b.Backend.OpenRange(ctx, obj, off, n); err == nil && fault.stream {
			body = &faultyBody{body, ctx, fault, nil}
		}
		return err
	})
	if err != nil && body != nil {
		_ = body.Close() // its response is lost
		return nil, err
	}
	return body, err
}

// faultyBody is a stream with a fault.
type faultyBody struct {
	io.ReadCloser
	ctx   context.Context // the context of OpenRange applies to the stream
	fault Fault
	err   error
}

func (r *faultyBody) Read(p []byte) (int, error) {
	if r.err == nil && r.fault.after == 0 {
		r.fault.after = -1
		r.err = r.fault.do(r.ctx)
	}
	if r.err != nil {
		return 0, r.err
	}
	if r.fault.after > 0 {
		p = p[:min(int64(len(p)), r.fault.after)]
	}
	n, err := r.ReadCloser.Read(p)
	if r.fault.after > 0 {
		r.fault.after -= int64(n)
	}
	return n, err
}

// ObjectChecksum returns that of the wrapped stream.
func (r *faultyBody) ObjectChecksum() backends.Checksum {
	if s, ok := r.ReadCloser.(backends.ChecksumReader); ok {
		return s.ObjectChecksum()
	}
	return backends.Checksum{}
}
