package backends

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path"
	"strings"
	"time"
)

// ClaimTimeout is how long a claim must stay as it is before another writer takes the
// key over. Its writer gives up after a third of that, and its last request may take
// another third. Both measure on their own monotonic clocks, so no two clocks need
// to agree.
const ClaimTimeout = time.Minute

// claimPrefix is how the names of claim files begin. No List shows them, since they
// begin as those of temporary files do.
const claimPrefix = ".stager-tmp-claim-"

// IsClaim reports whether key is that of a claim file.
func IsClaim(key string) bool {
	return strings.HasPrefix(key[strings.LastIndexByte(key, '/')+1:], claimPrefix)
}

// ClaimsBelow returns the prefix of the claim files in the directory of prefix whose
// names begin with prefix; ok is false when there can be none.
func ClaimsBelow(prefix string) (claims string, ok bool) {
	dir := prefix[:strings.LastIndexByte(prefix, '/')+1]
	switch name := prefix[len(dir):]; {
	case strings.HasPrefix(claimPrefix, name):
		return ClaimsIn(dir), true
	case strings.HasPrefix(name, claimPrefix):
		return prefix, true
	}
	return "", false
}

// ClaimsIn is the prefix of the claim files for keys in the directory dir, which is ""
// or ends in "/".
func ClaimsIn(dir string) string { return dir + claimPrefix }

// Claims are the operations of a store on its claim files. A token identifies one file
// that was created: no later file of the same name has it.
type Claims interface {
	// CreateClaim creates a claim file and returns its token. Of several callers with
	// the same name one succeeds; the others get an error of kind Exist.
	CreateClaim(ctx context.Context, name string) (token string, err error)
	// ReadClaim returns the token of a claim file; kind NotExist when there is none.
	ReadClaim(ctx context.Context, name string) (token string, err error)
	// DeleteClaim deletes a claim file; one that is not there is no error.
	DeleteClaim(ctx context.Context, name string) error
}

// A Claim replaces one object by compare-and-swap in a store that offers no such
// operation. Writers that expect the same version exclude each other by claim files
// beside the object; writers that expect another version fail in the comparison.
//
// The claim files for one version are numbered. A writer creates file 0. One that
// finds the highest file unchanged for ClaimTimeout takes its writer for dead and
// creates the next. Files are only ever created, so two writers that take over at the
// same time cannot remove each other's claims. They are deleted when the version is no
// longer current, since then no writer can succeed with them any more; and a writer
// that fails before it replaced anything deletes its own.
//
// A Claim belongs to one write and is used by one goroutine.
type Claim struct {
	store Claims
	key   string
	want  Version

	checked bool // there may be a claim already
	open    bool // a request to replace the object may still be carried out
	own     seenClaim
	other   seenClaim // the highest one, as it was seen last
	// strange is why a claim that this writer created is not recognised; nil: it is.
	strange error
}

// seenClaim is a claim file and since when it has been known.
type seenClaim struct {
	n     int
	token string // "" for none
	since time.Time
}

func (s seenClaim) age() time.Duration { return time.Since(s.since) }

// NewClaim returns a Claim for replacing key in the version want.
func NewClaim(store Claims, key string, want Version) *Claim {
	return &Claim{store: store, key: key, want: want}
}

// Replace calls replace while it holds the claim and current returns the expected
// version. It fails with kind Changed when current returns another version or an error
// of kind NotExist. After an error of kind Throttled or Unavailable it may be called
// again. It fails with kind Unsupported when the store does not keep claim files as they
// were created. When an error of replace leaves open whether the object was replaced, the
// claim stays until Release or ClaimTimeout.
func (c *Claim) Replace(ctx context.Context, current func(context.Context) (Version, error), replace func(context.Context) error) error {
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, 5*time.Second) {
		held, err := c.acquire(ctx)
		if err != nil {
			return err
		}
		if err := c.compare(ctx, current); err != nil {
			c.fail(ctx, err)
			return err
		}
		if c.strange != nil { // nobody has replaced the object, so nobody had a right to the name
			return c.strange
		}
		if held {
			if held, err = c.confirm(ctx); err != nil {
				c.fail(ctx, err)
				return err
			}
		}
		if held {
			return c.publish(ctx, replace)
		}
		Moved(ctx) // waiting is no stall
		select {
		case <-ctx.Done():
			return &Error{Op: "commit", Key: c.key, Kind: Canceled, Err: context.Cause(ctx)}
		case <-time.After(pause):
		}
	}
}

// acquire creates the next claim file if the highest one is not in use.
func (c *Claim) acquire(ctx context.Context) (held bool, err error) {
	next := 0
	if c.checked {
		top, err := c.top(ctx)
		switch {
		case err != nil:
			return false, err
		case top.token == "":
		case top.token == c.own.token && c.own.age() < ClaimTimeout/3:
			return true, nil // left by a call that failed
		case top.token != c.other.token || top.n != c.other.n:
			c.other = top
			return false, nil
		case c.other.age() < ClaimTimeout:
			return false, nil
		default:
			next = top.n + 1
		}
	}
	began := time.Now()
	token, err := c.store.CreateClaim(ctx, c.name(next))
	if KindOf(err) == Exist && err != nil {
		c.checked = true
		return false, nil
	}
	if err != nil {
		c.checked = true
		return false, err
	}
	c.own = seenClaim{next, token, began}
	return true, nil
}

