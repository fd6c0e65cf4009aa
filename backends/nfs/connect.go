package nfs

import (
	"context"
	"errors"
	"log/slog"
	"path"
	"strconv"
	"strings"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/nfs/nfs3"
	"github.com/stager-dev/stager/backends/nfs/nfs4"
	"github.com/stager-dev/stager/backends/nfs/remote"
	"github.com/stager-dev/stager/backends/nfs/rpc"
)

// errNowhere says that a server of version 4 has nothing under the first name of the
// path. It may be exported to callers from privileged ports only, or on version 3 only,
// or nobody made it yet.
var errNowhere = errors.New("the server exports nothing to this client under the first name of the path")

// connect finds the version that the server speaks and the port it wants to be called
// from, and tells where in its tree the folder is.
func connect(ctx context.Context, c settings, folder string, log *slog.Logger) (*share, string, error) {
	if c.vers == "3" {
		return port(c, func(c settings) (*share, string, error) { return connect3(ctx, c, folder) })
	}
	s, prefix, err := port(c, func(c settings) (*share, string, error) { return connect4(ctx, c, folder, log) })
	if c.vers == "auto" && mayBeOlder(err) && ctx.Err() == nil {
		older, oldPrefix, err3 := port(c, func(c settings) (*share, string, error) { return connect3(ctx, c, folder) })
		if err3 == nil {
			if s != nil {
				_ = s.Close() // the other version is used
			}
			return older, oldPrefix, nil
		}
		log.Debug("version 3 cannot be had either", "error", err3)
	}
	if errors.Is(err, errNowhere) {
		err = nil // a folder that does not exist has no objects
	}
	return s, prefix, err
}

// port runs a connect, from a privileged port if the server does not let others in.
func port(c settings, with func(settings) (*share, string, error)) (*share, string, error) {
	s, prefix, err := with(c)
	if err == nil || c.resvport != "auto" || !refusesPort(err) {
		return s, prefix, err
	}
	c.resvport = "true"
	again, againPrefix, errAgain := with(c)
	switch {
	case errAgain == nil:
		if s != nil {
			_ = s.Close() // the other is used
		}
		return again, againPrefix, nil
	case again != nil:
		_ = again.Close() // the first is as good
	}
	var mine errPort
	if s == nil && errors.As(errAgain, &mine) {
		return nil, "", backends.Errorf(backends.Permission, "open", "", "%w", errAgain)
	}
	return s, prefix, err
}

// refusesPort tells whether a privileged port may help.
func refusesPort(err error) bool {
	var denied *rpc.DeniedError
	switch remote.StatusOf(err) {
	case remote.Access, remote.Perm, remote.WrongSec:
		return true
	}
	return errors.As(err, &denied) || errors.Is(err, errNowhere)
}

// mayBeOlder tells whether version 3 is worth a try after version 4.1 failed.
func mayBeOlder(err error) bool {
	var mismatch *rpc.MismatchError
	var refused *rpc.RefusedError
	var broken *rpc.BrokenError
	return errors.As(err, &mismatch) || errors.As(err, &refused) || errors.As(err, &broken) ||
		errors.Is(err, errNowhere) || remote.StatusOf(err) == remote.MinorVersion
}

// connect4 opens a session. With errNowhere it returns a share all the same.
func connect4(ctx context.Context, c settings, folder string, log *slog.Logger) (*share, string, error) {
	client := rpc.NewClient(c.dialer(c.portOr("2049")), c.conns, rpc.Options{MaxReply: c.block + 64<<10})
	tree, err := nfs4.Dial(ctx, nfs4.Config{
		RPC: client, Credential: c.credential(), Slots: c.slots, BlockSize: c.block, Log: log,
	})
	if err != nil {
		_ = client.Close() // nobody uses it
		return nil, "", err
	}
	first, _, _ := strings.Cut(folder, "/")
	if _, err = tree.Stat(ctx, first); remote.StatusOf(err) == remote.NoEnt {
		return newShare(tree, folder, c.slots), folder, errNowhere
	}
	if err != nil {
		_ = tree.Close() // nobody uses it
		return nil, "", err
	}
	return newShare(tree, folder, c.slots), folder, nil
}

// connect3 mounts the longest part of the folder's path that the server lets mount.
func connect3(ctx context.Context, c settings, folder string) (*share, string, error) {
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
	root, prefix, err := mountLongest(folder, func(dir string) (nfs3.Handle, error) {
		return nfs3.Mount(ctx, service, c.credential(), dir)
	})
	if err != nil {
		return nil, "", err
	}
	client := rpc.NewClient(c.dialer(c.portOr("2049")), c.conns, rpc.Options{MaxReply: c.block + 64<<10})
	tree, err := nfs3.Dial(ctx, nfs3.Config{
		RPC: client, Credential: c.credential(), Root: root, Slots: c.slots, BlockSize: c.block,
	})
	if err != nil {
		_ = client.Close() // nobody uses it
		return nil, "", err
	}
	return newShare(tree, prefix, c.slots), prefix, nil
}

// mountLongest mounts the folder, or the nearest above it, and returns what is left of
// its path. A path that is a file's, or not there yet, lies in a folder that can be
// mounted; and some servers mount nothing but the export itself.
func mountLongest(folder string, mount func(dir string) (nfs3.Handle, error)) (root nfs3.Handle, rest string, err error) {
	var refused error
	for dir := "/" + folder; ; dir = path.Dir(dir) {
		root, err = mount(dir)
		if err == nil {
			return root, strings.Trim(strings.TrimPrefix("/"+folder, dir), "/"), nil
		}
		switch remote.StatusOf(err) {
		case remote.NoEnt, remote.NotDir, remote.Inval:
			if refused == nil {
				refused = err
			}
		case remote.Access, remote.Perm:
			// It says more than that something is not there; but hardly any server lets
			// its root be mounted.
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

func newShare(tree remote.Tree, folder string, slots int) *share {
	base := ""
	if folder != "" {
		base = folder + "/"
	}
	return &share{tree: tree, base: base, slots: slots}
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
