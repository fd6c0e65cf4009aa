package hdfs

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stager-dev/stager/backends"
)

// conf writes a Hadoop configuration and returns its directory.
func conf(t *testing.T, props map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	text := "<configuration>"
	for name, value := range props {
		text += "<property><name>" + name + "</name><value>" + value + "</value></property>"
	}
	if err := os.WriteFile(filepath.Join(dir, "hdfs-site.xml"), []byte(text+"</configuration>"), 0o644); err != nil {
		t.Fatal(err)
	}
	return dir
}

var ha = map[string]string{
	"fs.defaultFS": "hdfs://cluster", "dfs.ha.namenodes.cluster": "nn1, nn2",
	"dfs.namenode.rpc-address.cluster.nn1": "a:9000", "dfs.namenode.rpc-address.cluster.nn2": "b",
	"dfs.namenode.rpc-address.other.nn1": "c:9000", "dfs.namenode.rpc-address.single": "d:9000",
	"dfs.blocksize": "64m", "dfs.replication": "2", "dfs.client.use.datanode.hostname": "true",
}

func TestConfiguration(t *testing.T) {
	dir := conf(t, ha)
	for _, tt := range []struct {
		host, params, env string
		addresses, user   string
		partSize          int64
	}{
		{"nn:9000", "", "HADOOP_USER_NAME=u", "nn:9000", "u", 128 << 20},
		{"nn", "user=v&block-size=1m", "HADOOP_USER_NAME=u", "nn:8020", "v", 16 << 20},
		{"cluster", "user=v", "HADOOP_CONF_DIR=" + dir, "a:9000 b:8020", "v", 64 << 20},
		{"", "user=v", "HADOOP_CONF_DIR=" + dir, "a:9000 b:8020", "v", 64 << 20},
		{"single", "user=v&conf=" + dir, "", "d:9000", "v", 64 << 20},
		{"nn", "user=v&block-size=3m&conf=" + dir, "", "nn:8020", "v", 18 << 20},
	} {
		s, err := openWith(t, tt.host, tt.params, tt.env)
		if err != nil {
			t.Errorf("%+v: %v", tt, err)
			continue
		}
		b := inner(s)
		if got := strings.Join(b.pool.addresses, " "); got != tt.addresses || b.pool.options.User != tt.user || b.partSize != tt.partSize {
			t.Errorf("%s?%s: got %s as %s in parts of %d; want %s as %s in %d", tt.host, tt.params,
				got, b.pool.options.User, b.partSize, tt.addresses, tt.user, tt.partSize)
		}
		if strings.Contains(tt.params+tt.env, dir) && (b.replicas != 2 || !b.pool.options.UseDatanodeHostname) {
			t.Errorf("%s: %d replicas, DataNodes by name: %v; want what the configuration says", tt.host, b.replicas, b.pool.options.UseDatanodeHostname)
		}
	}
}

func openWith(t *testing.T, host, params string, env ...string) (*backends.Store, error) {
	t.Helper()
	if params != "" {
		params = "?" + params
	}
	return backends.NewRegistry(Scheme()).Open(t.Context(), "hdfs://"+host+"/data/"+params, backends.Options{
		Getenv: func(name string) string {
			i := slices.IndexFunc(env, func(e string) bool { return strings.HasPrefix(e, name+"=") })
			if i < 0 {
				return ""
			}
			return strings.TrimPrefix(env[i], name+"=")
		},
	})
}

func TestConfigurationErrors(t *testing.T) {
	kerberos := conf(t, map[string]string{"hadoop.security.authentication": "kerberos"})
	named := conf(t, map[string]string{"hadoop.security.authentication": "kerberos", "dfs.namenode.kerberos.principal": "nn/_HOST@R"})
	half := conf(t, map[string]string{"dfs.ha.namenodes.cluster": "nn1"})
	broken := conf(t, map[string]string{"fs.defaultFS": "hdfs://a%zz"})
	missing := filepath.Join(t.TempDir(), "krb5cc")
	krb5 := filepath.Join(t.TempDir(), "krb5.conf")
	if err := os.WriteFile(krb5, []byte("[libdefaults]\ndefault_realm = R\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		host, params string
		env          []string
		kind         backends.Kind
		words        string
	}{
		{"", "", nil, backends.Invalid, "must contain a NameNode"},
		{"u@nn", "", nil, backends.Invalid, "?user="},
		{"nn", "conf=/nowhere", nil, backends.Invalid, "/nowhere"},
		{"nn", "block-size=12x", nil, backends.Invalid, "block size"},
		{"nn", "block-size=1000", nil, backends.Invalid, "block size"},
		{"nn", "datanode-hostname=perhaps", nil, backends.Invalid, "true or false"},
		{"nn", "data-protection=none", nil, backends.Invalid, "privacy"},
		{"nn", "replication=3", nil, backends.Invalid, "unknown parameter"},
		{"nn", "conf=" + kerberos, nil, backends.Invalid, "namenode-principal"},
		{"nn", "conf=" + broken, nil, backends.Invalid, "not a URL"},
		{"cluster", "conf=" + half, nil, backends.Invalid, "rpc-address.cluster.nn1"},
		{"nn", "conf=" + named, []string{"KRB5CCNAME=" + missing}, backends.Permission, "there is no keytab and no ticket"},
		{"nn", "conf=" + named, []string{"KRB5CCNAME=KEYRING:x"}, backends.Permission, "KEYRING"},
		{"nn", "namenode-principal=nn/_HOST", []string{"KRB5CCNAME=FILE:" + krb5, "KRB5_CONFIG=/nowhere"}, backends.Invalid, "KRB5_CONFIG"},
	} {
		_, err := openWith(t, tt.host, tt.params, tt.env...)
		wantRefused(t, fmt.Sprintf("%s?%s", tt.host, tt.params), err, tt.kind, tt.words)
	}
}
