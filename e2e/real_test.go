package e2e

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/stager-dev/stager/backends/conformance/live"
	"github.com/stager-dev/stager/e2e/servers"
)

// protocols are the servers of TestJourney, and how they are spoken to.
var protocols = []string{"s3 versitygw", "s3 ceph", "smb plain", "smb signed", "smb encrypted", "nfs 4.1", "nfs 3", "hdfs", "sftp"}

// TestJourney types the same script over each protocol and each way to speak it.
func TestJourney(t *testing.T) {
	t.Parallel()
	for _, over := range protocols {
		t.Run(over, func(t *testing.T) {
			t.Parallel()
			name, how, _ := strings.Cut(over, " ")
			if how != "versitygw" { // which is always there
				_, err := whyNot(name)
				live.Require(t, name, err)
			}
			p := params()
			p.Files = []string{"testdata/journey.txtar"}
			p.Setup = func(env *testscript.Env) error {
				env.Setenv("OVER", over)
				return setup(env)
			}
			testscript.Run(t, p)
		})
	}
}

// store is the journey's server: $STORE and $PARAMS are its URL, $ESCAPED is how a name
// with odd characters is written in one.
//
//	store copy DIR TO   copies a directory of the store by other means than stager's
//	store down TIME     kills the server, or what it stands behind, and starts it again
func storeCmd(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, !neg && (len(args) == 0 || len(args) == 2 && args[0] == "down" || len(args) == 3 && args[0] == "copy"), "store [copy DIR TO | down TIME]")
	over, how, _ := strings.Cut(ts.Getenv("OVER"), " ")
	if how == "ceph" {
		over = how
	}
	use := map[string]struct {
		begin, down    []string
		cmd            func(*testscript.TestScript, bool, []string)
		url, directory string // variables
		params         string
	}{
		"s3":   {nil, []string{"down"}, proxyCmd, "S3", "OBJECTS", ""},
		"ceph": {nil, []string{"down"}, cephCmd, "CEPH", "", ""},
		"smb":  {[]string{how}, []string{how, "down"}, smbCmd, "SMB", "SMB_DIR", ""},
		"nfs":  {nil, []string{"down"}, nfsCmd, "NFS", "NFS_DIR", "?vers=4.1"},
		"sftp": {nil, []string{"down"}, sftpCmd, "SFTP", "SFTP_FILES", ""},
		"hdfs": {nil, []string{"down", "datanode"}, hdfsCmd, "HDFS", "", ""},
	}[over]
	switch {
	case len(args) == 0:
		use.cmd(ts, false, use.begin)
		ts.Setenv("STORE", ts.Getenv(use.url))
		ts.Setenv("PARAMS", use.params)
		if how == "3" {
			ts.Setenv("PARAMS", ts.Getenv("V3"))
		}
		ts.Setenv("ESCAPED", "it is 100%25 %231 ünï")
	case args[0] == "down":
		use.cmd(ts, false, append(use.down, args[1]))
	case over == "ceph":
		ts.Check(real.ceph.take(ts).Download(context.Background(), "test", of(ts).directory+"/"+args[1]+"/", ts.MkAbs(args[2])))
	case use.directory == "":
		use.cmd(ts, false, []string{"dfs", "-get", "/" + of(ts).directory + "/" + args[1], args[2]})
	default:
		ts.Check(os.CopyFS(ts.MkAbs(args[2]), os.DirFS(filepath.Join(ts.Getenv(use.directory), args[1]))))
	}
}

// shared is a server that scripts use one after the other, so that each may kill it.
// The first that asks for it starts it.
type shared[T io.Closer] struct {
	begin func(context.Context) (T, error)

	start sync.Once
	turn  sync.Mutex // held by the script that uses the server
	it    T
	err   error // why it cannot be had
}

// had starts the server unless it runs, and says why it cannot be had.
func (s *shared[T]) had() error {
	s.start.Do(func() { s.it, s.err = s.begin(context.Background()) })
	return s.err
}

// take is the server for this script alone, until it ends.
func (s *shared[T]) take(ts *testscript.TestScript) T {
	if taken := of(ts).taken; !taken[s] {
		ts.Check(s.had())
		s.turn.Lock()
		ts.Defer(s.turn.Unlock)
		taken[s] = true
	}
	return s.it
}

