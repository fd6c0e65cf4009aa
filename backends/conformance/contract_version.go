package conformance

import (
	"fmt"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/stager-dev/stager/backends"
)

// Checks of CreateOptions.IfVersion. A store without a guard is exempt.
const (
	// VersionKept is the check with one writer at a time.
	VersionKept = "a commit replaces only the version that it names"
	// OneReplaces is the check with concurrent writers.
	OneReplaces = "of eight writers that replace one version one wins"
)

// unguarded reports whether the store does not guarantee IfVersion, so there is nothing to check.
func (c *check) unguarded() bool {
	c.Helper()
	if c.capabilities.Guard != backends.GuardNone {
		return false
	}
	if c.opts.Refused != nil {
		c.Skipf("the store does not promise it")
	}
	return true
}

// ifVersion checks sequential writers.
func ifVersion(c *check) {
	if c.unguarded() {
		return
	}
	first := c.put("d/k", "first", 500)
	now := first
	i := 0
	c.writers(c.ctx, "d/k", "replaced", 1000, backends.CreateOptions{IfVersion: first.Version}, func(how string, w ender) {
		defer c.abort(w, how)
		if i++; i == 1 {
			obj, err := w.Commit(c.ctx)
			if err != nil {
				c.Fatalf("commit %s of the version that is there: %v", how, err)
			}
			now = obj
			return
		}
		_, err := w.Commit(c.ctx)
		c.wantKind("commit "+how+" of a version that is gone", err, backends.Changed)
	})
	c.wantContents(c.stat("d/k"), "replaced", 1000)
	for _, size := range c.smallAndLarge() {
		_, err := c.store.Put(c.ctx, "d/k", ContentsOf("stale", size), size, backends.CreateOptions{IfVersion: first.Version})
		c.wantKind(fmt.Sprintf("putting %d bytes over a version that is gone", size), err, backends.Changed)
		c.wantContents(c.stat("d/k"), "replaced", 1000)
		_, err = c.store.Put(c.ctx, "missing", ContentsOf("stale", size), size, backends.CreateOptions{IfVersion: first.Version})
		c.wantKind(fmt.Sprintf("putting %d bytes over a version of a key that is not there", size), err, backends.Changed)
		c.wantMissing("missing")
	}
	if now = c.stat("d/k"); now.Version == "" {
		c.Fatalf("stat of d/k: no version, and one is needed to replace it")
	}
	if _, err := c.store.Put(c.ctx, "d/k", ContentsOf("third", 700), 700, backends.CreateOptions{IfVersion: now.Version}); err != nil {
		c.Fatalf("putting over version %q as stat returned it: %v", now.Version, err)
	}
	c.wantContents(c.stat("d/k"), "third", 700)
}

// ifVersionAtOnce checks racing writers.
func ifVersionAtOnce(c *check) {
	if c.unguarded() {
		return
	}
	before := c.put("d/k", "before", 500)
	var won []int
	var mu sync.Mutex // guards won
	var g errgroup.Group
	for i := range 8 {
		g.Go(func() error {
			seed := fmt.Sprint("writer ", i)
			_, err := c.store.Put(c.ctx, "d/k", ContentsOf(seed, 1000), 1000, backends.CreateOptions{IfVersion: before.Version})
			if err != nil {
				c.wantKind(seed, err, backends.Changed)
				return nil
			}
			mu.Lock()
			defer mu.Unlock()
			won = append(won, i)
			return nil
		})
	}
	_ = g.Wait() // no function returns an error
	if len(won) != 1 {
		c.Fatalf("%v of eight writers replaced one version, want one", won)
	}
	c.wantContents(c.stat("d/k"), fmt.Sprint("writer ", won[0]), 1000)
}
