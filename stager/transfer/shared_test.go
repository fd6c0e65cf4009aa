package transfer

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/stager/layout"
	"github.com/stager-dev/stager/stager/plan"
)

func part(src, dst *side, index, count int) Config {
	return Config{Src: src.store, Dst: dst.store, Listing: plan.Listing{Shard: plan.Shard{Index: index, Count: count}}}
}

// An object that was added between the listings of two workers moved all later ones to other
// workers: both exited with success, and half of the objects were missing.
func TestCopyRefusesASourceThatChangedBetweenWorkers(t *testing.T) {
	src, dst := newSide("src", backends.CRC64NVME), newSide("dst", backends.CRC64NVME)
	for i := range 10 {
		src.Generate(fmt.Sprintf("b%d", i), 100)
	}
	run1(t, part(src, dst, 0, 2))
	src.Generate("a", 100)
	_, err := Copy(t.Context(), part(src, dst, 1, 2))
	if backends.KindOf(err) != backends.Exist || !strings.Contains(fmt.Sprint(err), "the source has changed: it has 11 objects, and had 10") {
		t.Errorf("the second worker: got %v, want kind exist and what changed", err)
	}
	if got := len(dst.data()); got != 5 {
		t.Errorf("the destination has %d objects, want the 5 of the first worker", got)
	}
	if _, err := Verify(t.Context(), Config{Src: src.store, Dst: dst.store}, func(string, string) {}); err == nil {
		t.Error("Verify: got no error, want one")
	}
}

// The source changes while the first worker sends, after its first listing.
func TestCopyRefusesASourceThatChangesUnderIt(t *testing.T) {
	src, dst := newSide("src", backends.CRC64NVME), newSide("dst", backends.CRC64NVME)
	for i := range 10 {
		src.Generate(fmt.Sprintf("b%d", i), 100)
	}
	cfg := part(src, dst, 0, 2)
	cfg.Shared = &Shared{Layout: CopyLayout(cfg), Begin: func(context.Context, *layout.Worker) error {
		src.Generate("a", 100)
		return nil
	}}
	_, err := Copy(t.Context(), cfg)
	if backends.KindOf(err) != backends.Changed || !strings.Contains(fmt.Sprint(err), "the source changed during the copy") {
		t.Errorf("got %v, want kind changed", err)
	}
	if _, err := Copy(t.Context(), part(src, dst, 1, 2)); backends.KindOf(err) != backends.Exist {
		t.Errorf("the second worker: got %v, want kind exist", err)
	}
}

// Verify found all objects equal although a worker had not finished, and a running worker was about
// to replace objects.
func TestVerifyNamesAWorkerThatHasNotFinished(t *testing.T) {
	src, dst := newSide("src", backends.CRC64NVME), newSide("dst", backends.CRC64NVME)
	for i := range 10 {
		src.Generate(fmt.Sprintf("b%d", i), 100)
	}
	whole := Config{Src: src.store, Dst: dst.store}
	run1(t, part(src, dst, 0, 2))
	run1(t, whole)
	_, err := Verify(t.Context(), whole, func(key, what string) { t.Errorf("%s: %s", key, what) })
	if backends.KindOf(err) != backends.Changed || !strings.Contains(fmt.Sprint(err), "1 of its 2 workers has not finished (1)") {
		t.Errorf("Verify: got %v, want kind changed that names worker 1", err)
	}
	run1(t, part(src, dst, 1, 2))
	if _, err := Verify(t.Context(), whole, func(key, what string) { t.Errorf("%s: %s", key, what) }); err != nil {
		t.Errorf("Verify: got %v, want no error", err)
	}
}

// The requests of a single worker to both stores do not change.
func TestCopyAloneKeepsNoLayout(t *testing.T) {
	src, dst := newSide("src", backends.CRC64NVME), newSide("dst", backends.CRC64NVME)
	src.Generate("a", 100)
	run1(t, Config{Src: src.store, Dst: dst.store})
	if keys := dst.Keys(); len(keys) != 2 {
		t.Errorf("the destination has %q, want the object and the record of the copy", keys)
	}
}