// close ends the server if it was started.
func (s *shared[T]) close() error {
	s.start.Do(func() { s.err = errors.New("the tests are over") })
	if s.err != nil {
		return nil
	}
	return s.it.Close()
}

// real are the servers of the protocols that have no double.
var real = struct {
	ceph shared[*servers.Ceph]
	az   shared[*servers.Azurite]
	smb  map[string]*shared[*servers.Samba] // by mode
	nfs  shared[*servers.Ganesha]
	hdfs shared[*servers.HDFS]
	sftp shared[*servers.SSHD]
	ftp  shared[*servers.FTP]
	git  shared[*servers.Git]
}{
	ceph: shared[*servers.Ceph]{begin: func(ctx context.Context) (*servers.Ceph, error) {
		return servers.StartCeph(ctx, servers.CephOptions{Buckets: []string{"test"}, Versions: []string{"versions"}})
	}},
	az: shared[*servers.Azurite]{begin: func(ctx context.Context) (*servers.Azurite, error) {
		return servers.StartAzurite(ctx, servers.AzuriteOptions{})
	}},
	smb: map[string]*shared[*servers.Samba]{
		"plain": samba(servers.SambaPlain), "signed": samba(servers.SambaSigned), "encrypted": samba(servers.SambaEncrypted),
	},
	nfs: shared[*servers.Ganesha]{begin: func(ctx context.Context) (*servers.Ganesha, error) {
		return servers.StartGanesha(ctx, servers.GaneshaOptions{})
	}},
	hdfs: shared[*servers.HDFS]{begin: func(ctx context.Context) (*servers.HDFS, error) {
		return servers.StartHDFS(ctx, servers.HDFSOptions{Keys: []string{"stager"}})
	}},
	sftp: shared[*servers.SSHD]{begin: func(ctx context.Context) (*servers.SSHD, error) {
		return servers.StartSSHD(ctx, servers.SSHDOptions{})
	}},
	ftp: shared[*servers.FTP]{begin: func(ctx context.Context) (*servers.FTP, error) {
		return servers.StartFTP(ctx, servers.FTPOptions{Kind: servers.ProFTPD, TLS: true})
	}},
	git: shared[*servers.Git]{begin: func(ctx context.Context) (*servers.Git, error) {
		return servers.StartGit(ctx, servers.GitOptions{TLS: true})
	}},
}

func samba(mode servers.SambaMode) *shared[*servers.Samba] {
	return &shared[*servers.Samba]{begin: func(ctx context.Context) (*servers.Samba, error) {
		return servers.StartSamba(ctx, servers.SambaOptions{Mode: mode})
	}}
}

// closeReal ends those that were started.
func closeReal() error {
	err := errors.Join(real.ceph.close(), real.az.close(), real.nfs.close(), real.hdfs.close(), real.sftp.close(), real.ftp.close(), real.git.close())
	for _, s := range real.smb {
		err = errors.Join(err, s.close())
	}
	return err
}

// whyNot says why the server of this name cannot be had, of S3 Ceph; known tells whether
// it is one of those that may be missing.
func whyNot(name string) (known bool, why error) {
	switch name {
	case "s3":
		return true, real.ceph.had()
	case "az":
		return true, real.az.had()
	case "smb":
		return true, real.smb["plain"].had()
	case "nfs":
		return true, real.nfs.had()
	case "hdfs":
		return true, real.hdfs.had()
	case "sftp":
		return true, real.sftp.had()
	case "ftp":
		return true, real.ftp.had()
	case "git":
		return true, real.git.had()
	}
	return false, nil
}

// ceph is a Ceph: $CEPH is the URL of a directory of the script's own.
//
//	ceph down 2s    its gateway is killed, and there again after so long
func cephCmd(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, !neg && (len(args) == 0 || len(args) == 2 && args[0] == "down"), "ceph [down TIME]")
	s := real.ceph.take(ts)
	if len(args) == 2 {
		away(ts, args[1], s.Kill, func() error { return s.Start(context.Background()) })
		return
	}
	setenv(ts, s.Env())
	ts.Setenv("CEPH", "s3://test/"+of(ts).directory)
}

