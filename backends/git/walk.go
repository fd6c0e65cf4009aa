package git

import (
	"encoding/hex"
	"slices"
	"strings"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/internal/fileshare"
	"github.com/stager-dev/stager/backends/internal/objectstore"
)

const (
	// maxEntries bounds the work and the memory for the list of files. Links and trees that occur again
	// and again can make a small repository seem large.
	maxEntries = 1 << 20
	maxPath    = 4096 // as of Linux
	maxHops    = 40   // links on one path, as of Linux
)

// unhex converts a hash from hexadecimal. The caller has matched it with hashForm.
func unhex(hash string) string {
	b, _ := hex.DecodeString(hash) // see above
	return string(b)
}

// file is a file of the commit.
type file struct {
	key string
	id  string // the binary hash of its blob
	object
}

// walker lists the files of a commit below a path.
type walker struct {
	*objects
	root    entry
	files   []file
	skipped []backends.Skipped
	missing map[string]bool // blobs that were not fetched
	visited int             // entries
	within  []string        // the open directories, to detect circles of links
}

// walk lists the files at or below a path, in the order of their keys. Blobs that are missing are
// neither files nor links.
func (o *objects) walk(tree, base string) (*walker, error) {
	w := &walker{objects: o, root: entry{mode: modeDirectory, id: tree}, missing: make(map[string]bool)}
	e, why, err := w.find(base)
	if err != nil || why != "" {
		return w, err
	}
	if err := w.add(base, e); err != nil {
		return nil, err
	}
	slices.SortFunc(w.files, func(a, b file) int { return strings.Compare(a.key, b.key) })
	for key, other := range backends.Namesakes(w.keys) {
		if other != "" {
			return nil, hostile(key, "differs from "+other+" only in case or in a way that some systems ignore")
		}
	}
	return w, nil
}

// keys yields the keys of the files.
func (w *walker) keys(yield func(string) bool) {
	for _, f := range w.files {
		if !yield(f.key) {
			return
		}
	}
}

// hostile returns an error for a name that cannot become one of a file.
func hostile(key, why string) error {
	return backends.Errorf(backends.Unsupported, "open", "", "the repository has the name %q, which cannot be a file here, because it %s: rename it there, or read another directory by //", objectstore.OneLine(key), why)
}

// skip notes an entry that is not listed.
func (w *walker) skip(key, what string) error {
	w.skipped = append(w.skipped, backends.Skipped{Key: key, What: what})
	return nil
}

// add adds what an entry stands for.
func (w *walker) add(key string, e entry) error {
	if w.visited++; w.visited > maxEntries {
		return backends.Errorf(backends.Unsupported, "open", "", "the commit has more than %d files and directories: read a directory of it by //", maxEntries)
	}
	switch e.mode {
	case modeDirectory:
		return w.directory(key, e)
	case modeFile:
		return w.file(key, e)
	case modeSubmodule:
		return w.skip(key, "a submodule, whose files are in another repository")
	case modeLink:
		dir, _ := cutLast(key)
		target, why, err := w.find(dir, e)
		switch {
		case err != nil:
			return err
		case why != "":
			return w.skip(key, why)
		case target.mode == modeLink: // it was not fetched yet
			return nil
		}
		return w.add(key, target)
	}
	return corrupt("%q has the unknown mode %o", objectstore.OneLine(key), e.mode)
}

func (w *walker) file(key string, e entry) error {
	obj, ok := w.by[e.id]
	switch {
	case !ok:
		w.missing[e.id] = true
		return nil
	case obj.kind != blobObject:
		return corrupt("%q is a %s", objectstore.OneLine(key), kindNames[obj.kind])
	}
	w.files = append(w.files, file{key, e.id, obj})
	return nil
}

func (w *walker) directory(key string, e entry) error {
	if slices.Contains(w.within, e.id) {
		return w.skip(key, "a link to a directory above it")
	}
	w.within = append(w.within, e.id)
	defer func() { w.within = w.within[:len(w.within)-1] }()
	entries, err := w.tree(e.id)
	if err != nil {
		return err
	}
	names := make(map[string]bool, len(entries))
	for _, e := range entries {
		at := e.name
		if key != "" {
			at = key + "/" + e.name
		}
		why := invalid(e.name)
		switch {
		case names[e.name]:
			why = "occurs twice"
		case len(at) > maxPath:
			why = "is too long"
		}
		if why != "" {
			return hostile(at, why)
		}
		names[e.name] = true
		if fileshare.Reserved(e.name) {
			err = w.skip(at, "a name that is reserved for stager")
		} else {
			err = w.add(at, e)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// cutLast returns the directory and the name of a key.
func cutLast(key string) (dir, name string) {
	if i := strings.LastIndexByte(key, '/'); i >= 0 {
		return key[:i], key[i+1:]
	}
	return "", key
}

// find returns the entry at a path from the root, or at the target of a link in the directory of that
// path. It follows links. why says why there is none. It returns a link if its blob is missing.
func (w *walker) find(path string, links ...entry) (found entry, why string, err error) {
	open := []entry{w.root} // the directories on the way, and at the end perhaps a file
	rest := strings.Split(path, "/")
	for hops := 0; len(rest) > 0 || len(links) > 0; {
		var e entry
		top := open[len(open)-1]
		switch {
		case len(rest) == 0:
			e, links = links[0], nil
		case rest[0] == "" || rest[0] == ".":
			rest = rest[1:]
			continue
		case top.mode != modeDirectory:
			return entry{}, "a link that leads nowhere", nil
		case rest[0] == "..":
			if rest = rest[1:]; len(open) == 1 {
				return entry{}, "a link that points outside the repository", nil
			}
			open = open[:len(open)-1]
			continue
		default:
			entries, err := w.tree(top.id)
			if err != nil {
				return entry{}, "", err
			}
			i := slices.IndexFunc(entries, func(e entry) bool { return e.name == rest[0] })
			if i < 0 {
				return entry{}, "a link that leads nowhere", nil
			}
			e, rest = entries[i], rest[1:]
		}
		if e.mode != modeLink {
			open = append(open, e)
			continue
		}
		if hops++; hops > maxHops {
			return entry{}, "a link that leads in a circle", nil
		}
		target, ok, err := w.target(e)
		if err != nil || !ok {
			return e, "", err
		}
		if strings.HasPrefix(target, "/") {
			return entry{}, "a link that points outside the repository", nil
		}
		rest = append(strings.Split(target, "/"), rest...)
	}
	return open[len(open)-1], "", nil
}

// target returns the target of a link; ok is false if its blob is missing.
func (w *walker) target(e entry) (target string, ok bool, err error) {
	obj, ok := w.by[e.id]
	if !ok {
		w.missing[e.id] = true
		return "", false, nil
	}
	if obj.size > maxPath {
		return "", false, corrupt("the target of a link has %d bytes", obj.size)
	}
	data, err := w.bytes(obj)
	return string(data), true, err
}
