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

// ClaimTimeout is how long a claim must stay unchanged before another writer takes over the key.
// The owner gives up after a third of it, and its last request may take another third. Both sides
// use their own monotonic clocks, so clocks need not agree.
const ClaimTimeout = time.Minute

// claimPrefix is the name prefix of claim files. List hides them, because the prefix is also that
// of temporary files.
const claimPrefix = ".stager-tmp-claim-"

// IsClaim reports whether key names a claim file.
func IsClaim(key string) bool {
	return strings.HasPrefix(key[strings.LastIndexByte(key, '/')+1:], claimPrefix)
}

// ClaimsBelow returns the key prefix of the claim files that match prefix, in the directory of
// prefix. ok is false if there can be none.
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

// ClaimsIn returns the key prefix of the claim files in the directory dir, which is "" or ends in
// "/".
func ClaimsIn(dir string) string { return dir + claimPrefix }

// Claims are the claim file operations of a store. A token identifies one created file: no later
// file of the same name has the same token.
type Claims interface {
	// CreateClaim creates a claim file and returns its token. Of several concurrent callers with
	// the same name one succeeds; the others get an error of kind Exist.
	CreateClaim(ctx context.Context, name string) (token string, err error)
	// ReadClaim returns the token of a claim file. It fails with kind NotExist when there is none.
	ReadClaim(ctx context.Context, name string) (token string, err error)
	// DeleteClaim deletes a claim file. Deleting a missing file is not an error.
	DeleteClaim(ctx context.Context, name string) error
}

// A Claim replaces one object by compare-and-swap in a store that has no such operation. Writers
// that expect the same version exclude each other with claim files beside the object. Writers that
// expect another version fail in the comparison.
//
// The claim files for one version are numbered. A writer creates file 0. A writer that finds the
// highest file unchanged for ClaimTimeout presumes its owner dead and creates the next number.
// Files are only ever created, so two writers that take over at the same time cannot remove each
// other's claims. The files are deleted once the version is no longer current, because no writer
// can succeed with them any more. A writer that fails before the replacement deletes its own file.
//
// A Claim belongs to one write and is not safe for concurrent use.
type Claim struct {
	store Claims
	key   string
	want  Version

	checked bool // a claim may exist already
	open    bool // a request to replace the object may still take effect
	own     seenClaim
	other   seenClaim // the highest one seen last
	// strange is why a claim created by this writer is not recognised; nil if it is.
	strange error
}

// seenClaim is a claim file and the time since when it has been known.
type seenClaim struct {
	n     int
	token string // "" for none
	since time.Time
}

func (s seenClaim) age() time.Duration { return time.Since(s.since) }

// NewClaim returns a Claim to replace key in version want.
func NewClaim(store Claims, key string, want Version) *Claim {
	return &Claim{store: store, key: key, want: want}
}

// Replace calls replace while it holds the claim and current returns the expected version. It fails
// with kind Changed if current returns another version or an error of kind NotExist. It fails with
// kind Unsupported if the store alters claim files. After an error of kind Throttled or Unavailable
// it may be called again. If an error leaves the outcome of replace unknown, the claim stays until
// Release or ClaimTimeout.
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
		if c.strange != nil { // the object was not replaced, so no other writer may own this name
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
		Moved(ctx) // waiting is not a stall
		select {
		case <-ctx.Done():
			return &Error{Op: "commit", Key: c.key, Kind: Canceled, Err: context.Cause(ctx)}
		case <-time.After(pause):
		}
	}
}

// acquire creates the next claim file unless the highest one is in use.
func (c *Claim) acquire(ctx context.Context) (held bool, err error) {
	next := 0
	if c.checked {
		top, err := c.top(ctx)
		switch {
		case err != nil:
			return false, err
		case top.token == "":
		case top.token == c.own.token && c.own.age() < ClaimTimeout/3:
			return true, nil // left by an earlier failed call
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

// top returns the highest claim file; its token is "" if there is none.
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

// CompareVersion returns an error of kind Changed for Commit if the version is of an object differs
// from want. If is is empty, there is no object.
func CompareVersion(key string, want, is Version) error {
	switch is {
	case want:
		return nil
	case "":
		return Errorf(Changed, "commit", key, "the object that this write should replace was removed")
	}
	return Errorf(Changed, "commit", key, "the object that this write should replace has changed, from version %s to %s", want, is)
}

// publish replaces the object while the claim is valid.
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

// confirm reports whether this writer still holds the highest claim file. It returns an error if
// the claim is too old, which is how a process that was suspended notices. A claim below another
// one is kept: it fills the gap that a sweep left.
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
			"this writer created the claim file as %q, but the store reports %q: something changes files after they are written, "+
				"so writers cannot exclude each other here; remove the file, and write with one process at a time", c.own.token, token)
	}
	if token != c.own.token || above == nil {
		c.own, c.checked = seenClaim{}, true
		return false, nil
	}
	if age := c.own.age(); age > ClaimTimeout/3 {
		return false, Errorf(Unavailable, "commit", c.key,
			"the store took %v to create a claim and describe the object, but after %v another writer may take over",
			age.Round(time.Second), ClaimTimeout/3)
	}
	return true, nil
}

// fail cleans up after a Replace that replaced nothing. It deletes this writer's claim file, or all
// claim files if the version is no longer current.
func (c *Claim) fail(ctx context.Context, err error) {
	switch {
	case c.own.token == "":
	case KindOf(err) == Changed:
		c.clear(ctx)
	case !c.open:
		c.Release(ctx)
	}
}

// Release deletes the claim file that a failed Replace may have left. Call it when the object will
// not be replaced any more.
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
		return // it belongs to another writer, or may soon
	}
	_ = c.store.DeleteClaim(ctx, c.name(own.n)) // a remaining file times out
}

// clear deletes all claim files of a version that is not current.
func (c *Claim) clear(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	for n := c.own.n; n >= 0; n-- {
		_ = c.store.DeleteClaim(ctx, c.name(n)) // a sweep finds a remaining file
	}
	c.own = seenClaim{}
}

// name returns the name of the nth claim file.
func (c *Claim) name(n int) string {
	sum := sha256.Sum256([]byte(path.Base(c.key) + "\x00" + string(c.want)))
	return ClaimsIn(c.key[:strings.LastIndexByte(c.key, '/')+1]) + hex.EncodeToString(sum[:8]) + fmt.Sprintf("-%d", n)
}
