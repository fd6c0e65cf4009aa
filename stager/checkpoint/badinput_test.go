package checkpoint

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/conformance"
	"github.com/stager-dev/stager/backends/mem"
)

// picky is a store that rejects names with a backslash.
type picky struct{ *mem.Backend }

func (picky) CheckKey(key string) error {
	if strings.Contains(key, `\`) {
		return backends.Errorf(backends.Invalid, "create", key, "this store has no names with a backslash")
	}
	return nil
}

// A name that the destination rejects is reported and does not prevent other files from being
// saved.
func TestNameUnsupportedByDestination(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b, dir := mem.New(), t.TempDir()
		u := newUploader(t, dir, picky{b}, nil)
		write(t, filepath.Join(dir, "step-1"), model("1"))
		write(t, filepath.Join(dir, "step-2"), map[string]string{`rank\0.pt`: "x"})
		write(t, dir, map[string]string{"log.txt": "words"})
		settled(t, u)
		if got, want := commits(b), []string{stepDir(1, 0)}; !slices.Equal(got, want) {
			t.Errorf("committed %v, want %v", got, want)
		}
		if _, ok := b.Get("files/log.txt"); !ok {
			t.Error("the log is not mirrored")
		}
		if f := u.Status().Failed; len(f) != 1 || f[0].Step != 2 || !strings.Contains(f[0].Reason, "backslash") {
			t.Errorf("failed %+v, want step 2 and why", f)
		}
		if err := u.Drain(t.Context(), Exit{Success: true}); err == nil || !strings.Contains(err.Error(), "step 2 (step-2) is not safe") {
			t.Errorf("the end says %v, want that step 2 is not safe", err)
		}
	})
}

func TestHolesAndSocketsInACheckpoint(t *testing.T) {
	b, dir := mem.New(), t.TempDir()
	f, err := os.Create(filepath.Join(dir, "sparse"))
	if err != nil {
		t.Fatal(err)
	}
	const size = 40 << 20
	if _, err = f.WriteAt([]byte("end"), size-3); err != nil {
		t.Fatal(err)
	}
	f.Close()
	l, err := net.Listen("unix", filepath.Join(dir, "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if _, err := PushCheckpoint(t.Context(), PushCheckpointConfig{Store: newStore(b), Path: dir, Step: 1}); err != nil {
		t.Fatal(err)
	}
	_, files := restoreNewest(t, b)
	want := append(bytes.Repeat([]byte{0}, size-3), "end"...)
	if len(files) != 1 || files["sparse"] != string(want) {
		t.Errorf("restored %d files, and %d bytes of the sparse one", len(files), len(files["sparse"]))
	}
}

// With a destination that accepts every call and never responds, Drain keeps its deadline and
// reports what is not safe. Pending checkpoints stay held for the next process.
func TestDestinationSlowForever(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b, dir, faults := mem.New(), t.TempDir(), new(conformance.Faults)
		u := newUploader(t, dir, faults.Wrap(b), nil)
		write(t, filepath.Join(dir, "step-1"), model("1"))
		if _, err := u.Commit(t.Context(), CommitRequest{Path: "step-1", Step: -1}); err != nil {
			t.Fatal(err)
		}
		faults.Always(conformance.Commit, conformance.Hang())
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		began := time.Now()
		err := u.Drain(ctx, Exit{})
		if took := time.Since(began); !errors.Is(err, context.DeadlineExceeded) || took > time.Minute {
			t.Errorf("got %v after %s, want the deadline of a minute", err, took)
		}
		u.Close()
		if err := os.RemoveAll(filepath.Join(dir, "step-1")); err != nil {
			t.Fatal(err)
		}
		pass(t, newUploader(t, dir, b, nil))
		_, files := restoreNewest(t, b)
		equal(t, "restored", files, model("1"))
	})
}

// A run from scratch has lower steps than the run before. Its newest step is saved and reported,
// although restore uses the highest step.
func TestStepNumbersThatGoBack(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b, dir := mem.New(), t.TempDir()
		u := newUploader(t, dir, b, func(c *Config) { c.Keep.Last = 2 })
		for _, step := range []int{300, 100, 200} {
			write(t, filepath.Join(dir, fmt.Sprint("step-", step)), model(fmt.Sprint(step)))
			settled(t, u)
			if err := u.Wait(t.Context(), int64(step)); err != nil && !errors.As(err, new(*ProvisionalError)) {
				t.Errorf("step %d: %v", step, err)
			}
		}
		if got, want := commits(b), []string{stepDir(100, 0), stepDir(200, 0), stepDir(300, 0)}; !slices.Equal(got, want) {
			t.Errorf("committed %v, want %v", got, want)
		}
		for _, dir := range commits(b) {
			if err := Verify(t.Context(), newStore(b), dir, func(int64) {}); err != nil {
				t.Errorf("%s: %v", dir, err)
			}
		}
	})
}

// What the store rejects is reported, loses nothing that the job had, and is saved when the store
// accepts it again.
func TestDestinationDenied(t *testing.T) {
	for kind, hopeless := range map[backends.Kind]bool{backends.NoSpace: false, backends.Permission: true} {
		inBubble(t, func(t *testing.T) {
			b, dir, faults := mem.New(), t.TempDir(), new(conformance.Faults)
			push(t, b, 1, model("1"))
			before := b.Keys()
			u := newUploader(t, dir, faults.Wrap(b), func(c *Config) { c.Keep.Last = 1 })
			faults.Always(conformance.Create, conformance.Fail(kind))
			write(t, filepath.Join(dir, "step-2"), model("2"))
			write(t, dir, map[string]string{"log.txt": "words"})
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			began := time.Now()
			err := u.Drain(ctx, Exit{Gone: true, Success: true})
			if backends.KindOf(err) != kind && !errors.Is(err, context.DeadlineExceeded) || err == nil || !strings.Contains(err.Error(), "step 2 (step-2) is not safe: it is held in") {
				t.Errorf("%s: the end says %v, want that step 2 is not safe, and where it is", kind, err)
			}
			if took := time.Since(began); hopeless != (took < time.Second) {
				t.Errorf("%s: the end took %v, want it to be given up at once: %t", kind, took, hopeless)
			}
			if u.Status().LastError == "" || !slices.Equal(b.Keys(), before) {
				t.Errorf("%s: the status has the error %q and the store %v, want a word and what was there", kind, u.Status().LastError, b.Keys())
			}
			u.Close()
			pass(t, newUploader(t, dir, b, nil))
			_, files := restoreNewest(t, b)
			equal(t, "restored", files, model("2"))
		})
	}
}

// The store's clock only decides when orphans of other programs are old. The order in which steps
// were pushed determines which is newer.
func TestStoreClockSkew(t *testing.T) {
	dest := t.TempDir()
	for i, off := range []time.Duration{48 * time.Hour, -1000 * time.Hour} {
		step, dir := i+1, t.TempDir()
		write(t, dir, model(fmt.Sprint(step)))
		if _, err := PushCheckpoint(t.Context(), PushCheckpointConfig{Store: stored(t, dest), Path: dir, Step: int64(step)}); err != nil {
			t.Fatal(err)
		}
		at := time.Now().Add(off)
		if err := os.Chtimes(filepath.Join(dest, stepDir(int64(step), 0), commitKey), at, at); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := Prune(t.Context(), PruneConfig{Store: stored(t, dest), Keep: Keep{Last: 1}, Abandoned: Abandoned}); err != nil {
		t.Fatal(err)
	}
	r, err := Restore(t.Context(), RestoreConfig{Store: stored(t, dest), Dir: filepath.Join(t.TempDir(), "back"), Step: Newest})
	if err != nil || r.Step != 2 {
		t.Errorf("step %d stays (%v), want the newest, 2", r.Step, err)
	}
	ret := retention{abandoned: Abandoned}
	for off, over := range map[time.Duration]bool{48 * time.Hour: false, time.Hour: false, -time.Hour: false, -48 * time.Hour: true} {
		left := backends.Orphan{Key: stepDir(1, 0) + "/data/0123456789abcdef/x", Touched: time.Now().Add(off)}
		if got := ret.isOver(left); got != over {
			t.Errorf("what came just now by a clock that is off by %v is swept: %t, want %t", off, got, over)
		}
	}
}
