package main

import (
	"context"
	"errors"
	"flag"
	"io"
	"strings"

	"github.com/stager-dev/stager/e2e/servers"
)

// order is something that a server does when it is told to.
type order func(context.Context) error

// server is one that runs.
type server struct {
	servers.Server
	orders map[string]order
}

// obeying is a server with the orders that all of them take.
func obeying(s servers.Server, err error) (server, error) {
	if err != nil {
		return server{}, err
	}
	return server{s, map[string]order{
		"kill": plainly(s.Kill), "start": s.Start, "freeze": plainly(s.Freeze), "thaw": plainly(s.Thaw),
	}}, nil
}

// starter starts a server, which tells what it does to log, if that is not nil.
type starter func(ctx context.Context, log io.Writer) (server, error)

// protocols say what flags the server of each takes, and start it.
var protocols = map[string]func(*flag.FlagSet) starter{"s3": s3, "oss": oss, "gs": gs, "az": az, "smb": smb, "nfs": nfs, "hdfs": hdfs, "http": web, "sftp": sftp, "ftp": ftp, "git": git, "foreign": foreign}

// list makes a flag of words with commas between.
func list(flags *flag.FlagSet, to *[]string, name, usage string) {
	flags.Func(name, usage+", with commas between", func(s string) error { *to = strings.Split(s, ","); return nil })
}

func s3(flags *flag.FlagSet) starter {
	var opts servers.S3Options
	flags.BoolVar(&opts.TLS, "tls", false, "serve HTTPS, with an authority made for the day")
	flags.StringVar(&opts.Dir, "dir", "", "where objects lie; empty: a directory that goes when the server ends")
	list(flags, &opts.Buckets, "bucket", "buckets to make")
	ceph := flags.Bool("ceph", false, "Ceph, which keeps objects in memory; else versitygw")
	var versions []string
	list(flags, &versions, "versions", "with -ceph: buckets to make with versioning")
	return func(ctx context.Context, log io.Writer) (server, error) {
		opts.Log = log
		switch {
		case *ceph && opts.Dir != "":
			return server{}, errors.New("-dir is versitygw's: Ceph keeps objects in memory")
		case !*ceph && versions != nil:
			return server{}, errors.New("-versions is Ceph's: versitygw would need a directory for them")
		case *ceph:
			return obeying(servers.StartCeph(ctx, servers.CephOptions{TLS: opts.TLS, Buckets: opts.Buckets, Versions: versions, Log: log}))
		}
		return obeying(servers.StartS3(ctx, opts))
	}
}

func oss(flags *flag.FlagSet) starter {
	var opts servers.OSSOptions
	flags.BoolVar(&opts.TLS, "tls", false, "serve HTTPS, with an authority made for the day")
	flags.StringVar(&opts.Dir, "dir", "", "where objects lie; empty: a directory that goes when the server ends")
	list(flags, &opts.Buckets, "bucket", "buckets to make")
	list(flags, &opts.Public, "public", "those that anybody may read")
	list(flags, &opts.Versions, "versions", "those with versioning")
	return func(context.Context, io.Writer) (server, error) {
		return obeying(servers.StartOSS(opts))
	}
}

func gs(flags *flag.FlagSet) starter {
	var opts servers.GSOptions
	flags.BoolVar(&opts.TLS, "tls", false, "serve HTTPS, with an authority made for the day")
	flags.StringVar(&opts.Dir, "dir", "", "where objects lie; empty: a directory that goes when the server ends")
	flags.BoolVar(&opts.NoXML, "no-xml", false, "serve the JSON API alone")
	list(flags, &opts.Buckets, "bucket", "buckets to make")
	list(flags, &opts.Public, "public", "those that anybody may read")
	return func(context.Context, io.Writer) (server, error) {
		return obeying(servers.StartGS(opts))
	}
}

func az(flags *flag.FlagSet) starter {
	var opts servers.AzuriteOptions
	flags.BoolVar(&opts.TLS, "tls", false, "serve HTTPS, with an authority made for the day")
	flags.StringVar(&opts.Dir, "dir", "", "where blobs lie; empty: a directory that goes when the server ends")
	list(flags, &opts.Containers, "container", "containers to make")
	list(flags, &opts.Public, "public", "those that anybody may read")
	return func(ctx context.Context, log io.Writer) (server, error) {
		opts.Log = log
		return obeying(servers.StartAzurite(ctx, opts))
	}
}

func smb(flags *flag.FlagSet) starter {
	var opts servers.SambaOptions
	flags.StringVar((*string)(&opts.Mode), "mode", string(servers.SambaPlain), "plain, signed or encrypted")
	kerberos := flags.Bool("kerberos", false, withKerberos)
	return func(ctx context.Context, log io.Writer) (server, error) {
		opts.Log = log
		return secured(ctx, *kerberos, log, func(kdc *servers.KDC) (server, error) {
			opts.Kerberos = kdc
			return obeying(servers.StartSamba(ctx, opts))
		})
	}
}

// foreign is a server of another project.
func foreign(flags *flag.FlagSet) starter {
	gcs := flags.Bool("gcs", false, "fake-gcs-server without an XML API, with the bucket test; else impacket, an SMB server")
	return func(ctx context.Context, _ io.Writer) (server, error) {
		if *gcs {
			return obeying(servers.StartFakeGCS(ctx, servers.FakeGCSOptions{JSON: true}))
		}
		return obeying(servers.StartImpacket(ctx))
	}
}

const withKerberos = "start a Kerberos server, too, for clients to log in by"

