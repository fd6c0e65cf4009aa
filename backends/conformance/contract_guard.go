package conformance

import (
	"fmt"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/stager-dev/stager/backends"
)

// OneEachRound is the check with racing writers of small and large objects, in several rounds.
const OneEachRound = "of several writers that replace one version one wins, each round"

// swapLeavesNothing checks small and large objects, the result of Commit, and that failed writes
// leave nothing behind.
func swapLeavesNothing(c *check) {
	if c.unguarded() {
		return
	}
	for _, size := range c.smallAndLarge() {
		key := fmt.Sprintf("d/k-%d", size)
		first := c.put(key, "first", 1000)
		second, err := c.store.Put(c.ctx, key, ContentsOf("second", size), size, backends.CreateOptions{IfVersion: first.Version})
		if err != nil {
			c.Errorf("putting %d bytes in place of the version that is there: %v", size, err)
			return
		}
		if is := c.stat(key); is.Version != second.Version || is.Size != size || second.Version == first.Version {
			c.Errorf("a conditional write returned version %q of %d bytes, stat says %q of %d; before it was %q",
				second.Version, second.Size, is.Version, is.Size, first.Version)
		}
		c.wantContents(c.stat(key), "second", size)
		_, err = c.store.Put(c.ctx, key, ContentsOf("third", size), size, backends.CreateOptions{IfVersion: first.Version})
		c.wantKind(fmt.Sprintf("putting %d bytes in place of an old version", size), err, backends.Changed)
		c.wantContents(c.stat(key), "second", size)
		_, err = c.store.Put(c.ctx, "d/none", ContentsOf("third", size), size, backends.CreateOptions{IfVersion: first.Version})
		c.wantKind(fmt.Sprintf("putting %d bytes in place of what is not there", size), err, backends.Changed)
		c.wantMissing("d/none")
		c.writers(c.ctx, key, "third", size, backends.CreateOptions{IfVersion: first.Version}, func(how string, w ender) {
			_, err := w.Commit(c.ctx)
			c.wantKind("commit "+how+" in place of an old version", err, backends.Changed)
			c.abort(w, how)
			c.wantContents(c.stat(key), "second", size)
		})
	}
	_, err := c.store.Put(c.ctx, "d/k-1000", ContentsOf("k", 10), 10, backends.CreateOptions{IfVersion: "v", IfAbsent: true})
	c.wantKind("a write with IfVersion and IfAbsent", err, backends.Invalid)
	c.wantNoOrphans()
}

// wantNoOrphans reports orphans of writes, which no listing shows.
func (c *check) wantNoOrphans() {
	c.Helper()
	var left []string
	err := c.store.Sweep(c.ctx, "", func(r backends.Orphan) bool {
		if !r.Directory {
			left = append(left, r.Key)
		}
		return false
	})
	if err != nil || len(left) > 0 {
		c.Errorf("the writes left %q (%v), want nothing", left, err)
	}
}

func swapRounds(c *check) {
	if c.unguarded() {
		return
	}
	before := c.put("d/k", "before", 500)
	for round, size := range append([]int64{1000, 1000}, c.smallAndLarge()...) {
		writers := 8
		if size > 1000 {
			writers = 3
		}
		var won []string
		var wrote backends.Object
		var mu sync.Mutex
		var g errgroup.Group
		for i := range writers {
			g.Go(func() error {
				seed := fmt.Sprintf("writer %d of round %d", i, round)
				obj, err := c.store.Put(c.ctx, "d/k", ContentsOf(seed, size), size, backends.CreateOptions{IfVersion: before.Version})
				if err == nil {
					mu.Lock()
					won, wrote = append(won, seed), obj
					mu.Unlock()
				} else {
					c.wantKind(seed, err, backends.Changed)
				}
				return nil
			})
		}
		_ = g.Wait() // no function returns an error
		if len(won) != 1 {
			c.Fatalf("%q of %d writers won in round %d, want one", won, writers, round)
		}
		if is := c.stat("d/k"); is.Version != wrote.Version {
			c.Errorf("after round %d the version is %q, but the winner got %q", round, is.Version, wrote.Version)
		}
		c.wantContents(c.stat("d/k"), won[0], size)
		before = wrote
	}
	c.wantNoOrphans()
}

// claimsSwept checks the claim files of stores that use them.
func claimsSwept(c *check) {
	claims, ok := c.backend.(backends.Claims)
	if !ok || c.capabilities.Guard != backends.GuardClaim {
		return // the store excludes writers in another way
	}
	c.put("d/k", "k", 10)
	name := backends.ClaimsIn(c.prefix+"d/") + "0123456789abcdef-0"
	token, err := claims.CreateClaim(c.ctx, name)
	if err != nil || token == "" {
		c.Fatalf("creating a claim: token %q, %v", token, err)
	}
	_, err = claims.CreateClaim(c.ctx, name)
	c.wantKind("creating the same claim again", err, backends.Exist)
	if got, err := claims.ReadClaim(c.ctx, name); err != nil || got != token {
		c.Errorf("the claim has token %q (%v), want %q", got, err, token)
	}
	if got := c.keys(""); !slices.Equal(got, []string{"d/k"}) {
		c.Errorf("beside a claim %q is listed, want d/k", got)
	}
	var found []string
	if err := c.store.Sweep(c.ctx, "d/", func(r backends.Orphan) bool {
		found = append(found, c.prefix+r.Key)
		return true
	}); err != nil || !slices.Equal(found, []string{name}) {
		c.Errorf("a sweep finds %q (%v), want %q", found, err, name)
	}
	_, err = claims.ReadClaim(c.ctx, name)
	c.wantKind("reading a claim that was swept", err, backends.NotExist)
	again, err := claims.CreateClaim(c.ctx, name)
	if err != nil || again == token {
		c.Errorf("creating the claim after it was swept: token %q (%v), want another than %q", again, err, token)
	}
	for range 2 {
		if err := claims.DeleteClaim(c.ctx, name); err != nil {
			c.Errorf("deleting a claim: %v", err)
		}
	}
	c.wantNoOrphans()
}
