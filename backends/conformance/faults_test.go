package conformance_test

import (
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/conformance"
	"github.com/stager-dev/stager/backends/mem"
)

func TestFaultsComeInOrderAndOnTheirKey(t *testing.T) {
	var faults conformance.Faults
	b := faults.Wrap(mem.New())
	faults.Add(conformance.Stat, conformance.Fail(backends.Throttled), conformance.Pass())
	faults.AddFor(conformance.Stat, "b", conformance.Fail(backends.Permission))
	faults.Always(conformance.Stat, conformance.Fail(backends.Corrupt))
	for i, want := range []struct {
		key  string
		kind backends.Kind
	}{{"a", backends.Throttled}, {"a", backends.NotExist}, {"a", backends.Corrupt}, {"b", backends.Permission}, {"b", backends.Corrupt}} {
		if _, err := b.Stat(t.Context(), want.key); backends.KindOf(err) != want.kind {
			t.Errorf("call %d, of %s: got %v, want kind %s", i, want.key, err, want.kind)
		}
	}
	if got := len(faults.Calls(conformance.Stat)); got != 5 || faults.Left() != 0 {
		t.Errorf("%d calls and %d faults left, want 5 and 0", got, faults.Left())
	}
}

func TestFaultsInAStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := mem.New()
		obj := store.Generate("k", 100)
		var faults conformance.Faults
		b := faults.Wrap(store)
		changed := false
		for _, tt := range []struct {
			fault conformance.Fault
			n     int
			err   error
		}{
			{conformance.Pass(), 100, nil},
			{conformance.Cut(0), 0, io.ErrUnexpectedEOF},
			{conformance.Cut(99), 99, io.ErrUnexpectedEOF},
			{conformance.Stall(7), 7, context.DeadlineExceeded},
			{conformance.Meanwhile(7, func() { changed = true }), 100, nil},
			{conformance.Slow(time.Second), 100, nil},
		} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			faults.Add(conformance.Read, tt.fault)
			body, err := b.OpenRange(ctx, obj, 0, -1)
			if err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(body)
			if len(got) != tt.n || !errors.Is(err, tt.err) {
				t.Errorf("read %d bytes, %v; want %d, %v", len(got), err, tt.n, tt.err)
			}
			if sum := body.(backends.ChecksumReader).ObjectChecksum(); sum.IsZero() {
				t.Error("the stream lost its sum")
			}
			cancel()
		}
		if !changed {
			t.Error("nothing happened meanwhile")
		}
	})
}

func TestFaultsKeepAbilities(t *testing.T) {
	var faults conformance.Faults
	if _, ok := faults.Wrap(mem.New()).(backends.PartCreator); !ok {
		t.Error("a store that takes parts lost that")
	}
	if _, ok := faults.Wrap(struct{ backends.Backend }{mem.New()}).(backends.PartCreator); ok {
		t.Error("a store that takes no parts pretends to")
	}
}