// secured starts a server with a Kerberos server, if one is wanted, which ends with it.
func secured(ctx context.Context, wanted bool, log io.Writer, start func(*servers.KDC) (server, error)) (server, error) {
	if !wanted {
		return start(nil)
	}
	kdc, err := servers.StartKDC(ctx, log)
	if err != nil {
		return server{}, err
	}
	s, err := start(kdc)
	if err != nil {
		return server{}, errors.Join(err, kdc.Close())
	}
	s.Server = both{s.Server, kdc}
	s.orders["kill kdc"] = plainly(kdc.Kill)
	s.orders["start kdc"] = kdc.Start
	s.orders["shift kdc"] = func(ctx context.Context) error { return kdc.Shift(ctx, "+1h") }
	s.orders["set kdc"] = func(ctx context.Context) error { return kdc.Shift(ctx, "") }
	return s, nil
}

// both is a server and the Kerberos server that it stands on.
type both struct {
	servers.Server
	kdc *servers.KDC
}

func (b both) Close() error { return errors.Join(b.Server.Close(), b.kdc.Close()) }

func nfs(flags *flag.FlagSet) starter {
	var opts servers.GaneshaOptions
	flags.DurationVar(&opts.Lease, "lease", 0, "how long a client of version 4.1 may be silent; 0: a minute")
	flags.DurationVar(&opts.Grace, "grace", 0, "how long, after a start, none but former clients open files; 0: not at all")
	flags.StringVar(&opts.Dir, "dir", "", "where files lie; empty: a directory that goes when the server ends")
	return func(ctx context.Context, log io.Writer) (server, error) {
		opts.Log = log
		return obeying(servers.StartGanesha(ctx, opts))
	}
}

func hdfs(flags *flag.FlagSet) starter {
	var opts servers.HDFSOptions
	flags.StringVar(&opts.Dir, "dir", "", "where all of it lies; empty: a directory that goes when the server ends")
	flags.Int64Var(&opts.BlockSize, "block-size", 1<<20, "of files whose writer names none, in bytes")
	list(flags, &opts.Keys, "keys", "keys to make for encryption zones")
	flags.BoolVar(&opts.HA, "ha", false, "two NameNodes, nn1 and nn2, of the name service cluster; nn1 is the active one")
	kerberos := flags.Bool("kerberos", false, withKerberos)
	return func(ctx context.Context, log io.Writer) (server, error) {
		opts.Log = log
		return secured(ctx, *kerberos, log, func(kdc *servers.KDC) (server, error) {
			opts.Kerberos = kdc
			h, err := servers.StartHDFS(ctx, opts)
			s, err := obeying(h, err)
			if err == nil {
				moreOrders(s.orders, h)
			}
			return s, err
		})
	}
}

func web(flags *flag.FlagSet) starter {
	var opts servers.WebOptions
	flags.StringVar((*string)(&opts.Kind), "kind", string(servers.Nginx), "nginx, nginx-json, apache or python")
	flags.StringVar(&opts.Dir, "dir", "", "what it serves; empty: a directory that goes when the server ends")
	flags.StringVar(&opts.Before, "before", "", "the URL of a server that nginx passes all requests on to, instead of files")
	return func(ctx context.Context, log io.Writer) (server, error) {
		opts.Log = log
		return obeying(servers.StartWeb(ctx, opts))
	}
}

func sftp(flags *flag.FlagSet) starter {
	var opts servers.SSHDOptions
	flags.StringVar(&opts.Dir, "dir", "", "where files lie; empty: a directory that goes when the server ends")
	flags.BoolVar(&opts.Plain, "plain", false, "offer version 3 of SFTP without extensions")
	return func(ctx context.Context, log io.Writer) (server, error) {
		opts.Log = log
		return obeying(servers.StartSSHD(ctx, opts))
	}
}

func ftp(flags *flag.FlagSet) starter {
	var opts servers.FTPOptions
	flags.StringVar((*string)(&opts.Kind), "kind", string(servers.Vsftpd), "vsftpd or proftpd")
	flags.BoolVar(&opts.TLS, "tls", false, "demand TLS, with an authority made for the day")
	flags.IntVar(&opts.Conns, "conns", 0, "how many connections it accepts; 0: as many as come")
	flags.StringVar(&opts.Dir, "dir", "", "what it serves; empty: a directory that goes when the server ends")
	return func(ctx context.Context, log io.Writer) (server, error) {
		opts.Log = log
		return obeying(servers.StartFTP(ctx, opts))
	}
}

func git(flags *flag.FlagSet) starter {
	var opts servers.GitOptions
	flags.BoolVar(&opts.TLS, "tls", false, "serve HTTPS, with an authority made for the day")
	flags.StringVar(&opts.Dir, "dir", "", "where the repositories lie; empty: a directory that goes when the server ends")
	return func(ctx context.Context, log io.Writer) (server, error) {
		opts.Log = log
		return obeying(servers.StartGit(ctx, opts))
	}
}

// moreOrders are those that only HDFS obeys.
func moreOrders(orders map[string]order, h *servers.HDFS) {
	orders["ready"] = h.Ready
	for _, daemon := range h.Daemons() {
		orders["kill "+daemon] = plainly(func() error { return h.KillDaemon(daemon) })
		orders["start "+daemon] = plainly(func() error { return h.StartDaemon(daemon) })
		orders["activate "+daemon] = func(ctx context.Context) error { return h.Activate(ctx, daemon) }
		orders["deactivate "+daemon] = func(ctx context.Context) error { return h.Deactivate(ctx, daemon) }
	}
	for _, p := range []string{"authentication", "integrity", "privacy"} {
		orders["protect "+p] = plainly(func() error { return h.Protect(p, "") })
		orders["protect rpc "+p] = func(ctx context.Context) error { return h.ProtectRPC(ctx, p) }
	}
	orders["protect aes"] = plainly(func() error { return h.Protect("privacy", "AES/CTR/NoPadding") })
}

func plainly(do func() error) order { return func(context.Context) error { return do() } }
