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
	maxLinks   = 40               // on the way to one file, as in Linux
	remembered = 30 * time.Second // how long it is believed where a link leads
)

// links finds what lies behind symbolic links, which servers hand out for their clients
// to follow. Only what a request stumbles over is looked at, so that a tree without
// links costs nothing.
type links struct {
	tree remote.Tree
	base string // a directory, with a slash behind it, or ""; nothing leads out of it

	mu    sync.Mutex // guards all below
	known map[string]leads
}

// leads is where a link does, and until when that is believed.
type leads struct {
	to    string
	until time.Time
}

// at runs a request on a path of the tree, or on where the links in it lead. The
// request tells by its status that there is one.
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
	return &remote.Error{Status: remote.NoEnt, Op: "READLINK"} // a circle leads nowhere
}

// stat describes what a path leads to, and tells where that is.
func (l *links) stat(ctx context.Context, name string) (a remote.Attr, at string, err error) {
	err = l.at(ctx, name, func(p string) (err error) {
		at = p
		a, err = l.tree.Stat(ctx, p)
		if err == nil && a.Type == remote.Symlink {
			err = &remote.Error{Status: remote.SymlinkThere, Op: "GETATTR"}
		}
		return err
	})
	return a, at, err
}

// step replaces the first link of a path by where it leads, if there is one.
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
				"this is a symbolic link to %q, outside of the directory that is served, where links are not followed: "+
					"give a directory above both, make the link relative, or mount the export and use file://", target)
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

// shortcut replaces links to directories of which is known where they lead.
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
