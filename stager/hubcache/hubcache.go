// Package hubcache fetches a repository of the Hugging Face Hub into the cache of huggingface_hub,
// so that HF_HUB_OFFLINE=1 and from_pretrained need no network:
//
//	models--org--name/blobs/HASH           the files, each once, by the hash that the Hub has as ETag
//	models--org--name/snapshots/SHA/path   relative links to the blobs
//	models--org--name/refs/main            the SHA
//
// Readers may use the cache meanwhile. A new snapshot appears by one rename with all its links, after
// its blobs are complete, and then the ref is replaced. Blobs, links and snapshots of huggingface_hub
// itself stay as they are if they are right.
package hubcache

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/stager/download"
	"github.com/stager-dev/stager/stager/plan"
	"github.com/stager-dev/stager/window/disk"
)

// Prefetch fetches what cfg selects of a repository of the Hub into the cache cfg.Dir. Its errors are
// those of [download.Prefetch], and kind Exist if a snapshot has something else in the place of a
// link, unless cfg.Overwrite is set. cfg.Unpack and cfg.Finish must not be set.
func Prefetch(ctx context.Context, cfg download.Config) (download.Summary, error) {
	c, err := list(ctx, cfg)
	if err != nil {
		return download.Summary{Source: cfg.Store.Name(), Destination: cfg.Dir}, err
	}
	source, dir := cfg.Store.Name(), cfg.Dir
	c.overwrite, c.durable = cfg.Overwrite, disk.Durable(cfg.Sync)
	// The name has no revision, so that the record of a run is valid for all of them.
	cfg.Store = cfg.Store.Renamed(c.name(), c.blobs)
	cfg.Dir, cfg.Object, cfg.Finish = filepath.Join(cfg.Dir, c.directory()), nil, c.publish
	cfg.Listing = plan.Listing{}
	summary, err := download.Prefetch(ctx, cfg)
	summary.Source, summary.Destination = source, dir
	return summary, err
}

// cache is a commit in a cache.
type cache struct {
	backends.HubCommit
	blobs     map[string]backends.Object // by path in the directory
	links     map[string]string          // blob by path in the repository
	overwrite bool
	durable   disk.Durable
}

// hashForm matches the hashes that are names of blobs: SHA-1 of Git, and SHA-256 of large files.
var hashForm = regexp.MustCompile(`^(?:[0-9a-f]{40}|[0-9a-f]{64})$`)

// list lists what cfg selects.
func list(ctx context.Context, cfg download.Config) (*cache, error) {
	commit, prefix, ok := cfg.Store.HubCommit()
	if !ok {
		return nil, backends.Errorf(backends.Invalid, "prefetch", "", "only hf:// URLs have the layout of the Hub's cache")
	}
	c := &cache{HubCommit: commit, blobs: make(map[string]backends.Object), links: make(map[string]string)}
	if err := plan.CheckPath(c.Revision); err != nil {
		return nil, backends.Errorf(backends.Invalid, "prefetch", "", "the revision cannot be a file name: %w", err)
	}
	objects := cfg.Listing.Objects(ctx, cfg.Store)
	if cfg.Object != nil {
		objects = plan.Listing{MaxBytes: cfg.Listing.MaxBytes}.Choose(cfg.Store.Name(), func(yield func(backends.Object, error) bool) { yield(*cfg.Object, nil) })
	}
	for obj, err := range objects {
		if err != nil {
			return nil, err
		}
		if !hashForm.MatchString(string(obj.Version)) {
			return nil, backends.Errorf(backends.Unsupported, "prefetch", obj.Key, "the Hub reports no hash of the file, so it has no name in the cache")
		}
		blob := "blobs/" + string(obj.Version)
		if other, known := c.blobs[blob]; known && other.Size != obj.Size {
			return nil, backends.Errorf(backends.Corrupt, "prefetch", obj.Key, "the Hub reports the hash of %q, which has another size", other.Key)
		} else if !known {
			c.blobs[blob] = obj
		}
		c.links[prefix+obj.Key] = blob
	}
	return c, nil
}

// name is a URL of the repository without a revision.
func (c *cache) name() string {
	if c.Kind == "models" {
		return "hf://" + c.Repo
	}
	return "hf://" + c.Kind + "/" + c.Repo
}

// directory returns the name of the repository's directory.
func (c *cache) directory() string { return c.Kind + "--" + strings.ReplaceAll(c.Repo, "/", "--") }

// building is the directory of a snapshot that is not complete.
const building = disk.Private + "/snapshot"

// publish makes the snapshot, whose blobs are complete, and then the ref.
func (c *cache) publish(dir *disk.Dir) error {
	root := dir.Root()
	at := "snapshots/" + c.SHA
	err := c.build(root, at)
	if errors.Is(err, fs.ErrExist) {
		err = c.link(root, at, at)
	}
	if err == nil && bool(c.durable) {
		err = dir.Sync()
	}
	if err == nil && c.Revision != c.SHA {
		ref := "refs/" + c.Revision
		if err = root.MkdirAll(path.Dir(ref), 0o755); err == nil {
			err = disk.ReplaceSmall(root, ref, []byte(c.SHA), 0o644, c.durable)
		}
	}
	var known *backends.Error
	if err != nil && !errors.As(err, &known) {
		err = &backends.LocalError{Err: fmt.Errorf("the snapshot in %s: %w", dir.Path(), err)}
	}
	return err
}

// build makes a new snapshot. The error is fs.ErrExist if there is one.
func (c *cache) build(root *os.Root, at string) error {
	if _, err := root.Lstat(at); err == nil {
		return fs.ErrExist
	}
	if err := errors.Join(root.RemoveAll(building), root.MkdirAll(path.Dir(at), 0o755)); err != nil {
		return err
	}
	err := c.link(root, building, at)
	if err == nil {
		err = root.Rename(building, at)
	}
	if errors.Is(err, unix.ENOTEMPTY) { // huggingface_hub made one meanwhile
		err = fs.ErrExist
	}
	return errors.Join(err, root.RemoveAll(building))
}

// link makes all links of a snapshot in a directory that is, or becomes, at.
func (c *cache) link(root *os.Root, dir, at string) error {
	var wrong []string
	for name, blob := range c.links {
		up := strings.Repeat("../", strings.Count(at+"/"+name, "/"))
		right, err := c.linkOne(root, dir+"/"+name, up+blob)
		if err != nil {
			return err
		}
		if !right {
			wrong = append(wrong, name)
		}
	}
	if len(wrong) > 0 {
		return &backends.Error{Op: "write", Store: root.Name(), Kind: backends.Exist, Err: fmt.Errorf(
			"the snapshot %s has something else in the place of %d of its links, such as %q; move it away, or replace it with --overwrite", c.SHA, len(wrong), slices.Min(wrong))}
	}
	return nil
}

// linkOne makes a link, unless there is one. It reports whether it then is right.
func (c *cache) linkOne(root *os.Root, at, to string) (right bool, err error) {
	if err := root.MkdirAll(path.Dir(at), 0o755); err != nil {
		return false, err
	}
	err = root.Symlink(to, at)
	if !errors.Is(err, fs.ErrExist) {
		return err == nil, err
	}
	if now, err := root.Readlink(at); err == nil && now == to {
		return true, nil
	}
	if !c.overwrite {
		return false, nil
	}
	const aside = disk.Private + "/link"
	if err := root.RemoveAll(aside); err != nil {
		return false, err
	}
	if err := root.Symlink(to, aside); err != nil {
		return false, err
	}
	return true, root.Rename(aside, at)
}
