package nfs

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"math"
	"net"
	"os"
	"path"
	"strconv"
	"strings"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/internal/params"
	"github.com/stager-dev/stager/backends/nfs/internal/rpc"
)

// Scheme describes nfs:// URLs.
func Scheme() backends.Scheme {
	return backends.Scheme{
		Name:    "nfs",
		Summary: "NFS servers of version 4.1 or 3, and Amazon EFS, without a mount",
		Example: "nfs://server/exported/directory/",
		Params: []backends.Param{
			{Name: "vers", Summary: "4.1, 3, or auto: both, in this order", Default: "auto"},
			{Name: "uid", Summary: "the user ID sent to the server", Default: "the process's"},
			{Name: "gid", Summary: "the group ID sent to the server", Default: "the process's"},
			{Name: "gids", Summary: "up to 16 supplementary group IDs, separated by commas", Default: "the process's"},
			{Name: "rsize", Summary: "bytes per read or write, such as 1MiB; the server may grant fewer", Default: "512KiB"},
			{Name: "slots", Summary: "concurrent requests; the server may grant fewer", Default: "16"},
			{Name: "conns", Summary: "connections", Default: "2"},
			{Name: "mountport", Summary: "version 3: the port of the mount service", Default: "from the port mapper"},
			{Name: "resvport", Summary: "true connects from a port below 1024, false never does, auto does if the server rejects other ports", Default: "auto"},
			{Name: "tls", Summary: "true uses TLS from the first byte, as Amazon EFS requires", Default: "false"},
			{Name: "sni", Summary: "the server name in the certificate", Default: "the host"},
		},
		Credentials: "An NFS server trusts the IDs of its clients: set them with ?uid=, ?gid= and ?gids=, or change the export and the files' mode.",
		Open:        open,
	}
}

// settings are the validated parameters of a Target.
type settings struct {
	host     string
	port     string // "" if the URL has none
	vers     string
	uid, gid uint32
	gids     []uint32
	block    int
	slots    int
	conns    int
	mount    int
	resvport string
	tls      *tls.Config
}

// idOf returns an id of this process, or that of nobody on systems without ids.
func idOf(id int) uint32 {
	if id < 0 || id > math.MaxUint32 {
		return 65534
	}
	return uint32(id)
}

func parse(t backends.Target) (settings, error) {
	invalid := func(format string, args ...any) (settings, error) {
		return settings{}, backends.Errorf(backends.Invalid, "open", "", format, args...)
	}
	c := settings{vers: "auto", uid: idOf(os.Getuid()), gid: idOf(os.Getgid()), block: 512 << 10, slots: 16, conns: 2, resvport: "auto"}
	c.host = t.Host
	if h, p, err := net.SplitHostPort(t.Host); err == nil {
		c.host, c.port = h, p
	}
	c.host = strings.Trim(c.host, "[]")
	if c.host == "" || t.User != "" {
		return invalid("an nfs URL starts with the server, as in nfs://server/exported/directory/; set the user with ?uid=")
	}
	secure, sni := "false", ""
	if err := params.Read(t.Params,
		params.Choice("vers", &c.vers, "auto", "4.1", "3"),
		params.Choice("resvport", &c.resvport, "auto", "true", "false"),
		params.Int("slots", &c.slots, 1, 1024),
		params.Int("conns", &c.conns, 1, 16),
		params.Int("mountport", &c.mount, 1, 65535),
		params.Func("uid", "a list of numbers", readID(&c.uid)),
		params.Func("gid", "a list of numbers", readID(&c.gid)),
		params.Func("gids", "a list of numbers", c.readGroups),
		params.Func("rsize", "a size from 4KiB to 16MiB", c.readBlock),
		params.Choice("tls", &secure, "true", "false"),
		params.Text("sni", &sni)); err != nil {
		return settings{}, err
	}
	switch {
	case len(c.gids) > rpc.MaxGroups:
		return invalid("parameter \"gids\" has %d groups, but the protocol allows %d", len(c.gids), rpc.MaxGroups)
	case c.gids == nil && !t.Params.Has("uid"):
		groups, _ := os.Getgroups() // without groups the server checks uid and gid
		for _, g := range groups {
			c.gids = append(c.gids, idOf(g))
		}
	}
	if secure == "true" {
		c.tls = &tls.Config{ServerName: cmp.Or(sni, c.host), MinVersion: tls.VersionTLS12}
	} else if sni != "" {
		return invalid("parameter \"sni\" requires ?tls=true")
	}
	return c, nil
}

func readID(to *uint32) func(text string) bool {
	return func(text string) bool {
		n, err := strconv.ParseUint(text, 10, 32)
		*to = uint32(n)
		return err == nil
	}
}

func (c *settings) readGroups(list string) bool {
	for text := range strings.SplitSeq(list, ",") {
		var id uint32
		if !readID(&id)(text) {
			return false
		}
		c.gids = append(c.gids, id)
	}
	return true
}

func (c *settings) readBlock(text string) bool {
	n, err := bytesOf(text)
	c.block = n &^ 4095
	return err == nil && n >= 4<<10 && n <= 16<<20
}

// bytesOf parses a size such as 1048576, 512KiB or 1MiB.
func bytesOf(text string) (int, error) {
	unit := 1
	for suffix, size := range map[string]int{"KiB": 1 << 10, "MiB": 1 << 20} {
		if bare, ok := strings.CutSuffix(text, suffix); ok {
			text, unit = bare, size
		}
	}
	n, err := strconv.Atoi(text)
	if err == nil && n > 1<<30/unit {
		err = strconv.ErrRange
	}
	return n * unit, err
}

func open(ctx context.Context, t backends.Target) (backends.Opened, error) {
	c, err := parse(t)
	if err != nil {
		return backends.Opened{}, err
	}
	log := t.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	directory := path.Clean("/" + t.Path)[1:]
	s, prefix, err := connect(ctx, c, directory, log)
	if none := (*nowhereError)(nil); errors.As(err, &none) && none.inside {
		return backends.Opened{Backend: unwritable{none}, Prefix: directory}, nil
	}
	if err != nil {
		return backends.Opened{}, classify("open", "", err)
	}
	return backends.Opened{Backend: s, Prefix: prefix}, nil
}
