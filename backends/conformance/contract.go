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

// Options describe a store to the contract. The zero value suits most stores.
type Options struct {
	// Unfit reports which keys the store cannot hold, such as "a?b" on a Windows share. Writing one
	// must fail with kind Invalid. nil: it holds all keys.
	Unfit func(key string) bool
	// Without lists checks to leave out: guarantees that the store is known not to provide, or that
	// need objects larger than MaxSize. A missing guarantee that is not listed here is a failure.
	Without []string
	// Refused, if not nil, is called for odd keys that the store rejects with kind Invalid, which
	// is then not a failure. It is for stores whose Unfit and Without are unknown: checks of
	// guarantees that they do not provide are skipped.
	Refused func(key string)
	// MaxSize is the size of the largest object to write; 0: 64 MiB.
	MaxSize int64
	// Many is the number of objects in the longest listing; 0: 1,100, which is more than a page of
	// most stores.
	Many int
}

// prompt is how long a cancelled call may take.
const prompt = 10 * time.Second

// check is the state of one check, which has a directory of its own.
type check struct {
	TB
	ctx          context.Context // the context of the test
	store        *backends.Store
	backend      backends.Backend // the backend of store
	prefix       string           // the prefix of its keys there
	capabilities backends.Capabilities
	opts         Options
}

// Checks that [Options.Without] may name.
const (
	AtOnce    = "readers see the old object or the new one"
	OneWinner = "of eight writers of a free key one wins"
	AnyOrder  = "parts may come in any order, and twice"
)

// checks are the contract, in the order that best explains a broken store.
var checks = []struct {
	name string
	run  func(*check)
}{
	{"the capabilities of the store are consistent", capabilitiesAreSane},
	{"a missing key is reported as missing", missingKey},
	{"objects of all sizes round-trip", sizes},
	{"a write returns what stat returns later", putReturnsStat},
	{"unusual names round-trip", oddKeys},
	{"a listing ascends and ends at its prefix", listOrder},
	{"a long listing is complete", listLong},
	{"a listing can be left in the middle", listLeft},
	{"a listing reports what is removed under way", listRemoved},
	{"a range returns the requested bytes", ranges},
	{"a range outside the object is an error", rangesUnfit},
	{"a stream can be read in bits and left early", oddReading},
	{"a version that was replaced is rejected", versionRemoved},
	{"a change between two ranges is detected", changeBetweenRanges},
	{"a change under way mixes no versions", changeUnderWay},
	{"a change does not wait for readers", changeWaits},
	{"nothing is seen before its commit", unseenBeforeCommit},
	{"an aborted write leaves nothing", abortLeavesNothing},
	{"a write of another size than announced fails", sizeNotKept},
	{"a commit replaces what was there", commitReplaces},
	{AtOnce, commitReplacesAtOnce},
	{"an existing key is kept, if requested", ifAbsent},
	{OneWinner, ifAbsentAtOnce},
	{VersionKept, ifVersion},
	{OneReplaces, ifVersionAtOnce},
	{"a replacement leaves nothing behind", swapLeavesNothing},
	{OneEachRound, swapRounds},
	{"claims are hidden and can be swept", claimsSwept},
	{AnyOrder, partsAnyOrder},
	{"a delete removes one key, and may be repeated", deleteTwice},
	{"a name stands for an object or a directory", subAndSelf},
	{"a canceled call does nothing", cancelledBefore},
	{"a read can be cancelled", cancelledReading},
	{"a write can be cancelled", cancelledWriting},
	{"many at once do not disturb each other", manyAtOnce},
	{"broken streams are resumed", brokenStreams},
	{"failed writes are repeated", failedWrites},
}

// Run checks the stores that open returns, one per check, against the contract. It writes below
// them and removes what it wrote.
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

// unmade ends the check of a guarantee that the store does not provide.
func (c *check) unmade(why string) {
	c.Helper()
	if c.opts.Refused == nil {
		c.Fatalf("%s, which Options.Without does not say", why)
	}
	c.Skipf("%s", why)
}

// sweep removes everything below store.
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

// put writes contents generated from seed. A failure ends the check.
func (c *check) put(key, seed string, size int64) backends.Object {
	c.Helper()
	obj, err := c.store.Put(c.ctx, key, ContentsOf(seed, size), size, backends.CreateOptions{})
	if err != nil {
		c.Fatalf("putting %q of %d bytes: %v", key, size, err)
	}
	return obj
}

