package nfs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"path"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/internal/fileshare"
	"github.com/stager-dev/stager/backends/nfs/internal/nfs3"
	"github.com/stager-dev/stager/backends/nfs/internal/nfs4"
	"github.com/stager-dev/stager/backends/nfs/internal/remote"
	"github.com/stager-dev/stager/backends/nfs/internal/rpc"
)

// connect detects the protocol version and whether a privileged source port is needed. It returns
// the share and the path of the directory in its tree.
func connect(ctx context.Context, c settings, directory string, log *slog.Logger) (*share, string, error) {
	if c.vers == "3" {
		return port(c, func(c settings) (*share, string, error) { return connect3(ctx, c, directory) })
	}
	s, prefix, err := port(c, func(c settings) (*share, string, error) { return connect4(ctx, c, directory, log) })
	// A server with TLS from the first byte has no port mapper.
	if c.vers == "auto" && c.tls == nil && mayBeOlder(err) && ctx.Err() == nil {
		older, oldPrefix, err3 := port(c, func(c settings) (*share, string, error) { return connect3(ctx, c, directory) })
		if err3 == nil {
			return older, oldPrefix, nil
		}
		log.Debug("version 3 fails too", "error", err3)
		var reported *backends.Error
		if errors.As(err3, &reported) || lacks4(err) && remote.StatusOf(err3) != remote.OK {
			err = err3 // version 4 is missing, or hides the reason that version 3 reports
		}
	}
	return s, prefix, err
}

// lacks4 reports whether a server responded that it does not support version 4.1.
func lacks4(err error) bool {
	var mismatch *rpc.MismatchError
	var refused *rpc.RefusedError
	return errors.As(err, &mismatch) || errors.As(err, &refused) || remote.StatusOf(err) == remote.MinorVersion
}

// port runs a connect function, and retries from a privileged port if the server requires one.
func port(c settings, with func(settings) (*share, string, error)) (*share, string, error) {
	s, prefix, err := with(c)
	if err == nil || c.resvport != "auto" || !refusesPort(err) {
		return s, prefix, err
	}
	c.resvport = "true"
	again, againPrefix, errAgain := with(c)
	if errAgain == nil {
		return again, againPrefix, nil
	}
	var mine errPort
	var nowhere *nowhereError
	switch {
	case !errors.As(errAgain, &mine):
	case errors.As(err, &nowhere):
		err = fmt.Errorf("%w; if it exists, %w", err, mine)
	default:
		return nil, "", backends.Errorf(backends.Permission, "open", "", "%w", mine)
	}
	return s, prefix, err
}

// refusesPort reports whether a privileged port may help.
func refusesPort(err error) bool {
	var denied *rpc.DeniedError
	switch remote.StatusOf(err) {
	case remote.Access, remote.Perm, remote.WrongSec:
		return true
	}
	var nowhere *nowhereError
	return errors.As(err, &denied) || errors.As(err, &nowhere)
}

// mayBeOlder reports whether version 3 is worth trying after version 4.1 failed.
func mayBeOlder(err error) bool {
	var mismatch *rpc.MismatchError
	var refused *rpc.RefusedError
	var broken *rpc.BrokenError
	var nowhere *nowhereError
	return errors.As(err, &mismatch) || errors.As(err, &refused) || errors.As(err, &broken) ||
		errors.As(err, &nowhere) || remote.StatusOf(err) == remote.MinorVersion
}

// connect4 opens a session of version 4.1.
func connect4(ctx context.Context, c settings, directory string, log *slog.Logger) (*share, string, error) {
	client := rpc.NewClient(c.dialer(c.portOr("2049")), c.conns, rpc.Options{MaxReply: c.block + 64<<10})
	tree, err := nfs4.Dial(ctx, nfs4.Config{
		RPC: client, Credential: c.credential(), Slots: c.slots, BlockSize: c.block, Log: log,
	})
	if err != nil {
		_ = client.Close() // unused
		return nil, "", err
	}
	s, at, err := newShare(ctx, tree, directory, c.slots)
	if remote.StatusOf(err) == remote.NoEnt {
		s, at, err = absent(ctx, tree, directory, c.slots)
	}
	if err != nil {
		_ = tree.Close() // unused
		return nil, "", err
	}
	return s, at, nil
}

