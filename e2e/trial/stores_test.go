package trial

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stager-dev/stager/backends/conformance/live"
	"github.com/stager-dev/stager/e2e/servers"
)

// A store is a real server, and one way to speak to it.
type store struct {
	servers.Server
	url   func(dir string) string // of a directory
	names func(context.Context) ([]string, error)
	disk  string // the directory "ckpt" of it, where that can be looked at as files
}

// stored is a store that can be started.
type stored struct {
	name, server string
	start        func(*testing.T) (store, error)
}

// stores are those that trials are made over, by the names that STAGER_TEST_REQUIRE has
// for their servers.
var stores = []stored{
	{"hdfs", "hdfs", startHDFS}, // which takes the longest
	{"s3", "s3", startS3},
	{"oss", "oss", startOSS},
	{"gs", "gs", startGS},
	{"az", "az", startAzurite},
	{"smb-plain", "smb", startSamba(servers.SambaPlain)},
	{"smb-signed", "smb", startSamba(servers.SambaSigned)},
	{"smb-encrypted", "smb", startSamba(servers.SambaEncrypted)},
	{"nfs-4.1", "nfs", startNFS("4.1")},
	{"nfs-3", "nfs", startNFS("3")},
	{"sftp", "sftp", startSSHD},
}

// wanted reports whether a store is one of those that STAGER_TRIAL_STORES names, if it names
// any: a trial in its full form takes minutes a store.
func wanted(s stored) bool {
	names := os.Getenv("STAGER_TRIAL_STORES")
	return names == "" || slices.Contains(strings.Split(names, ","), s.name)
}

// overStores runs a test over each of them. Servers that cannot be had are left out,
// aloud, unless they are insisted on.
func overStores(t *testing.T, test func(*testing.T, store)) {
	for _, s := range stores {
		if full && !wanted(s) {
			continue
		}
		t.Run(s.name, func(t *testing.T) {
			if !full { // whose figures nobody reads, and which waits more than it works
				t.Parallel()
			}
			running, err := s.start(t)
			live.Require(t, s.server, err)
			t.Cleanup(func() {
				if err := running.Close(); err != nil {
					t.Error(err)
				}
			})
			test(t, running)
		})
	}
}

func startS3(t *testing.T) (store, error) {
	dir := t.TempDir()
	s, err := servers.StartS3(t.Context(), servers.S3Options{Dir: dir, Buckets: []string{"trial"}})
	bucket := filepath.Join(dir, "objects", "trial")
	return store{s, func(dir string) string { return "s3://trial/" + dir + "/" }, filesBelow(bucket), filepath.Join(bucket, "ckpt")}, err
}

func startOSS(*testing.T) (store, error) {
	s, err := servers.StartOSS(servers.OSSOptions{Buckets: []string{"trial"}})
	return store{s, func(dir string) string { return "oss://trial/" + dir + "/" }, func(context.Context) ([]string, error) {
		return withUploads(s.Keys("trial")), nil
	}, ""}, err
}

func startGS(*testing.T) (store, error) {
	s, err := servers.StartGS(servers.GSOptions{Buckets: []string{"trial"}})
	return store{s, func(dir string) string { return "gs://trial/" + dir + "/" }, func(context.Context) ([]string, error) {
		return withUploads(s.Keys("trial")), nil
	}, ""}, err
}

func startAzurite(t *testing.T) (store, error) {
	a, err := servers.StartAzurite(t.Context(), servers.AzuriteOptions{Containers: []string{"trial"}})
	return store{a, func(dir string) string { return "az://trial/" + dir + "/" }, func(ctx context.Context) ([]string, error) {
		keys, uploads, err := a.Keys(ctx, "trial")
		return withUploads(keys, uploads), err
	}, ""}, err
}

// withUploads adds names for uploads that are neither completed nor aborted.
func withUploads(keys []string, uploads int) []string {
	for range uploads {
		keys = append(keys, "an upload without end")
	}
	return keys
}

func startSamba(mode servers.SambaMode) func(*testing.T) (store, error) {
	return func(t *testing.T) (store, error) {
		s, err := servers.StartSamba(t.Context(), servers.SambaOptions{Mode: mode})
		if err != nil {
			return store{}, err
		}
		return store{s, func(dir string) string { return "smb://" + s.Address + "/data/" + dir + "/" }, filesBelow(s.Dir), ""}, nil
	}
}

func startNFS(version string) func(*testing.T) (store, error) {
	return func(t *testing.T) (store, error) {
		g, err := servers.StartGanesha(t.Context(), servers.GaneshaOptions{})
		if err != nil {
			return store{}, err
		}
		return store{g, func(dir string) string {
			return "nfs://" + g.Address + "/data/" + dir + "/?vers=" + version + "&mountport=" + g.MountPort
		}, filesBelow(g.Dir), ""}, nil
	}
}

func startHDFS(t *testing.T) (store, error) {
	h, err := servers.StartHDFS(t.Context(), servers.HDFSOptions{BlockSize: 8 << 20})
	if err != nil {
		return store{}, err
	}
	return store{h, func(dir string) string { return "hdfs://" + h.Address + "/" + dir + "/" }, func(ctx context.Context) ([]string, error) {
		out, err := h.Command(ctx, "org.apache.hadoop.fs.FsShell", "-ls", "-R", "-C", "/").Output()
		return strings.Fields(string(out)), err
	}, ""}, nil
}

func startSSHD(t *testing.T) (store, error) {
	s, err := servers.StartSSHD(t.Context(), servers.SSHDOptions{})
	if err != nil {
		return store{}, err
	}
	return store{s, func(dir string) string { return "sftp://" + s.Address + s.Dir + "/" + dir + "/" }, filesBelow(s.Dir), ""}, nil
}

// filesBelow lists files as they lie on the server's disk.
func filesBelow(root string) func(context.Context) ([]string, error) {
	return func(context.Context) (names []string, err error) {
		err = fs.WalkDir(os.DirFS(root), ".", func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.Type().IsRegular() {
				names = append(names, path)
			}
			return err
		})
		return names, err
	}
}
