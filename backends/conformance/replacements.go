package conformance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/stager-dev/stager/backends"
)

// The object that [Replacements] replaces has these contents by turns. Their sizes differ.
var byTurns = map[string]int64{"one": 60_000, "two": 80_000}

const (
	replacing       = time.Second // how long Replacements replaces the object
	maxReplacements = 2000        // and how often at most
)

// ListedThroughout is a part of [Replacements] that a store may be known not to fulfil: listings have the
// object while it is replaced.
const ListedThroughout = "listings have the object throughout"

// Replacements replaces an object of writer many times. It checks that readers see the old object or the
// new one at each moment: that Stat, List and reads find it, that nobody can create it, and that
// nobody can replace a version that it no longer has. Both stores are of the same empty directory,
// with connections of their own, as in two processes. without is [ListedThroughout] or nothing.
func Replacements(t TB, readers, writer *backends.Store, without ...string) {
	t.Helper()
	if !readers.Capabilities().AtomicReplace {
		t.Fatalf("the store does not promise to replace objects at once")
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	put := func(store *backends.Store, seed string, opts backends.CreateOptions) error {
		_, err := store.Put(ctx, "k", ContentsOf(seed, byTurns[seed]), byTurns[seed], opts)
		return err
	}
	if err := put(writer, "one", backends.CreateOptions{}); err != nil {
		t.Fatalf("putting the object: %v", err)
	}
	var done atomic.Bool
	var g errgroup.Group
	watch := func(what string, times *atomic.Int64, look func() error) {
		g.Go(func() error {
			for !done.Load() {
				if err := look(); err != nil {
					done.Store(true)
					return fmt.Errorf("%s, the %d-th time: %w", what, times.Load()+1, err)
				}
				times.Add(1)
			}
			return nil
		})
	}
	var reads, lists, creates, swaps, replaced atomic.Int64
	for range 3 {
		watch("reading it", &reads, func() error { return readReplaced(ctx, readers, "k") })
	}
	if !slices.Contains(without, ListedThroughout) {
		watch("listing it", &lists, func() error { return listReplaced(ctx, readers, "k") })
	}
	if readers.Capabilities().ConditionalCreate {
		watch("creating it", &creates, func() error {
			err := put(readers, "two", backends.CreateOptions{IfAbsent: true})
			switch {
			case err == nil:
				return errors.New("it was created, want an error of kind exist")
			case backends.KindOf(err) == backends.Exist:
				return nil
			}
			return err
		})
	}
	if readers.Capabilities().Guard != backends.GuardNone {
		watch("replacing a version", &swaps, func() error {
			obj, err := readers.Stat(ctx, "k")
			if err != nil {
				return err
			}
			if err = put(readers, "two", backends.CreateOptions{IfVersion: obj.Version}); backends.KindOf(err) == backends.Changed {
				return nil
			}
			return err
		})
	}
	seeds := []string{"two", "one"}
	for until := time.Now().Add(replacing); !done.Load() && time.Now().Before(until) && replaced.Load() < maxReplacements; replaced.Add(1) {
		if err := put(writer, seeds[replaced.Load()%2], backends.CreateOptions{}); err != nil {
			t.Errorf("replacing the object: %v", err)
			break
		}
	}
	done.Store(true)
	if err := g.Wait(); err != nil {
		t.Errorf("while the object is replaced: %v", err)
	}
	t.Logf("during %d replacements the object was read %d times, listed %d times, not created %d times, and replaced in one version %d times",
		replaced.Load(), reads.Load(), lists.Load(), creates.Load(), swaps.Load())
	if err := writer.Delete(t.Context(), "k"); err != nil {
		t.Errorf("cleaning up: %v", err)
	}
}

// readReplaced reads an object that is replaced meanwhile. A change under way is no error.
func readReplaced(ctx context.Context, store *backends.Store, key string) error {
	obj, err := store.Stat(ctx, key)
	if err != nil {
		return err
	}
	seed := "one"
	if obj.Size == byTurns["two"] {
		seed = "two"
	}
	to := &comparing{want: ContentsOf(seed, byTurns[seed])}
	_, err = store.ReadRange(ctx, obj, 0, obj.Size, to, nil)
	if backends.KindOf(err) == backends.Changed {
		return nil
	}
	if err == nil && to.wrong > 0 {
		return backends.Errorf(backends.Corrupt, "read", key, "%d bytes at version %q: %d blocks are wrong", obj.Size, obj.Version, to.wrong)
	}
	return err
}

// listReplaced looks for an object that is replaced meanwhile in a listing, which must have it once.
func listReplaced(ctx context.Context, store *backends.Store, key string) error {
	found := 0
	for obj, err := range store.List(ctx, key) {
		if err != nil {
			return err
		}
		if obj.Key != key || obj.Size != byTurns["one"] && obj.Size != byTurns["two"] {
			return backends.Errorf(backends.Corrupt, "list", obj.Key, "the listing has an object of %d bytes, want %s alone", obj.Size, key)
		}
		found++
	}
	if found != 1 {
		return backends.Errorf(backends.NotExist, "list", key, "the listing has it %d times, want once", found)
	}
	return nil
}