// top returns the highest claim file; its token is "" when there is none.
func (c *Claim) top(ctx context.Context) (top seenClaim, err error) {
	for n := 0; ; n++ {
		token, err := c.store.ReadClaim(ctx, c.name(n))
		if err != nil && KindOf(err) == NotExist {
			return top, nil
		}
		if err != nil {
			return top, err
		}
		top = seenClaim{n, token, time.Now()}
	}
}

// compare fails with kind Changed unless the object has the expected version.
func (c *Claim) compare(ctx context.Context, current func(context.Context) (Version, error)) error {
	is, err := current(ctx)
	if err != nil && KindOf(err) != NotExist {
		return err
	}
	return CompareVersion(c.key, c.want, is)
}

// CompareVersion returns an error of kind Changed for Commit when an object has
// another version than the one that it should replace; is is "" when there is none.
func CompareVersion(key string, want, is Version) error {
	switch is {
	case want:
		return nil
	case "":
		return Errorf(Changed, "commit", key, "the object that this write should replace was removed")
	}
	return Errorf(Changed, "commit", key, "the object that this write should replace has changed, from version %s to %s", want, is)
}

// publish replaces the object while the claim lasts.
func (c *Claim) publish(ctx context.Context, replace func(context.Context) error) error {
	within, cancel := context.WithDeadline(ctx, c.own.since.Add(2*ClaimTimeout/3))
	defer cancel()
	err := replace(within)
	switch {
	case err == nil:
		c.clear(ctx)
		return nil
	case ctx.Err() == nil && within.Err() != nil:
		err = Errorf(Unavailable, "commit", c.key, "the store took longer than %v to replace the object", 2*ClaimTimeout/3)
	}
	if kind := KindOf(err); kind == Canceled || kind.Retryable() {
		c.checked, c.open = true, true
		return err
	}
	c.fail(ctx, err)
	return err
}

// confirm reports whether this writer holds the highest claim file, and returns an
// error when it has held it for too long. A process that was stopped for a while finds
// out here. A claim with another above it stays: it fills the gap that a sweep left.
func (c *Claim) confirm(ctx context.Context) (held bool, err error) {
	token, err := c.store.ReadClaim(ctx, c.name(c.own.n))
	if err != nil && KindOf(err) != NotExist {
		return false, err
	}
	_, above := c.store.ReadClaim(ctx, c.name(c.own.n+1))
	if above != nil && KindOf(above) != NotExist {
		return false, above
	}
	if token != "" && token != c.own.token {
		c.strange = Errorf(Unsupported, "commit", c.name(c.own.n),
			"this writer created the claim file as %q, and the store says that it is %q: something changes files after they are written, "+
				"so writers cannot exclude each other here; remove the file, and write with one process at a time", c.own.token, token)
	}
	if token != c.own.token || above == nil {
		c.own, c.checked = seenClaim{}, true
		return false, nil
	}
	if age := c.own.age(); age > ClaimTimeout/3 {
		return false, Errorf(Unavailable, "commit", c.key,
			"the store took %v to create a claim and to describe the object, and after %v another writer may take over",
			age.Round(time.Second), ClaimTimeout/3)
	}
	return true, nil
}

// fail deletes claim files after a Replace that replaced nothing: its own, and all of
// them when the version is not current.
func (c *Claim) fail(ctx context.Context, err error) {
	switch {
	case c.own.token == "":
	case KindOf(err) == Changed:
		c.clear(ctx)
	case !c.open:
		c.Release(ctx)
	}
}

// Release deletes the claim file that a failed Replace may have left. The caller knows
// that the object will not be replaced any more.
func (c *Claim) Release(ctx context.Context) {
	if c == nil || c.own.token == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	own := c.own
	c.own, c.checked, c.open = seenClaim{}, true, false
	token, err := c.store.ReadClaim(ctx, c.name(own.n))
	if err != nil || token != own.token || own.age() > ClaimTimeout/2 {
		return // it is another writer's, or about to be
	}
	_ = c.store.DeleteClaim(ctx, c.name(own.n)) // one that stays times out
}

// clear deletes all claim files for a version that is not current.
func (c *Claim) clear(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	for n := c.own.n; n >= 0; n-- {
		_ = c.store.DeleteClaim(ctx, c.name(n)) // a sweep finds one that stays
	}
	c.own = seenClaim{}
}

// name returns the name of the nth claim file.
func (c *Claim) name(n int) string {
	sum := sha256.Sum256([]byte(path.Base(c.key) + "\x00" + string(c.want)))
	return ClaimsIn(c.key[:strings.LastIndexByte(c.key, '/')+1]) + hex.EncodeToString(sum[:8]) + fmt.Sprintf("-%d", n)
}
