package layout

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/stager/internal/records"
)

// joinTries is how often the record may change while a worker joins. Each change is an action of
// another worker.
const joinTries = 20

// Worker is one of the workers that share a layout.
type Worker struct {
	dst     *backends.Store
	index   int
	alone   bool // the only worker
	record  record
	version backends.Version
}

// Join records the layout at the destination, or compares it with the existing record. If the
// layout or the number of workers differs from that of workers which have not all finished, the
// error has kind Exist and names the difference. A single worker that does everything may join what
// several workers began.
//
// It costs one request for the first worker, and a few more for each of the others.
func Join(ctx context.Context, dst *backends.Store, l Layout, index int) (*Worker, error) {
	w := &Worker{dst: dst, index: index, alone: l.Workers <= 1}
	if w.alone {
		l.Workers, w.index = 1, 0
	}
	for range joinTries {
		again, err := w.join(ctx, l)
		if err != nil || !again {
			return w, err
		}
	}
	return nil, &backends.Error{
		Op: "write", Store: dst.Name(), Key: base(l) + suffix, Kind: backends.Unavailable,
		Err: errors.New("other workers keep changing the record of the layout; run this worker again"),
	}
}

// join tries once; again reports that the record changed meanwhile.
func (w *Worker) join(ctx context.Context, l Layout) (again bool, err error) {
	err = w.put(newRecord(l, 1), func(key string, text []byte) (backends.Version, error) {
		return records.Create(ctx, w.dst, key, text)
	})
	if decided, _ := records.Decides(w.dst); err == nil && !decided {
		return w.settled(ctx)
	}
	if err == nil {
		return false, nil
	}
	old, version, failed := read(ctx, w.dst, base(l)+suffix)
	switch {
	case backends.KindOf(failed) == backends.NotExist && backends.KindOf(err) == backends.Exist:
		return true, nil
	case backends.KindOf(failed) == backends.NotExist:
		return false, err
	case failed != nil:
		return false, failed
	}
	difference := l.differs(old.Layout)
	if difference == "" && (w.alone || old.Workers == l.Workers) {
		w.record, w.version = old, version
		if w.alone {
			return false, nil
		}
		return w.rejoin(ctx)
	}
	t, err := list(ctx, w.dst, l)
	if err != nil {
		return false, err
	}
	if missing := t.missing(old, old.Run); old.Workers > 1 && len(missing) > 0 {
		return false, refused(w.dst, l, old, difference, missing)
	}
	next := newRecord(l, old.Run+1)
	next.Before = old.indexes()
	if again, err := w.replace(ctx, next, version); again || err != nil {
		return again, err
	}
	return false, t.remove(ctx, w.dst, w.record.ID)
}

// rejoin starts a new run if the recorded one is complete.
func (w *Worker) rejoin(ctx context.Context) (again bool, err error) {
	t, err := list(ctx, w.dst, w.record.Layout)
	if err != nil || len(t.missing(w.record, w.record.Run)) > 0 {
		return false, err
	}
	next := w.record
	next.Run++
	return w.replace(ctx, next, w.version)
}

func (w *Worker) replace(ctx context.Context, next record, over backends.Version) (again bool, err error) {
	err = w.put(next, func(key string, text []byte) (backends.Version, error) {
		return records.Replace(ctx, w.dst, key, text, over)
	})
	if backends.KindOf(err) == backends.Changed {
		return true, nil
	}
	return false, err
}

// settled checks the record again if the store does not decide between two concurrent creates.
func (w *Worker) settled(ctx context.Context) (again bool, err error) {
	t, err := list(ctx, w.dst, w.record.Layout)
	if err != nil {
		return false, err
	}
	for _, mark := range t.marks {
		if !strings.HasPrefix(mark, w.record.ID+"-") {
			return false, w.replaced(nil) // the worker that lost the race has finished
		}
	}
	return t.version != w.version, nil
}

// put writes a record and stores it in the worker.
func (w *Worker) put(r record, write func(key string, text []byte) (backends.Version, error)) error {
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	version, err := write(base(r.Layout)+suffix, append(text, '\n'))
	if err == nil {
		w.record, w.version = r, version
	}
	return err
}