// smb MODE is a Samba that is plain, signed or encrypted: $SMB is the URL of a directory
// of the script's own, $SMB_SERVER the address and $SMB_DIR where the directory lies.
//
//	smb MODE down 2s    it is killed, and there again after so long
func smbCmd(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, !neg && (len(args) == 1 || len(args) == 3 && args[1] == "down"), "smb MODE [down TIME]")
	server := real.smb[args[0]]
	usage(ts, server != nil, "smb plain|signed|encrypted")
	s := server.take(ts)
	if len(args) == 3 {
		away(ts, args[2], s.Kill, func() error { return s.Start(context.Background()) })
		return
	}
	setenv(ts, s.Env())
	ts.Setenv("SMB", "smb://"+s.Address+"/data/"+of(ts).directory)
	ts.Setenv("SMB_DIR", filepath.Join(s.Dir, of(ts).directory))
}

// nfs is an NFS-Ganesha: $NFS is the URL of a directory of the script's own, $NFS_SERVER
// the address and $NFS_DIR where the directory lies. $V3 behind a URL is version 3.
//
//	nfs down 2s    it is killed, and there again after so long
func nfsCmd(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, !neg && (len(args) == 0 || len(args) == 2 && args[0] == "down"), "nfs [down TIME]")
	s := real.nfs.take(ts)
	if len(args) == 2 {
		away(ts, args[1], s.Kill, func() error { return s.Start(context.Background()) })
		return
	}
	setenv(ts, s.Env())
	ts.Setenv("NFS", "nfs://"+s.Address+"/data/"+of(ts).directory)
	ts.Setenv("NFS_DIR", filepath.Join(s.Dir, of(ts).directory))
	ts.Setenv("V3", "?vers=3&mountport="+s.MountPort)
}

// hadoopTools are what the command hdfs of a Hadoop calls its main classes.
var hadoopTools = map[string]string{
	"dfs":      "org.apache.hadoop.fs.FsShell",
	"dfsadmin": "org.apache.hadoop.hdfs.tools.DFSAdmin",
	"crypto":   "org.apache.hadoop.hdfs.tools.CryptoAdmin",
	"ec":       "org.apache.hadoop.hdfs.tools.ECAdmin",
}

// hdfs is a NameNode and a DataNode: $HDFS is the URL of a directory of the script's own,
// /$DIR, and Hadoop's variables are set.
//
//	hdfs dfs -get /a b      runs Hadoop's own tools, as its command of this name does
//	hdfs down datanode 2s   a daemon is killed, and there again after so long
func hdfsCmd(ts *testscript.TestScript, neg bool, args []string) {
	s := real.hdfs.take(ts)
	if len(args) == 0 {
		setenv(ts, s.Env())
		ts.Setenv("HDFS", "hdfs://"+s.Address+"/"+of(ts).directory)
		return
	}
	if args[0] == "down" && len(args) == 3 {
		away(ts, args[2], func() error { return s.KillDaemon(args[1]) }, func() error {
			return errors.Join(s.StartDaemon(args[1]), s.Ready(context.Background()))
		})
		return
	}
	class := hadoopTools[args[0]]
	usage(ts, !neg && class != "", "hdfs [down DAEMON TIME | dfs|dfsadmin|crypto|ec ARGS…]")
	cmd := s.Command(context.Background(), class, args[1:]...)
	cmd.Dir = ts.MkAbs(".")
	text, err := cmd.CombinedOutput()
	ts.Logf("%s", text)
	ts.Check(err)
}

// away kills a server and starts it again after a while. The script goes on meanwhile;
// who uses the server next waits for it.
func away(ts *testscript.TestScript, text string, kill, start func() error) {
	d, err := time.ParseDuration(text)
	ts.Check(err)
	ts.Check(kill())
	back := make(chan error, 1)
	time.AfterFunc(d, func() { back <- start() })
	ts.Defer(func() {
		if err := <-back; err != nil {
			ts.Logf("the server does not come back: %v", err)
		}
	})
}

// silent is a server that takes connections and says nothing: $SILENT is its address.
func silentCmd(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, !neg && len(args) == 0, "silent")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	ts.Check(err)
	ts.Defer(func() { _ = l.Close() }) // nothing is to be lost
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			defer conn.Close() // when the script is over
		}
	}()
	ts.Setenv("SILENT", l.Addr().String())
}
