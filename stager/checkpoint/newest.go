package checkpoint

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"regexp"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/stager/checkpoint/group"
)

// choice is a step in restore order.
type choice struct {
	*listed
	commit *Commit
	err    error    // why its COMMIT is invalid
	passed []choice // newer provisional steps with other files
}

// preferred yields the committed steps in restore order, newest first. The steps must be sorted
// by number. A provisional step comes before the next older final one when both have equally many
// files of each pattern. Otherwise it comes after all final steps. With all, provisional steps
// count as final. An error is one of the store.
func preferred(ctx context.Context, store *backends.Store, steps []*listed, all bool) iter.Seq2[choice, error] {
	return func(yield func(choice, error) bool) {
		var later []choice
		for l, err := range newestFirst(ctx, store, steps) {
			c := choice{listed: l}
			switch {
			case err != nil:
				yield(c, err)
				return
			case l.commitErr != nil:
				c.err = l.commitErr
			case l.commit.Provisional && !all:
				c.commit = l.commit
				later = append(later, c)
				continue
			default:
				c.commit = l.commit
			}
			var others []choice
			for _, p := range later {
				if c.commit == nil || !maps.Equal(shapeOf(p.commit), shapeOf(c.commit)) {
					others = append(others, p)
					continue
				}
				p.passed = others
				if !yield(p, nil) {
					return
				}
			}
			if later, c.passed = others, others; !yield(c, nil) {
				return
			}
		}
		for _, p := range later {
			if !yield(p, nil) {
				return
			}
		}
	}
}

// newestStep finds the valid step that was committed last. After a rollback this need not be the
// one with the highest number. It returns the zero Found when there is none. Steps may be
// committed and removed during the search, and a stale listing does not prove that no step
// exists. It therefore lists again until a listing is confirmed.
func newestStep(ctx context.Context, store *backends.Store, log *slog.Logger) (group.Found, error) {
	for range maxListings {
		steps, err := listSteps(ctx, store)
		if err != nil {
			return group.Found{}, err
		}
		found, passed, err := newestOfListed(ctx, store, steps, log)
		if err != nil || found.Dir != "" && !passed {
			return found, err
		}
		if stands, err := stillListed(ctx, store, steps, "", true); err != nil || stands {
			return found, err
		}
	}
	return group.Found{}, &backends.Error{
		Op: "list", Store: store.Name(), Kind: backends.Changed,
		Err: fmt.Errorf("steps were added and removed during each of %d tries", maxListings),
	}
}

// newestOfListed is newestStep for one listing. passed reports that a newer step is invalid, or
// was removed after the listing.
func newestOfListed(ctx context.Context, store *backends.Store, steps []*listed, log *slog.Logger) (found group.Found, passed bool, err error) {
	for c, err := range preferred(ctx, store, steps, false) {
		if err != nil {
			return found, passed, err
		}
		if err = c.err; err == nil {
			found, err = readFound(ctx, store, c.listed)
		}
		switch {
		case err != nil && !bad(err):
			return group.Found{}, passed, err
		case err != nil:
			log.Warn("a checkpoint is damaged, trying the one before it", "step", c.dir, "error", err)
			found, passed = group.Found{}, true
			continue
		}
		for _, p := range c.passed {
			log.Warn("a newer checkpoint is not known to be complete and has other files than the one before it, using that one",
				"step", p.step, "before", found.Step)
		}
		return found, passed, nil
	}
	return group.Found{}, passed, nil
}

// readFound reads a COMMIT and checks that its data exists.
func readFound(ctx context.Context, store *backends.Store, l *listed) (group.Found, error) {
	text, _, err := store.ReadAll(ctx, l.dir+"/"+commitKey, commitLimit)
	if err != nil {
		return group.Found{}, err
	}
	c, err := DecodeCommit(text)
	if err != nil {
		return group.Found{}, err
	}
	sizes, err := sizesOf(ctx, store, l.dir, &c)
	if err == nil {
		err = c.missing(l.dir, sizes)
	}
	return group.Found{Step: l.step, Dir: l.dir, Digest: commitDigest(text)}, err
}

// commitDigest returns the digest of the bytes of a COMMIT.json.
func commitDigest(text []byte) string {
	sum := sha256.Sum256(text)
	return "sha256:" + hex.EncodeToString(sum[:])
}

var digits = regexp.MustCompile(`[0-9]+`)

// shapeOf counts the files of a checkpoint by path pattern.
func shapeOf(c *Commit) map[string]int {
	shape := make(map[string]int)
	for _, f := range c.Files {
		shape[patternOf(f.Path)]++
	}
	return shape
}

// patternOf returns a path with each number replaced by #.
func patternOf(p string) string { return digits.ReplaceAllString(p, "#") }
