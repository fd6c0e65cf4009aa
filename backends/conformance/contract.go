package conformance

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/stager-dev/stager/backends"
)

// Options say what the contract must know of a store. The zero value is right for
// most.
type Options struct {
	// Unfit tells which keys the store cannot hold, such as "a?b" on a share of
	// Windows. Writing one must then fail with kind Invalid. nil: it holds all.
	Unfit func(key string) bool
	// Without names checks of promises that the store is known not to make, or that
	// need objects larger than MaxSize: they are left out. A promise that turns out not
	// to be made, and is not named here, is a failure.
	Without []string
	// Refused, when not nil, is told of odd keys that the store refuses with kind
	// Invalid; that is no failure then. For stores of which nobody knows Unfit and
	// Without: checks of promises that they do not make are skipped.
	Refused func(key string)
	// MaxSize is the largest object that is written; 0: 64 MiB.
	MaxSize int64
	// Many is how many objects the longest listing has; 0: 1,100, which is more
	// than a page of most stores.
	Many int
}

// prompt is how long a cancelled call may take.
const prompt = 10 * time.Second

// check is one promise under test, in a directory of its own.
type check struct {
	TB
	ctx          context.Context // that of the test
	store        *backends.Store
	backend      backends.Backend // what store stands on …
	prefix       string           // … and where its keys begin there
	capabilities backends.Capabilities
	opts         Options
}

// Checks that [Options.Without] may name.
const (
	AtOnce    = "readers see the old object or the new one"
	OneWinner = "of eight writers of a free key one wins"
	AnyOrder  = "parts may come in any order, and twice"
)

// checks are the contract, in the order in which a broken store is best understood.
var checks = []struct {
	name string
	run  func(*check)
}{
	{"the facts about the store make sense", capabilitiesAreSane},
	{"a missing key is not there", missingKey},
	{"objects of all sizes come back as they were written", sizes},
	{"a write answers what stat tells later", putReturnsStat},
	{"odd names come back as they were given", oddKeys},
	{"a listing ascends and ends at its prefix", listOrder},
	{"a long listing is whole", listLong},
	{"a listing can be left in the middle", listLeft},
	{"a listing reports what is removed under way", listRemoved},
	{"a range is what was asked for", ranges},
	{"a range that does not fit is an error", rangesUnfit},
	{"a stream can be read in bits and left early", oddReading},
	{"a version that is gone is refused", versionRemoved},
	{"a change between two ranges is noticed", changeBetweenRanges},
	{"a change under way mixes no versions", changeUnderWay},
	{"nothing is seen before its commit", unseenBeforeCommit},
	{"an aborted write leaves nothing", abortLeavesNothing},
	{"a write of another size than announced fails", sizeNotKept},
	{"a commit replaces what was there", commitReplaces},
	{AtOnce, commitReplacesAtOnce},
	{"a key that is taken is kept, if asked", ifAbsent},
	{OneWinner, ifAbsentAtOnce},
	{VersionKept, ifVersion},
	{OneReplaces, ifVersionAtOnce},
	{"a replacement leaves nothing behind", swapLeavesNothing},
	{OneEachRound, swapRounds},
	{"claims are hidden and can be swept", claimsSwept},
	{AnyOrder, partsAnyOrder},
	{"a delete removes one key, and may be repeated", deleteTwice},
	{"a name stands for an object or a directory", subAndSelf},
	{"a call that is cancelled before does nothing", cancelledBefore},
	{"a read can be cancelled", cancelledReading},
	{"a write can be cancelled", cancelledWriting},
	{"many at once do not disturb each other", manyAtOnce},
	{"broken streams are resumed", brokenStreams},
	{"failed writes are repeated", failedWrites},
}

// Run checks the stores that open returns, one for each check, against the contract.
// It writes below them and removes what it wrote.
func Run[P Runner[P]](t P, open func(P) *backends.Store, opts Options) {
	if opts.MaxSize == 0 {
		opts.MaxSize = 64 << 20
	}
	if opts.Many == 0 {
		opts.Many = 1100
	}
	for _, c := range checks {
		if slices.Contains(opts.Without, c.name) {
			continue
		}
		t.Run(c.name, func(t P) {
			store := open(t).Sub(dirPrefix + strings.ToLower(rand.Text()))
			backend, prefix := store.Backend()
			defer sweep(t, store)
			c.run(&check{t, t.Context(), store, backend, prefix, store.Capabilities(), opts})
		})
	}
}

// unmade ends a check of a promise that the store does not make.
func (c *check) unmade(why string) {
	c.Helper()
	if c.opts.Refused == nil {
		c.Fatalf("%s, which Options.Without does not say", why)
	}
	c.Skipf("%s", why)
}

// sweep removes everything below store, and finds that it is gone.
func sweep(t TB, store *backends.Store) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
	defer cancel()
	var keys []string
	for obj, err := range store.List(ctx, "") {
		if err != nil {
			t.Errorf("cleaning up: %v", err)
			return
		}
		keys = append(keys, obj.Key)
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(16)
	for _, key := range keys {
		g.Go(func() error { return store.Delete(ctx, key) })
	}
	if err := g.Wait(); err != nil {
		t.Errorf("cleaning up: %v", err)
	}
}

