package conformance

import (
	"context"

	"github.com/stager-dev/stager/backends"
)

func (b *faulty) Create(ctx context.Context, key string, opts backends.CreateOptions) (w backends.Writer, err error) {
	err = b.faults.around(ctx, Call{Op: Create, Key: key}, func(Fault) error {
		if w, err = b.Backend.Create(ctx, key, opts); err == nil {
			w = &faultyWriter{w, faultyEnd{w, b.faults, key}, ctx}
		}
		return err
	})
	return w, err
}

// faultyParts is a faulty that implements PartCreator.
type faultyParts struct {
	*faulty
	parts backends.PartCreator
}

func (b *faultyParts) CreateParts(ctx context.Context, key string, opts backends.CreateOptions) (w backends.PartWriter, err error) {
	err = b.faults.around(ctx, Call{Op: Create, Key: key}, func(Fault) error {
		if w, err = b.parts.CreateParts(ctx, key, opts); err == nil {
			w = &faultyPartWriter{w, faultyEnd{w, b.faults, key}}
		}
		return err
	})
	return w, err
}

// faultyEnd is how both writers end.
type faultyEnd struct {
	end interface {
		Commit(ctx context.Context) (backends.Object, error)
		Abort() error
	}
	faults *Faults
	key    string
}

func (w *faultyEnd) Commit(ctx context.Context) (obj backends.Object, err error) {
	err = w.faults.around(ctx, Call{Op: Commit, Key: w.key}, func(Fault) error {
		obj, err = w.end.Commit(ctx)
		return err
	})
	return obj, err
}

func (w *faultyEnd) Abort() error {
	return w.faults.around(context.Background(), Call{Op: Abort, Key: w.key}, func(Fault) error {
		return w.end.Abort()
	})
}

type faultyWriter struct {
	w backends.Writer
	faultyEnd
	ctx context.Context // the context of Create applies to writes
}

func (w *faultyWriter) Write(p []byte) (n int, err error) {
	err = w.faults.around(w.ctx, Call{Op: Write, Key: w.key, N: int64(len(p))}, func(Fault) error {
		n, err = w.w.Write(p)
		return err
	})
	return n, err
}

type faultyPartWriter struct {
	w backends.PartWriter
	faultyEnd
}

func (w *faultyPartWriter) WritePart(ctx context.Context, off int64, src *backends.Part) error {
	return w.faults.around(ctx, Call{Write, w.key, off, src.Size()}, func(Fault) error {
		return w.w.WritePart(ctx, off, src)
	})
}
