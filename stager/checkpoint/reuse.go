package checkpoint

import (
	"context"
	"strings"

	"github.com/stager-dev/stager/backends"
)

// A file that an earlier step has with the same path, size and digest is not sent again: the
// COMMIT refers to the existing object. Retention removes a COMMIT first, then reads what the
// other COMMITs and the parts of uncommitted steps refer to, and only then removes data. A part
// that refers to an earlier step is therefore safe when the part is in the store and the earlier
// COMMIT still exists.

// earlier is a committed step whose files need not be sent again. A nil earlier has none.
type earlier struct {
	dir     string
	commit  Commit
	version backends.Version // of the COMMIT.json
	files   map[string]File  // this node's files that are in the store, by path
}

// earlier returns the last step that recall knows, except the one in dir. If it knows none, a
// single node lists the store and takes the newest valid step. The listings of several nodes would
// be too many. Reuse is an optimization, so no failure here is an error.
func (s *shipper) earlier(ctx context.Context, dir string) *earlier {
	if s.recall != nil {
		if e := s.recall(ctx); e != nil && e.dir != dir {
			return s.reusable(ctx, *e)
		}
		if s.nodes > 1 {
			return nil
		}
	}
	steps, err := listSteps(ctx, s.store)
	if err != nil {
		return nil
	}
	for _, l := range steps {
		if l.dir == dir || !l.committed {
			continue
		}
		commit, obj, err := readCommitAt(ctx, s.store, l.dir)
		if err != nil {
			continue
		}
		return s.reusable(ctx, earlier{dir: l.dir, commit: commit, version: obj.Version})
	}
	return nil
}

// reusable checks which of this node's files of an earlier step the store still has. Missing
// files are sent again.
func (s *shipper) reusable(ctx context.Context, e earlier) *earlier {
	own := e.commit
	own.Files = filesOf(e.commit, s.node)
	sizes, err := sizesOf(ctx, s.store, e.dir, &own)
	if err != nil {
		return nil
	}
	e.files = make(map[string]File)
	for _, f := range own.Files {
		key := own.key(e.dir, f)
		if size, ok := sizes[key]; ok && size == f.Size && f.Size > 0 && telling(f.Digest) {
			f.At = key
			e.files[f.Path] = f
		}
	}
	return &e
}

// filesOf returns the files that a node saved.
func filesOf(c Commit, node int) (files []File) {
	for _, f := range c.Files {
		if f.Node == node {
			files = append(files, f)
		}
	}
	return files
}

// telling reports whether a digest has at least 64 bits. With fewer, two checkpoints in a few
// thousand millions would have equal digests.
func telling(digest string) bool {
	_, value, _ := strings.Cut(digest, ":")
	return len(value) >= 16
}

// has returns the object of an earlier step that holds exactly this file.
func (e *earlier) has(ctx context.Context, c uploadJob, want local) (File, bool, error) {
	if e == nil || e.files[want.Path].Size != want.Size || want.Size == 0 {
		return File{}, false, nil
	}
	f := e.files[want.Path]
	same, err := c.holdsFile(ctx, want, f.Digest)
	return f, same, err
}

// used reports whether any of the files refers to the earlier step.
func (e *earlier) used(files []File) bool {
	for _, f := range files {
		if e != nil && f.At != "" {
			return true
		}
	}
	return false
}

// there reports whether the COMMIT of the earlier step is unchanged.
func (e *earlier) there(ctx context.Context, store *backends.Store) bool {
	if e.version == "" {
		commit, err := readCommit(ctx, store, e.dir)
		return err == nil && commit.Data == e.commit.Data
	}
	obj, err := store.Stat(ctx, e.dir+"/"+commitKey)
	return err == nil && obj.Version == e.version
}

// uploadDir returns the upload's directory that contains key: step-…/data/…/, whatever the path
// of the file below it.
func uploadDir(key string) string {
	return strings.Join(strings.SplitN(key, "/", 4)[:3], "/") + "/"
}

// sizesOf returns the sizes of the objects in the store for the files of a COMMIT, by key.
func sizesOf(ctx context.Context, store *backends.Store, dir string, c *Commit) (map[string]int64, error) {
	objects, err := objectsOf(ctx, store, dir, c)
	sizes := make(map[string]int64, len(objects))
	for key, obj := range objects {
		sizes[key] = obj.Size
	}
	return sizes, err
}

// objectsOf returns the objects in the directories of the files of a COMMIT, by key.
func objectsOf(ctx context.Context, store *backends.Store, dir string, c *Commit) (map[string]backends.Object, error) {
	objects, directories := make(map[string]backends.Object), make(map[string]bool)
	for _, f := range c.Files {
		directory := uploadDir(c.key(dir, f))
		if directories[directory] {
			continue
		}
		directories[directory] = true
		for obj, err := range store.List(ctx, directory) {
			if err != nil {
				return nil, err
			}
			objects[obj.Key] = obj
		}
	}
	return objects, nil
}
