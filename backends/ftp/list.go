package ftp

import (
	"bufio"
	"context"
	"errors"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/internal/fileshare"
)

// tree makes the calls of a server for listings.
type tree struct{ s *server }

var _ fileshare.Tree = tree{}

// breaks are the characters that end a command.
const breaks = "\r\n"

func (tree) CheckKey(op, key string) error {
	if strings.ContainsAny(key, breaks) {
		return backends.Errorf(backends.Invalid, op, key, "invalid file name: it contains a line break")
	}
	return fileshare.CheckKey(op, key)
}

func (tree) Unreachable(name string) string {
	switch {
	case !utf8.ValidString(name):
		return "which is not UTF-8"
	case strings.ContainsAny(name, breaks):
		return "it contains a line break"
	}
	return fileshare.Unreachable(name)
}

func (tree) Reserved(name string) bool                                   { return fileshare.Reserved(name) }
func (tree) Version(i fileshare.Info) backends.Version                   { return version(i) }
func (tree) Missing(op, key string, err error) error                     { return missing(op, key, err) }
func (tree) RemoveOrphan(context.Context, string, fileshare.Entry) error { return nil }
func (tree) Prune(context.Context, fileshare.Place)                      {}

// enter changes the working directory.
func (c *conn) enter(dir string) error {
	_, err := c.command([]int{codeCompleted, codeOK}, "CWD "+c.at(dir))
	return err
}

// Locate returns where a directory is without links. A path that does not lead to a directory is an
// error.
func (t tree) Locate(ctx context.Context, dir string) (place fileshare.Place, err error) {
	err = t.s.with(ctx, func(c *conn) error {
		place, err = c.locate(dir)
		return err
	})
	return place, err
}

func (c *conn) locate(dir string) (fileshare.Place, error) {
	if err := c.enter(dir); err != nil {
		return fileshare.Place{}, err
	}
	r, err := c.command([]int{codePath}, "PWD")
	if err != nil {
		return fileshare.Place{}, err
	}
	at, err := quotedPath(r)
	return fileshare.Place{Path: dir, At: path.Clean(at)}, err
}

// ReadDir implements fileshare.Tree. LIST has neither exact times nor, on some servers, sizes, so
// each file is asked for.
func (t tree) ReadDir(ctx context.Context, dir fileshare.Place, wanted func(name string) bool) ([]fileshare.Entry, error) {
	entries, exact, err := t.readDir(ctx, dir, wanted)
	if err != nil || exact {
		return entries, err
	}
	entries, lost, err := t.describe(ctx, dir, entries)
	if err != nil || len(lost) == 0 {
		return entries, err
	}
	still, _, err := t.readDir(ctx, dir, func(name string) bool { return slices.Contains(lost, name) })
	if len(still) > 0 {
		e := still[0]
		return nil, backends.Errorf(backends.Unsupported, "list", path.Join(dir.Path, e.Name), "the server lists this file, but does not find it: its name may contain a line break or another character that the server hides; rename it on the server")
	}
	for _, name := range lost {
		backends.Skip(ctx, backends.Skipped{Key: path.Join(dir.Path, name), What: "a file that the server no longer has", Vanished: true})
	}
	return entries, err
}

// readDir lists a directory. exact reports whether the sizes and times are.
func (t tree) readDir(ctx context.Context, dir fileshare.Place, wanted func(name string) bool) (entries []fileshare.Entry, exact bool, err error) {
	err = t.s.with(ctx, func(c *conn) (err error) {
		if err = c.enter(dir.Path); refusesLogin(err) && kindOfReply(err) == backends.NotExist {
			return backends.Errorf(backends.Permission, "list", dir.Path, "the server lists this directory, but does not open it: check its permissions")
		}
		if err != nil {
			return err
		}
		exact = c.mlsd
		entries, err = c.entries(ctx, dir, func(name string) bool {
			return t.Unreachable(name) != "" || wanted(name) // the first is reported
		})
		return err
	})
	return entries, exact, err
}

func kindOfReply(err error) backends.Kind {
	var refused *replyError
	if errors.As(err, &refused) {
		return kindOf(refused)
	}
	return backends.Unknown
}

// entries lists the working directory.
func (c *conn) entries(ctx context.Context, dir fileshare.Place, wanted func(name string) bool) (entries []fileshare.Entry, err error) {
	add := func(e fileshare.Entry) {
		if e.Name != "." && e.Name != ".." && wanted(e.Name) {
			e.At = path.Join(dir.At, e.Name)
			entries = append(entries, e)
		}
	}
	if c.mlsd {
		return entries, c.lines(ctx, "MLSD", func(line string) error {
			e, ok := parseEntry(line)
			if !ok {
				return unreadable(line)
			}
			add(e)
			return nil
		})
	}
	plain := func(line string) error {
		e, skip, err := parseLine(line)
		if err == nil && !skip {
			add(e)
		}
		return err
	}
	// Most servers list names that begin with a dot only if asked to. Others take -a for a name.
	err = c.lines(ctx, "LIST -a", plain)
	if refusesLogin(err) && !c.dead || err == nil && entries == nil {
		entries = nil
		err = c.lines(ctx, "LIST", plain)
	}
	return entries, err
}

// mostNames bounds a listing of a directory in bytes.
const mostNames = 1 << 30

// lines runs a command that lists the working directory, and calls f for each line.
func (c *conn) lines(ctx context.Context, command string, f func(line string) error) error {
	d, err := c.transfer(ctx, nil, command)
	if err != nil {
		return err
	}
	defer d.Close()
	in := bufio.NewReaderSize(io.LimitReader(d, mostNames), longestLine)
	for {
		line, err := readLine(in)
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			backends.Moved(ctx)
			err = f(line)
		}
		if err != nil {
			c.dead = true // it is left in the middle
			return err
		}
	}
	if err := d.Close(); err != nil {
		return err
	}
	return c.ended()
}

// describe asks for the size and time of each file. It also returns the names of files that the
// server does not find.
func (t tree) describe(ctx context.Context, dir fileshare.Place, entries []fileshare.Entry) (kept []fileshare.Entry, lost []string, err error) {
	pool, ctx := backends.NewWorkerPool(ctx, func() int { return t.s.pool.d.conns })
	var mu sync.Mutex
	for _, e := range entries {
		if ctx.Err() != nil {
			break
		}
		pool.Go(func() error {
			var err error
			if e.Type == 0 && t.Unreachable(e.Name) == "" {
				e.Info, err = t.s.stat(ctx, path.Join(dir.Path, e.Name))
				backends.Moved(ctx)
			}
			mu.Lock()
			defer mu.Unlock()
			switch {
			case kindOfReply(err) == backends.NotExist:
				lost = append(lost, e.Name)
			case err != nil:
				return err
			default:
				kept = append(kept, e)
			}
			return nil
		})
	}
	err = pool.Wait()
	return kept, lost, err
}

// Follow returns the target of a link: a file, or else a directory.
func (t tree) Follow(ctx context.Context, key string, e fileshare.Entry) (fileshare.Entry, error) {
	err := t.s.with(ctx, func(c *conn) error {
		info, err := c.stat(key)
		if err == nil {
			e.Info = info
			return nil
		}
		if c.dead {
			return err
		}
		place, derr := c.locate(key)
		if derr != nil {
			return err // a link that leads nowhere
		}
		e.Info, e.At = fileshare.Info{Type: fs.ModeDir}, place.At
		return nil
	})
	return e, err
}
