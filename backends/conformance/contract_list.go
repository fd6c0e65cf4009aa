package conformance

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/stager-dev/stager/backends"
)

func capabilitiesAreSane(c *check) {
	if c.capabilities.Parallelism < 1 {
		c.Errorf("Parallelism is %d, want at least 1", c.capabilities.Parallelism)
	}
	if c.capabilities.PartSize < 1 {
		c.Errorf("PartSize is %d, want at least 1", c.capabilities.PartSize)
	}
	if a := c.capabilities.Checksum; a != "" && a.Size() == 0 {
		c.Errorf("Checksum is %q, which is not known", a)
	}
	if again := c.backend.Capabilities(); again != c.capabilities {
		c.Errorf("facts change: %+v, then %+v", c.capabilities, again)
	}
}

func missingKey(c *check) {
	c.put("there/x", "x", 1)
	for _, key := range []string{"missing", "missing/x", "there", "there/", "there/x/", "there/xy", "there/y"} {
		if _, err := c.store.Stat(c.ctx, key); !errors.Is(err, fs.ErrNotExist) {
			c.Errorf("stat of %q: got %v, want fs.ErrNotExist", key, err)
		}
	}
	_, err := c.readAll(c.ctx, backends.Object{Key: "missing", Size: 1}, 0, 1)
	c.wantKind("reading a missing key", err, backends.NotExist)
	if got := c.keys("missing/"); len(got) > 0 {
		c.Errorf("list of a missing directory = %q, want nothing", got)
	}
}

// keysToSort are in key order, unlike a walk of directories in the order of their names.
var keysToSort = []string{
	"a-", "a-b", "a-c/d", "a.b", "a/-", "a/b-c", "a/b/c", "a/b/d-", "a/b/d/e", "a/b0", "a0", "b", "ba/x", "z/y/x", "ü",
}

func listOrder(c *check) {
	keys := keysToSort
	for i := range keys {
		c.put(keys[(i*7+3)%len(keys)], "list", int64(i))
	}
	if len(c.keys("")) != len(keys) {
		c.Fatalf("list = %q, want %q", c.keys(""), keys)
	}
	for _, prefix := range []string{"", "a", "a-", "a-b", "a/", "a/b", "a/b/", "a/b/d", "a/b/d/e", "a/b/d/e/", "b", "z", "z/y/x", "z/y/xx", "zz", "\u00fc"} {
		var want []string
		for _, k := range keys {
			if strings.HasPrefix(k, prefix) {
				want = append(want, k)
			}
		}
		if got := c.keys(prefix); !slices.Equal(got, want) {
			c.Errorf("list of %q = %q, want %q", prefix, got, want)
		}
		if got, want := c.level(prefix), levelOf(keys, prefix); !slices.Equal(got, want) {
			c.Errorf("one level of %q = %q, want %q", prefix, got, want)
		}
		listAfter(c, keys, prefix)
	}
	for obj, err := range c.store.List(c.ctx, "") {
		if err != nil {
			c.Fatalf("list: %v", err)
		}
		if stat := c.stat(obj.Key); stat.Size != obj.Size || stat.Version != obj.Version || obj.Version == "" {
			c.Errorf("%q is listed with %d bytes and version %q; stat says %d and %q", obj.Key, obj.Size, obj.Version, stat.Size, stat.Version)
		}
	}
}

// listAfter lists below prefix behind each key, if the backend can begin there.
func listAfter(c *check, keys []string, prefix string) {
	b, root := c.store.Backend()
	pages, ok := b.(backends.PageLister)
	if !ok {
		return
	}
	dirs := levelOf(keys, prefix)
	for _, after := range append([]string{"0", "a", "a/", "a/b/", "a/b~", "a~", "zz", "\u00fd"}, keys...) {
		got, want := []string(nil), slices.Clone(keys)
		want = slices.DeleteFunc(want, func(k string) bool { return k <= after || !strings.HasPrefix(k, prefix) })
		for obj, err := range pages.ListAfter(c.ctx, root+prefix, root+after) {
			if err != nil {
				c.Fatalf("list of %q behind %q: %v", prefix, after, err)
			}
			got = append(got, strings.TrimPrefix(obj.Key, root))
		}
		if !slices.Equal(got, want) {
			c.Errorf("list of %q behind %q = %q, want %q", prefix, after, got, want)
		}
		names, more, err := pages.Directories(c.ctx, root+prefix, root+after)
		if err != nil || more || !slices.IsSorted(names) {
			c.Errorf("directories of %q behind %q = %q, %v, %v; want them in order, and no more", prefix, after, names, more, err)
		}
		for _, name := range names {
			if name = strings.TrimPrefix(name, root); name <= after || !strings.HasSuffix(name, "/") || !slices.Contains(dirs, name) {
				c.Errorf("directories of %q behind %q have %q, want some of %q", prefix, after, name, dirs)
			}
		}
	}
}