// smallAndLarge returns the sizes of two objects that a store probably writes in different ways. It
// returns only one if MaxSize excludes the other.
func (c *check) smallAndLarge() []int64 {
	sizes := []int64{1000}
	if large := c.capabilities.PartSize + 1; large <= c.opts.MaxSize {
		sizes = append(sizes, large)
	}
	return sizes
}

// stat describes an object. A failure ends the check.
func (c *check) stat(key string) backends.Object {
	c.Helper()
	obj, err := c.store.Stat(c.ctx, key)
	if err != nil {
		c.Fatalf("stat of %q: %v", key, err)
	}
	return obj
}

// raw returns obj with its key in the backend.
func (c *check) raw(obj backends.Object) backends.Object {
	obj.Key = c.prefix + obj.Key
	return obj
}

// wantKind reports an error of another kind.
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

// wantMissing reports a key that exists.
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

// corrupt reports wrong bytes as an error of kind Corrupt.
func (c *check) corrupt(format string, args ...any) {
	c.Helper()
	c.Errorf("%v", &backends.Error{Op: "contract", Kind: backends.Corrupt, Err: fmt.Errorf(format, args...)})
}

// wantContents reports an object that does not hold the contents of seed. Reported checksums must
// be correct, too.
func (c *check) wantContents(obj backends.Object, seed string, size int64) {
	c.Helper()
	if obj.Size != size {
		c.Errorf("%q has %d bytes, want %d", obj.Key, obj.Size, size)
		return
	}
	want := ContentsOf(seed, size)
	to := &comparing{want: want}
	stated, err := c.store.ReadRange(c.ctx, obj, 0, size, to, nil)
	if err != nil {
		c.Errorf("reading %q: %v", obj.Key, err)
		return
	}
	if to.wrong > 0 || to.bytes != size {
		c.corrupt("%q: %d bytes of %d came, %d blocks were wrong, the first at %d", obj.Key, to.bytes, size, to.wrong, to.first)
	}
	c.wantSum(stated, obj.Key, seed, size)
	c.wantSum(obj.Sum, obj.Key, seed, size)
}

// wantSum reports a checksum that is not that of the contents of seed. No checksum is right, too.
func (c *check) wantSum(sum backends.Checksum, key, seed string, size int64) {
	c.Helper()
	if want := ContentsOf(seed, size); !sum.IsZero() && sum != want.Sum(sum.Algorithm) {
		c.corrupt("%q: the store returns %v, but its bytes have %v", key, sum, want.Sum(sum.Algorithm))
	}
}

// comparing is an io.WriterAt that compares bytes and retains nothing.
type comparing struct {
	want         *Contents
	bytes, first int64
	wrong        int
}

func (w *comparing) WriteAt(p []byte, off int64) (int, error) {
	want := make([]byte, len(p))
	if n, _ := w.want.ReadAt(want, off); n != len(p) || string(want) != string(p) { // n is short at the end
		if w.wrong == 0 {
			w.first = off
		}
		w.wrong++
	}
	w.bytes += int64(len(p))
	return len(p), nil
}

// keys lists the keys below prefix. An error ends the check.
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

// open opens a range of the backend directly, without the Store. A failure ends the check.
func (c *check) open(obj backends.Object, off, n int64) io.ReadCloser {
	c.Helper()
	body, err := c.backend.OpenRange(c.ctx, c.raw(obj), off, n)
	if err != nil {
		c.Fatalf("opening %d bytes of %q at %d: %v", n, obj.Key, off, err)
	}
	return body
}

// readAll reads a range of the backend directly.
func (c *check) readAll(ctx context.Context, obj backends.Object, off, n int64) ([]byte, error) {
	body, err := c.backend.OpenRange(ctx, c.raw(obj), off, n)
	if err != nil {
		return nil, err
	}
	got, err := io.ReadAll(body)
	return got, errors.Join(err, body.Close())
}

// within runs f and reports when it takes longer than a cancelled call may.
func (c *check) within(what string, f func()) {
	c.Helper()
	start := time.Now()
	f()
	if took := time.Since(start); took > prompt {
		c.Errorf("%s took %v after the context ended, want at most %v", what, took.Round(time.Millisecond), prompt)
	}
}