// absent returns the share of a missing directory. It has no objects, and the first write creates
// the directory. Where nothing can be created, as in the directories above all exports, absent
// returns an error that lists the existing names.
func absent(ctx context.Context, tree *nfs4.Client, directory string, slots int) (*share, string, error) {
	dir, name := directory, ""
	for dir != "" {
		up, base := path.Split(dir)
		dir, name = strings.TrimSuffix(up, "/"), base
		if _, err := tree.Stat(ctx, dir); remote.StatusOf(err) != remote.NoEnt {
			break
		}
	}
	if may, err := tree.MayAdd(ctx, dir); err != nil || may {
		return bareShare(tree, directory, slots), directory, nil // a write returns a more precise error
	}
	none := &nowhereError{dir: dir, name: name}
	_, err := tree.Stat(ctx, dir)
	none.inside = dir != "" && err == nil
	_ = tree.ReadDir(ctx, dir, func(e remote.Entry) error { // the error is useful without names
		if e.Attr.Type == remote.Directory && len(none.there) < 20 {
			none.there = append(none.there, e.Name)
		}
		return nil
	})
	return nil, "", none
}

// nowhereError reports that a path does not exist and cannot be created. It may be exported to
// privileged ports only, or on version 3 only, or not exist yet.
type nowhereError struct {
	dir, name string
	inside    bool     // dir exists
	there     []string // names of the directories in dir
}

func (e *nowhereError) Error() string {
	where, there := "to this client", "; it exports "
	if e.dir != "" {
		where = fmt.Sprintf("in %q, where this user cannot create anything", e.dir)
		there = "; there are "
	}
	return fmt.Sprintf("the server has no %q %s%s", e.name, where, list(there, e.there))
}

// Is makes a missing directory count as an empty one for callers that check a destination before
// they write.
func (e *nowhereError) Is(target error) bool { return e.inside && target == syscall.ENOENT }

// unwritable is the store of a missing directory that this user cannot create. Reads report that it
// is missing, writes that it cannot be written.
type unwritable struct{ none *nowhereError }

func (unwritable) Capabilities() backends.Capabilities { return backends.Capabilities{Parallelism: 1} }
func (unwritable) Close() error                        { return nil }

func (u unwritable) List(_ context.Context, prefix string) iter.Seq2[backends.Object, error] {
	return func(yield func(backends.Object, error) bool) {
		yield(backends.Object{}, classify("list", prefix, u.none))
	}
}

func (u unwritable) Stat(_ context.Context, key string) (backends.Object, error) {
	return backends.Object{}, classify("stat", key, u.none)
}

func (u unwritable) OpenRange(_ context.Context, obj backends.Object, _, _ int64) (io.ReadCloser, error) {
	return nil, classify("read", obj.Key, u.none)
}

func (u unwritable) Create(_ context.Context, key string, _ backends.CreateOptions) (backends.Writer, error) {
	return nil, backends.Errorf(backends.Permission, "create", key,
		"cannot create directory %q in %q: the export is read-only, or this user has no write permission", u.none.name, u.none.dir)
}

func (unwritable) Delete(context.Context, string) error { return nil }

// list returns the names, if any, prefixed with before.
func list(before string, names []string) string {
	if len(names) == 0 {
		return ""
	}
	slices.Sort(names)
	return before + strings.Join(names, ", ")
}