// dirPrefix is the name prefix of the directories of checks.
const dirPrefix = "contract-"

// listRemoved removes keys ahead of a running listing. Each must still be listed or be reported as
// skipped, so that a prefetch learns that objects vanished after it started.
func listRemoved(c *check) {
	for _, key := range []string{"a", "d/e/x", "f"} {
		c.put(key, key, 1)
	}
	var reported []string
	ctx := backends.WithSkipped(c.ctx, func(s backends.Skipped) {
		if s.Vanished {
			reported = append(reported, s.Key)
		}
	})
	var listed []string
	for obj, err := range c.store.List(ctx, "") {
		if err != nil {
			c.Fatalf("list: %v", err)
		}
		listed = append(listed, obj.Key)
		if obj.Key != "a" {
			continue
		}
		for _, key := range []string{"d/e/x", "f"} {
			if err := c.store.Delete(c.ctx, key); err != nil {
				c.Fatalf("delete of %q: %v", key, err)
			}
		}
	}
	for _, key := range []string{"d/e/x", "f"} {
		stated := slices.ContainsFunc(reported, func(r string) bool { return r == key || strings.HasSuffix(r, "/") && strings.HasPrefix(key, r) })
		if !stated && !slices.Contains(listed, key) {
			c.Errorf("%q was removed under way: listed %q, reported %q; want it in one of them", key, listed, reported)
		}
	}
}

func listLong(c *check) {
	want := make([]string, c.opts.Many)
	g := errgroup.Group{}
	g.SetLimit(2 * c.store.Connections())
	for i := range want {
		// Some are in directories, and page boundaries fall anywhere.
		want[i] = fmt.Sprintf("n%05d", i)
		if i%3 == 0 {
			want[i] = fmt.Sprintf("n%05d/x", i)
		}
		g.Go(func() error {
			_, err := c.store.PutBytes(c.ctx, want[i], []byte{byte(i)}, backends.CreateOptions{})
			return err
		})
	}
	if err := g.Wait(); err != nil {
		c.Fatalf("putting %d objects: %v", len(want), err)
	}
	got := c.keys("n")
	if !slices.Equal(got, want) {
		c.Errorf("the list has %d keys of %d, and ascending they are: %v", len(got), len(want), slices.IsSorted(got))
	}
	// With a page of 1,000 keys there are directories on both sides of its end.
	level := levelOf(want, "n")
	if got := c.level("n"); !slices.Equal(got, level) {
		c.Errorf("one level has %d keys of %d, and ascending they are: %v", len(got), len(level), slices.IsSorted(got))
	}
}

func listLeft(c *check) {
	for i := range 20 {
		c.put(fmt.Sprintf("k%02d/x", i), "left", 1)
	}
	for i := range 4 * c.store.Connections() {
		n := 0
		for _, err := range c.store.List(c.ctx, "k") {
			if err != nil {
				c.Fatalf("list %d: %v", i, err)
			}
			if n++; n == 1+i%19 {
				break
			}
		}
	}
	// A cancelled listing either returns an error or was already complete.
	ctx, cancel := context.WithCancel(c.ctx)
	defer cancel()
	n, last := 0, error(nil)
	c.within("list", func() {
		for _, err := range c.backend.List(ctx, c.prefix) {
			if last != nil {
				c.Errorf("after the error %v the list continues", last)
			}
			if last = err; err == nil {
				n++
			}
			cancel()
		}
	})
	if last != nil {
		c.wantKind("a list that is cancelled", last, backends.Canceled)
	} else if n != 20 {
		c.Errorf("a cancelled list ends after %d of 20 objects as though it were whole", n)
	}
}