// put writes contents made from seed and ends the check when it cannot.
func (c *check) put(key, seed string, size int64) backends.Object {
	c.Helper()
	obj, err := c.store.Put(c.ctx, key, ContentsOf(seed, size), size, backends.CreateOptions{})
	if err != nil {
		c.Fatalf("putting %q of %d bytes: %v", key, size, err)
	}
	return obj
}

// smallAndLarge are the sizes of two objects that stores may well write in different
// ways, or of one where MaxSize leaves none for the other.
func (c *check) smallAndLarge() []int64 {
	sizes := []int64{1000}
	if large := c.capabilities.PartSize + 1; large <= c.opts.MaxSize {
		sizes = append(sizes, large)
	}
	return sizes
}

// stat describes an object and ends the check when it cannot.
func (c *check) stat(key string) backends.Object {
	c.Helper()
	obj, err := c.store.Stat(c.ctx, key)
	if err != nil {
		c.Fatalf("stat of %q: %v", key, err)
	}
	return obj
}

// raw is obj as the backend knows it.
func (c *check) raw(obj backends.Object) backends.Object {
	obj.Key = c.prefix + obj.Key
	return obj
}

// wantKind complains about an error of another kind.
func (c *check) wantKind(what string, err error, kinds ...backends.Kind) {
	c.Helper()
	if err != nil {
		for _, k := range kinds {
			if backends.KindOf(err) == k {
				return
			}
		}
	}
	c.Errorf("%s: got %v (kind %s), want kind %v", what, err, backends.KindOf(err), kinds)
}

// wantMissing complains about a key that is there.
func (c *check) wantMissing(key string) {
	c.Helper()
	obj, err := c.store.Stat(c.ctx, key)
	if err == nil {
		c.Errorf("stat of %q finds %d bytes, want nothing there", key, obj.Size)
		return
	}
	c.wantKind("stat of "+key, err, backends.NotExist)
	if got := c.keys(key); len(got) > 0 {
		c.Errorf("list of %q has %q, want nothing there", key, got)
	}
}

// corrupt complains about bytes that are wrong, with an error of that kind.
func (c *check) corrupt(format string, args ...any) {
	c.Helper()
	c.Errorf("%v", &backends.Error{Op: "contract", Kind: backends.Corrupt, Err: fmt.Errorf(format, args...)})
}

// wantContents complains unless the object holds what was made from seed. Its sums
// must be right, wherever they are told.
func (c *check) wantContents(obj backends.Object, seed string, size int64) {
	c.Helper()
	if obj.Size != size {
		c.Errorf("%q has %d bytes, want %d", obj.Key, obj.Size, size)
		return
	}
	want := ContentsOf(seed, size)
	to := &comparing{want: want}
	told, err := c.store.ReadRange(c.ctx, obj, 0, size, to, nil)
	if err != nil {
		c.Errorf("reading %q: %v", obj.Key, err)
		return
	}
	if to.wrong > 0 || to.bytes != size {
		c.corrupt("%q: %d bytes of %d came, %d blocks were wrong, the first at %d", obj.Key, to.bytes, size, to.wrong, to.first)
	}
	for _, sum := range []backends.Checksum{told, obj.Sum} {
		if !sum.IsZero() && sum != want.Sum(sum.Algorithm) {
			c.corrupt("%q: the store tells %v, but its bytes have %v", obj.Key, sum, want.Sum(sum.Algorithm))
		}
	}
}

// comparing is a place to write to that keeps nothing.
type comparing struct {
	want         *Contents
	bytes, first int64
	wrong        int
}

func (w *comparing) WriteAt(p []byte, off int64) (int, error) {
	want := make([]byte, len(p))
	if n, _ := w.want.ReadAt(want, off); n != len(p) || string(want) != string(p) { // the end shows in n
		if w.wrong == 0 {
			w.first = off
		}
		w.wrong++
	}
	w.bytes += int64(len(p))
	return len(p), nil
}

// keys lists keys below prefix; an error ends the check.
func (c *check) keys(prefix string) []string {
	c.Helper()
	var keys []string
	for obj, err := range c.store.List(c.ctx, prefix) {
		if err != nil {
			c.Fatalf("listing %q: %v", prefix, err)
		}
		keys = append(keys, obj.Key)
	}
	return keys
}

// open opens a range of the backend itself, without the Store's help, and ends the
// check when it cannot.
func (c *check) open(obj backends.Object, off, n int64) io.ReadCloser {
	c.Helper()
	body, err := c.backend.OpenRange(c.ctx, c.raw(obj), off, n)
	if err != nil {
		c.Fatalf("opening %d bytes of %q at %d: %v", n, obj.Key, off, err)
	}
	return body
}

// readAll opens a range of the backend itself and reads it.
func (c *check) readAll(ctx context.Context, obj backends.Object, off, n int64) ([]byte, error) {
	body, err := c.backend.OpenRange(ctx, c.raw(obj), off, n)
	if err != nil {
		return nil, err
	}
	got, err := io.ReadAll(body)
	return got, errors.Join(err, body.Close())
}

// within runs f and complains when it takes longer than a cancelled call may.
func (c *check) within(what string, f func()) {
	c.Helper()
	start := time.Now()
	f()
	if took := time.Since(start); took > prompt {
		c.Errorf("%s took %v after the context ended, want at most %v", what, took.Round(time.Millisecond), prompt)
	}
}