// refused returns an error that says what differs and what to do.
func refused(dst *backends.Store, l Layout, old record, difference string, missing []int) error {
	if difference == "" {
		difference = fmt.Sprintf("this worker is one of %d, but the layout has %d", l.Workers, old.Workers)
	}
	return &backends.Error{Op: l.Kind, Store: dst.Name(), Kind: backends.Exist, Err: fmt.Errorf(
		"the layout of the work differs, and %s: %s; give all workers the same flags and an unchanging source, or, if none is running, run this command once with --reset-layout and then every worker again",
		unfinished(missing, old.Workers), difference)}
}

// Lists reports whether a layout has the same listing as this worker's.
func (w *Worker) Lists(l Layout) bool { return l.Listing == w.record.Listing }

// Published reports whether the index belongs to this layout, or to one that it replaced.
func (w *Worker) Published(index []byte) bool {
	return slices.Contains(w.record.indexes(), IndexSum(index))
}

// Tally returns an empty tally for a listing of the destination, see [Worker.All].
func (w *Worker) Tally() *Tally { return &Tally{base: base(w.record.Layout)} }

// Finish writes the worker's mark: its part is at the destination. It reports whether every worker
// has written one.
func (w *Worker) Finish(ctx context.Context) (all bool, err error) {
	if w.alone {
		return true, nil
	}
	if _, err := w.dst.PutBytes(ctx, w.record.mark(w.index), nil, backends.CreateOptions{}); err != nil {
		return false, err
	}
	t, err := list(ctx, w.dst, w.record.Layout)
	if err != nil {
		return false, err
	}
	return w.All(ctx, t)
}

// All reports whether every part of the layout is at the destination. If the record is no longer
// that of this worker's layout, the error has kind Changed.
func (w *Worker) All(ctx context.Context, t *Tally) (bool, error) {
	if t.version == "" || t.version != w.version {
		now, _, err := read(ctx, w.dst, base(w.record.Layout)+suffix)
		if err != nil || now.ID != w.record.ID {
			return false, w.replaced(err)
		}
	}
	return w.alone || len(t.missing(w.record, 0)) == 0, nil
}

func (w *Worker) replaced(err error) error {
	if err != nil && backends.KindOf(err) != backends.NotExist {
		return err
	}
	return &backends.Error{
		Op: w.record.Kind, Store: w.dst.Name(), Kind: backends.Changed,
		Err: errors.New("the layout was reset or replaced while this worker was running, so its part may belong to no layout; run every worker again"),
	}
}

// Verify returns an error if the record at the destination shows that the work is not complete: a
// worker has not finished, or one of the options in compare (names of flags) differs from this
// layout. It returns nil if there is no record.
func Verify(ctx context.Context, dst *backends.Store, l Layout, compare ...string) error {
	t, err := list(ctx, dst, l)
	if err != nil || t.version == "" && len(t.marks) == 0 {
		return err
	}
	old, _, err := read(ctx, dst, base(l)+suffix)
	if err != nil {
		return err
	}
	for _, name := range compare {
		if mine, theirs := l.Options[name], old.Options[name]; mine != theirs {
			return &backends.Error{Op: "verify", Store: dst.Name(), Kind: backends.Exist, Err: fmt.Errorf(
				"%s is %s here, but the layout has %s", name, orNone(mine), orNone(theirs))}
		}
	}
	if missing := t.missing(old, 0); old.Workers > 1 && len(missing) > 0 && old.work() == l.work() {
		return &backends.Error{Op: "verify", Store: dst.Name(), Kind: backends.Changed, Err: fmt.Errorf(
			"%s; run them again", unfinished(missing, old.Workers))}
	}
	return nil
}

// Reset removes the record of a layout and its marks, also a record that cannot be read. No worker
// may be running. It reports whether there was anything to remove.
func Reset(ctx context.Context, dst *backends.Store, l Layout) (bool, error) {
	t, err := list(ctx, dst, l)
	if err != nil {
		return false, err
	}
	if err := t.remove(ctx, dst, ""); err != nil {
		return false, err
	}
	return t.version != "" || len(t.marks) > 0, dst.Delete(ctx, base(l)+suffix)
}