// longest is a name nearly as long as common file systems allow.
var longest = strings.Repeat("0123456789", 24)

var odd = []string{
	" ", " begins and ends with spaces ", "a b/c d", "plus+plus", "100%", "%2F", "%41", "hash#hash", "what?", "a=b&c=d",
	`"quoted"`, "it's", `back\slash`, "semi;colon", "a:b", "*", "[x]", "{y}", "<z>", "|", "~", "^`", "$HOME", "!@(),", "tab\there",
	"ünïcödé", "日本語/データ.tar", "🚀", "e\u0301 and \u00e9", "-dash", ".hidden", "...", "a..b", "CON", "UPPER", "upper",
	longest, strings.Repeat("データ", 26), strings.Repeat("deep/", 40) + "x",
}

func oddKeys(c *check) {
	var want []string
	for _, key := range odd {
		if c.opts.Unfit != nil && c.opts.Unfit(key) {
			_, err := c.store.PutBytes(c.ctx, key, []byte(key), backends.CreateOptions{})
			c.wantKind(fmt.Sprintf("putting %q", key), err, backends.Invalid)
			continue
		}
		if _, err := c.store.PutBytes(c.ctx, key, []byte(key), backends.CreateOptions{}); err != nil {
			if c.opts.Refused != nil && backends.KindOf(err) == backends.Invalid {
				c.opts.Refused(key)
				continue
			}
			c.Errorf("putting %q: %v", key, err)
			continue
		}
		if i := slices.IndexFunc(want, func(other string) bool { return strings.EqualFold(other, key) }); i >= 0 && !slices.Contains(c.keys(key), key) {
			c.Errorf("%q and %q are one name here: of two files whose names differ in case alone, one is lost", want[i], key)
			continue
		}
		want = append(want, key)
		got, obj, err := c.store.ReadAll(c.ctx, key, 1<<20)
		if err != nil || string(got) != key || obj.Key != key {
			c.Errorf("%q is read as %q with key %q, %v", key, got, obj.Key, err)
		}
		if !slices.Contains(c.keys(key), key) {
			c.Errorf("the list with the whole key %q as prefix has it not", key)
		}
	}
	slices.Sort(want)
	if got := c.keys(""); !slices.Equal(got, want) {
		c.Errorf("list = %q, want %q", got, want)
	}
	for _, key := range want {
		if err := c.store.Delete(c.ctx, key); err != nil {
			c.Errorf("deleting %q: %v", key, err)
		}
	}
	if got := c.keys(""); len(got) > 0 {
		c.Errorf("%q are there after they were deleted", got)
	}
}

func subAndSelf(c *check) {
	c.put("models/m.bin", "self", 9)
	c.put("models/m.bin.sha256", "other", 1)
	sub := c.store.Sub("models")
	if obj, err := sub.Stat(c.ctx, "m.bin"); err != nil || obj.Size != 9 || obj.Key != "m.bin" {
		c.Errorf("stat in sub: got %+v, %v; want m.bin with 9 bytes", obj, err)
	}
	parent, obj, err := c.store.Sub("models/m.bin").Self(c.ctx)
	if err != nil || obj.Key != "m.bin" || obj.Size != 9 {
		c.Fatalf("self: got %+v, %v; want m.bin with 9 bytes", obj, err)
	}
	if parent.Name() != sub.Name() {
		c.Errorf("self is in %q, want %q", parent.Name(), sub.Name())
	}
	(&check{c.TB, c.ctx, parent, c.backend, c.prefix + "models/", c.capabilities, c.opts}).wantContents(obj, "self", 9)
	_, _, err = sub.Self(c.ctx)
	c.wantKind("self of a directory", err, backends.NotExist)
	if _, err := sub.PutBytes(c.ctx, "deep/x", nil, backends.CreateOptions{}); err != nil {
		c.Errorf("putting in sub: %v", err)
	}
	if got, want := c.keys(""), []string{"models/deep/x", "models/m.bin", "models/m.bin.sha256"}; !slices.Equal(got, want) {
		c.Errorf("list = %q, want %q", got, want)
	}
}
