package checkpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/stager-dev/stager/window/disk"
)

// plainTree is what a mirror finds in a directory.
type plainTree struct {
	files   []plain
	omitted []Omission // entries whose content is not saved
	empty   []Omission // entries without content: sockets, FIFOs, devices, empty directories, and links to directories that are saved
}

// plainWalk lists the plain files below root. The documentation promises these rules to users:
//
//   - A regular file is saved under any name that a store can have. Names that are not UTF-8
//     are omitted.
//   - A symbolic link to a regular file below root is saved as a file with its content.
//     A link to a directory below root is not followed, because that directory is saved
//     itself. A link to an entry that skip names is not followed either. A link that leads
//     out of root is omitted.
//   - Directories named .stager and names that begin with .stager-tmp- belong to stager and
//     are ignored.
//   - Entries that skip names are ignored.
//
// With strictly, an entry that is removed during the listing counts as omitted.
func plainWalk(root *os.Root, strictly bool, skip func(p string) bool) (plainTree, error) {
	w := plainWalker{root: root, strictly: strictly, skip: skip, full: make(map[string]bool)}
	err := fs.WalkDir(disk.ListedFS(root), ".", w.visit)
	for _, dir := range w.dirs {
		if !w.full[dir] {
			w.empty = append(w.empty, Omission{dir, "an empty directory"})
		}
	}
	return w.plainTree, err
}

type plainWalker struct {
	plainTree
	root     *os.Root
	strictly bool
	skip     func(p string) bool
	dirs     []string        // except root
	full     map[string]bool // directories that have an entry
}

func (w *plainWalker) visit(p string, d fs.DirEntry, err error) error {
	switch {
	case p == "." || err == nil && w.skip(p):
		w.full[path.Dir(p)] = true
		if err == nil && p != "." && d.IsDir() {
			return fs.SkipDir
		}
		return err
	case err != nil:
		w.full[p] = true // unknown, so it is not reported as empty
		return w.vanished(p, err)
	}
	w.full[path.Dir(p)] = true
	base := path.Base(p)
	switch {
	case base == private && d.IsDir():
		return fs.SkipDir
	case strings.HasPrefix(base, private+"-tmp-"):
		if d.IsDir() {
			return fs.SkipDir
		}
		return nil
	case !utf8.ValidString(p):
		if d.IsDir() {
			w.omit(p, "its name is not UTF-8, so nothing in this directory is saved")
			return fs.SkipDir
		}
		w.omit(p, "its name is not UTF-8")
		return nil
	case d.IsDir():
		w.dirs = append(w.dirs, p)
		return nil
	case d.Type() == fs.ModeSymlink:
		w.link(p)
		return nil
	case !d.Type().IsRegular():
		w.empty = append(w.empty, Omission{p, "a " + typeName(d.Type())})
		return nil
	}
	info, err := d.Info()
	if err != nil {
		return w.vanished(p, err)
	}
	w.files = append(w.files, describePlain(p, info))
	return nil
}

func (w *plainWalker) omit(p, reason string) { w.omitted = append(w.omitted, Omission{p, reason}) }

// vanished handles an entry that was listed but cannot be examined.
func (w *plainWalker) vanished(p string, err error) error {
	switch {
	case !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission):
		return err
	case errors.Is(err, fs.ErrPermission):
		w.omit(p, cause(explain(w.root, p, err)).Error())
	case w.strictly:
		w.omit(p, "it was removed while the directory was listed")
	}
	return nil
}

// link handles a symbolic link.
func (w *plainWalker) link(p string) {
	target, info, err := follow(w.root, p)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		w.empty = append(w.empty, Omission{p, "a symbolic link to a name that does not exist"})
	case w.within(p):
		w.empty = append(w.empty, Omission{p, "a symbolic link to a checkpoint, which is saved as one"})
	case err != nil:
		w.omit(p, fmt.Sprintf("a symbolic link that cannot be followed within the directory (%v); put the file itself there", cause(err)))
	case info.IsDir():
		w.empty = append(w.empty, Omission{p, "a symbolic link to a directory, which is saved under its own name"})
	case !info.Mode().IsRegular():
		w.empty = append(w.empty, Omission{p, "a symbolic link to a " + typeName(info.Mode().Type())})
	default:
		f := describePlain(p, info)
		f.Target = target
		w.files = append(w.files, f)
	}
}

// within reports whether a symbolic link leads to, or into, an entry that skip names.
func (w *plainWalker) within(p string) bool {
	to, err := w.root.Readlink(p)
	if err != nil {
		return false
	}
	if filepath.IsAbs(to) {
		if to, err = below(w.root, to); err != nil {
			return false
		}
	} else {
		to = path.Join(path.Dir(p), to)
	}
	for ; to != "." && to != "/"; to = path.Dir(to) {
		if w.skip(to) {
			return true
		}
	}
	return false
}

// below returns an absolute path as a path relative to root. It fails when p is not below root.
func below(root *os.Root, p string) (string, error) {
	base, err := filepath.Abs(root.Name())
	if err != nil {
		return "", err
	}
	rel, err := filepath.Rel(base, p)
	if err == nil && !filepath.IsLocal(rel) {
		err = fmt.Errorf("%s is not below %s", p, base)
	}
	return rel, err
}

// follow returns a name below root for the target of a symbolic link, and its state. A link must
// not lead out of root. An absolute link may lead into it.
func follow(root *os.Root, p string) (target string, info fs.FileInfo, err error) {
	info, err = root.Stat(p)
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return p, info, err
	}
	to, rerr := root.Readlink(p)
	if rerr != nil || !filepath.IsAbs(to) {
		return p, nil, err
	}
	target, rerr = below(root, to)
	if rerr != nil {
		return p, nil, err
	}
	info, err = root.Stat(target)
	return target, info, err
}

// typeName returns the type of a file that has no content.
func typeName(mode fs.FileMode) string {
	switch {
	case mode&fs.ModeNamedPipe != 0:
		return "FIFO"
	case mode&fs.ModeSocket != 0:
		return "socket"
	case mode&fs.ModeDevice != 0:
		return "device"
	}
	return "special file"
}

// cause returns err without the path, for callers that report the path themselves.
func cause(err error) error {
	var unreadable *unreadableError
	if errors.As(err, &unreadable) {
		return unreadable
	}
	var path *fs.PathError
	if errors.As(err, &path) {
		return path.Err
	}
	return err
}

// temporaryPath reports whether p, or a directory above it, has a temporary name that a program
// replaces when it has finished writing.
func temporaryPath(p string) bool {
	return slices.ContainsFunc(strings.Split(p, "/"), func(name string) bool {
		_, temporary := finalName(name)
		return temporary
	})
}
