package checkpoint

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"maps"
	"path"
	"regexp"
	"slices"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/stager/checkpoint/group"
)

// newestStep finds the good step that was committed last, which after a rollback need not
// have the highest number. A provisional one counts when no final one was committed
// before, or when it has the same files. The zero Found is none.
func newestStep(ctx context.Context, store *backends.Store, log *slog.Logger) (group.Found, error) {
	steps, err := listSteps(ctx, store)
	if err != nil {
		return group.Found{}, err
	}
	slices.SortStableFunc(steps, func(a, b *listed) int { return b.modified.Compare(a.modified) })
	var provisional group.Found
	var shape map[string]int
	for _, l := range steps {
		if !l.committed {
			continue
		}
		found, c, err := readFound(ctx, store, l)
		switch {
		case err != nil && !bad(err):
			return group.Found{}, err
		case err != nil:
			log.Warn("a checkpoint is not good, the one before is tried", "step", l.dir, "error", err)
		case c.Group != nil && c.Group.Provisional:
			if provisional.Dir == "" {
				provisional, shape = found, shapeOf(c)
			}
		case provisional.Dir != "" && maps.Equal(shape, shapeOf(c)):
			return provisional, nil
		default:
			if provisional.Dir != "" {
				log.Warn("a newer checkpoint that no sign proves complete has other files than the one before, which is taken",
					"step", provisional.Step, "before", found.Step)
			}
			return found, nil
		}
	}
	return provisional, nil
}

// readFound reads a COMMIT, and looks up its data.
func readFound(ctx context.Context, store *backends.Store, l *listed) (group.Found, *Commit, error) {
	text, _, err := store.ReadAll(ctx, l.dir+"/"+commitKey, commitLimit)
	if err != nil {
		return group.Found{}, nil, err
	}
	c, err := DecodeCommit(text)
	if err != nil {
		return group.Found{}, nil, err
	}
	sizes, err := sizesOf(ctx, store, l.dir, &c)
	if err == nil {
		err = c.missing(l.dir, sizes)
	}
	return group.Found{Step: l.step, Dir: l.dir, Digest: commitDigest(text)}, &c, err
}

// commitDigest names the bytes of a COMMIT.json.
func commitDigest(text []byte) string {
	sum := sha256.Sum256(text)
	return "sha256:" + hex.EncodeToString(sum[:])
}

var digits = regexp.MustCompile(`[0-9]+`)

// shapeOf counts the files of a checkpoint by their paths without numbers.
func shapeOf(c *Commit) map[string]int {
	shape := make(map[string]int)
	for _, f := range c.Files {
		shape[path.Join(cmp.Or(digits.ReplaceAllString(f.Path, "#"), "."))]++
	}
	return shape
}
