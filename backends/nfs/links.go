package nfs

import (
	"context"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/nfs/internal/remote"
)

const (
	maxLinks   = 40               // per path, as in Linux
	remembered = 30 * time.Second // how long a link target is cached
)

// errCycle reports links that lead back to themselves.
var errCycle = &remote.Error{Status: remote.NoEnt, Op: "READLINK"}

// links resolves symbolic links, which NFS leaves to clients. It inspects a path only after a
// request has failed on a link, so a tree without links costs nothing.
type links struct {
	tree remote.Tree
	base string // directory with a trailing slash, or ""; no link may lead out of it

	mu    sync.Mutex // guards the fields below
	known map[string]leads
}

// leads is a cached link target.
type leads struct {
	to    string
	until time.Time
}

// at runs a request on a path, and again on the resolved path if its status reports a link.
func (l *links) at(ctx context.Context, name string, request func(at string) error) error {
	at := name
	for range maxLinks {
		at = l.shortcut(at)
		err := request(at)
		switch remote.StatusOf(err) {
		case remote.SymlinkThere, remote.NotDir:
		default:
			return err
		}
		next, found, lerr := l.step(ctx, at)
		switch {
		case lerr != nil:
			return lerr
		case !found:
			return err
		}
		at = next
	}
	return errCycle
}

// cached replaces the links in the path of a directory, as far as it knows their targets.
func (l *links) cached(dir string) string {
	for range maxLinks {
		next := path.Dir(l.shortcut(dir + "/x"))
		if next == dir {
			break
		}
		dir = next
	}
	return dir
}

// stat returns the attributes of the file that a path resolves to, and its resolved path.
func (l *links) stat(ctx context.Context, name string) (a remote.Attr, at string, err error) {
	err = l.at(ctx, name, func(p string) (err error) {
		at = p
		a, err = l.lookup(ctx, p)
		if err == nil && a.Type == remote.Symlink {
			err = &remote.Error{Status: remote.SymlinkThere, Op: "GETATTR"}
		}
		return err
	})
	return a, at, err
}

// attempts limits lookups of a name that leads to another file each time.
const attempts = 3

// lookup returns the attributes of a name. If the file is replaced between the two steps of the request,
// finding the file and reading its attributes, the server calls it stale, and the name is looked up again.
func (l *links) lookup(ctx context.Context, name string) (a remote.Attr, err error) {
	for range attempts {
		if a, err = l.tree.Stat(ctx, name); !stale(err) {
			break
		}
	}
	return a, err
}

// stale reports whether a server no longer knows a file that it named before.
func stale(err error) bool {
	switch remote.StatusOf(err) {
	case remote.Stale, remote.FHExpired, remote.BadHandle:
		return true
	}
	return false
}

// step replaces the first link in a path by its target. It reports whether there was one.
func (l *links) step(ctx context.Context, name string) (next string, found bool, err error) {
	names := strings.Split(name, "/")
	for i := range names {
		link := strings.Join(names[:i+1], "/")
		a, err := l.tree.Stat(ctx, link)
		if err != nil {
			return "", false, err
		}
		if a.Type != remote.Symlink {
			continue
		}
		target, err := l.tree.ReadLink(ctx, link)
		if err != nil {
			return "", false, err
		}
		to := path.Join(path.Dir(link), target)
		if path.IsAbs(target) || !strings.HasPrefix(to+"/", l.base) || to == ".." || strings.HasPrefix(to, "../") {
			return "", false, backends.Errorf(backends.Unsupported, "open", link,
				"this is a symbolic link to %q, outside of the URL's directory, where links are not followed: "+
					"use a common parent directory, make the link relative, or mount the export and use file://", target)
		}
		if to == "." {
			to = ""
		}
		l.remember(link, to)
		return path.Join(to, strings.Join(names[i+1:], "/")), true, nil
	}
	return "", false, nil
}

func (l *links) remember(link, to string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.known == nil || len(l.known) > 10_000 {
		l.known = make(map[string]leads)
	}
	l.known[link] = leads{to, time.Now().Add(remembered)}
}

// shortcut replaces a directory link by its cached target.
func (l *links) shortcut(name string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.known) == 0 {
		return name
	}
	for i, r := range name {
		if r != '/' {
			continue
		}
		if k, ok := l.known[name[:i]]; ok && time.Now().Before(k.until) {
			return path.Join(k.to, name[i+1:])
		}
	}
	return name
}