// connect3 mounts the longest part of the path that the server allows.
func connect3(ctx context.Context, c settings, directory string) (*share, string, error) {
	mount := c.mount
	if mount == 0 {
		mapper := rpc.NewClient(c.dialer("111"), 1, rpc.Options{})
		defer mapper.Close()
		var err error
		if mount, err = nfs3.MountPort(ctx, mapper); err != nil {
			return nil, "", err
		}
	}
	service := rpc.NewClient(c.dialer(strconv.Itoa(mount)), 1, rpc.Options{})
	defer service.Close()
	root, prefix, err := mountLongest(directory, func(dir string) (nfs3.Handle, error) {
		return nfs3.Mount(ctx, service, c.credential(), dir)
	})
	if err != nil {
		return nil, "", unmounted(ctx, service, c.credential(), directory, err)
	}
	client := rpc.NewClient(c.dialer(c.portOr("2049")), c.conns, rpc.Options{MaxReply: c.block + 64<<10})
	tree, err := nfs3.Dial(ctx, nfs3.Config{
		RPC: client, Credential: c.credential(), Root: root, Slots: c.slots, BlockSize: c.block,
	})
	if err != nil {
		_ = client.Close() // unused
		return nil, "", err
	}
	s, at, err := newShare(ctx, tree, prefix, c.slots)
	if remote.StatusOf(err) == remote.NoEnt {
		return bareShare(tree, prefix, c.slots), prefix, nil
	}
	if err != nil {
		_ = tree.Close() // unused
		return nil, "", err
	}
	return s, at, nil
}

// unmounted explains why a directory cannot be mounted. Servers refuse access to exports that do
// not exist; the list of exports distinguishes the two cases.
func unmounted(ctx context.Context, service *rpc.Client, cred rpc.Credential, directory string, err error) error {
	var status *remote.Error
	if !errors.As(err, &status) {
		return err
	}
	exports, _ := nfs3.Exports(ctx, service, cred) // without exports the status is enough
	there := slices.ContainsFunc(exports, func(e string) bool {
		return strings.HasPrefix("/"+directory+"/", strings.TrimSuffix(e, "/")+"/")
	})
	switch {
	case len(exports) == 0:
		return err
	case !there:
		return backends.Errorf(backends.NotExist, "open", "", "the server does not export this path%s", list("; it exports ", exports))
	case status.Status == remote.Access || status.Status == remote.Perm:
		const words = "the server exports the path, but not to this machine, or to client ports below 1024 alone (?resvport=true)"
		return &backends.Error{Op: "open", Kind: backends.Permission, Err: backends.InWords(words, err)}
	}
	return err
}

// mountLongest mounts the directory or its nearest mountable parent, and returns the rest of the
// path. The path may name a file or not exist yet, and some servers mount only the export itself.
func mountLongest(directory string, mount func(dir string) (nfs3.Handle, error)) (root nfs3.Handle, rest string, err error) {
	var refused error
	for dir := "/" + directory; ; dir = path.Dir(dir) {
		root, err = mount(dir)
		if err == nil {
			return root, strings.Trim(strings.TrimPrefix("/"+directory, dir), "/"), nil
		}
		switch remote.StatusOf(err) {
		case remote.NoEnt, remote.NotDir, remote.Inval:
			if refused == nil {
				refused = err
			}
		case remote.Access, remote.Perm:
			// A refusal is more precise than a missing name. But hardly any server lets a client
			// mount its root.
			if refused == nil || dir != "/" && remote.StatusOf(refused) != remote.Access {
				refused = err
			}
		default:
			return "", "", err
		}
		if dir == "/" {
			return "", "", refused
		}
	}
}

// newShare resolves a path and returns its share and its location in the tree.
func newShare(ctx context.Context, tree remote.Tree, directory string, slots int) (*share, string, error) {
	_, at, err := (&links{tree: tree}).stat(ctx, directory)
	switch remote.StatusOf(err) {
	case remote.NotDir, remote.NameTooLong:
		at, err = directory, nil // the object does not exist, as every call will report
	}
	if err != nil {
		return nil, "", err
	}
	return bareShare(tree, at, slots), at, nil
}

func bareShare(tree remote.Tree, directory string, slots int) *share {
	base := ""
	if directory != "" {
		base = directory + "/"
	}
	s := &share{tree: tree, links: &links{tree: tree, base: base}, base: base, slots: slots}
	_, block := tree.Sizes()
	s.Share = fileshare.New(protocol{s}, fileshare.Config{ChunkSize: block, Window: ahead, PartSize: partSize})
	return s
}

func (c settings) portOr(usual string) string {
	if c.port != "" {
		return c.port
	}
	return usual
}

func (c settings) credential() rpc.Credential {
	return rpc.System("stager", c.uid, c.gid, c.gids)
}
