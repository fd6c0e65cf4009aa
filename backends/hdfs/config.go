package hdfs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/url"
	"os/user"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/colinmarc/hdfs/v2"
	"github.com/colinmarc/hdfs/v2/hadoopconf"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/internal/kerberos"
	"github.com/stager-dev/stager/backends/internal/params"
)

// Scheme describes hdfs:// URLs.
func Scheme() backends.Scheme {
	return backends.Scheme{
		Name:    "hdfs",
		Summary: "Hadoop's file system, by its NameNode or by a name service with several NameNodes",
		Example: "hdfs://namenode:8020/directory/",
		Params: []backends.Param{
			{Name: "conf", Summary: "the directory with core-site.xml and hdfs-site.xml; else HADOOP_CONF_DIR, or etc/hadoop in HADOOP_HOME"},
			{Name: "user", Summary: "the user name without Kerberos; else HADOOP_USER_NAME", Default: "the process's user"},
			{Name: "block-size", Summary: "block size of written files, such as 64m; large files are read in ranges of this size", Default: "dfs.blocksize, else the NameNode's"},
			{Name: "datanode-hostname", Summary: "true connects to DataNodes by host name, false by address", Default: "dfs.client.use.datanode.hostname, else false"},
			{Name: "namenode-principal", Summary: "the NameNode's Kerberos principal, such as nn/_HOST; enables Kerberos", Default: "dfs.namenode.kerberos.principal"},
			{Name: "data-protection", Summary: "authentication, integrity or privacy for connections to DataNodes", Default: "dfs.data.transfer.protection"},
		},
		Credentials: "Without Kerberos set HADOOP_USER_NAME or ?user=; with it mount a keytab named krb5.keytab, set KRB5_CLIENT_KTNAME to one, or run kinit and set KRB5CCNAME.",
		Open:        open,
	}
}

func open(_ context.Context, t backends.Target) (backends.Opened, error) {
	c, err := parse(t)
	if err != nil {
		return backends.Opened{}, err
	}
	b := &store{
		pool: &pool{options: c.options, addresses: c.options.Addresses, net: new(net.Dialer).DialContext, patience: usual},
		base: path.Clean("/" + t.Path)[1:], partSize: partSize(c.blockSize), blockSize: c.blockSize, replicas: c.replicas, log: t.Log,
	}
	if b.log == nil {
		b.log = slog.New(slog.DiscardHandler)
	}
	if b.base != "" {
		if err := checkKey("open", b.base); err != nil {
			return backends.Opened{}, backends.Errorf(backends.Invalid, "open", "", "invalid path for HDFS: %w", errors.Unwrap(err))
		}
	}
	if c.kerberos {
		b.pool.login = kerberos.New(t.Options, "", "")
		if err := b.pool.login.Check(); err != nil {
			return backends.Opened{}, err
		}
	}
	return backends.Opened{Backend: b, Prefix: b.base}, nil
}

// defaultBlockSize is the default of Hadoop.
const defaultBlockSize = 128 << 20

// partSize returns a multiple of the block size, because a DataNode sends a block to its end or
// until the connection closes. It is large enough to make the cost of a request negligible.
func partSize(blockSize int64) int64 {
	if blockSize == 0 {
		blockSize = defaultBlockSize
	}
	size := blockSize
	for size < 16<<20 {
		size += blockSize
	}
	return size
}

// settings are the validated parameters of a Target and its Hadoop configuration.
type settings struct {
	options   hdfs.ClientOptions // without the fields that each session sets
	kerberos  bool
	blockSize int64 // 0: not set
	replicas  int   // 0: not set
}

func getenvOf(t backends.Target) func(string) string {
	if t.Getenv == nil {
		return func(string) string { return "" }
	}
	return t.Getenv
}

func parse(t backends.Target) (c settings, err error) {
	invalid := func(format string, args ...any) (settings, error) {
		return settings{}, backends.Errorf(backends.Invalid, "open", "", format, args...)
	}
	if t.User != "" {
		return invalid("an hdfs URL cannot contain a user; use ?user= or HADOOP_USER_NAME")
	}
	getenv := getenvOf(t)
	conf, dir, err := loadConf(t.Params.Get("conf"), getenv)
	if err != nil {
		return settings{}, err
	}
	if conf != nil {
		c.options = hdfs.ClientOptionsFromConf(conf)
		c.kerberos = c.options.KerberosClient != nil
		c.options.KerberosClient = nil
		c.options.DataTransferProtection = weakest(conf)
	}
	if c.options.Addresses, err = namenodes(t.Host, conf, dir); err != nil {
		return settings{}, err
	}
	if p := t.Params.Get("namenode-principal"); p != "" {
		c.kerberos = true
		c.options.KerberosServicePrincipleName, _, _ = strings.Cut(p, "@")
	}
	if c.kerberos && c.options.KerberosServicePrincipleName == "" {
		return invalid("the NameNode requires Kerberos, but its principal is unknown: set dfs.namenode.kerberos.principal in %s/hdfs-site.xml, or ?namenode-principal=nn/_HOST", dir)
	}
	if err := params.Read(t.Params,
		params.Choice("data-protection", &c.options.DataTransferProtection,
			hdfs.DataTransferProtectionAuthentication, hdfs.DataTransferProtectionIntegrity, hdfs.DataTransferProtectionPrivacy),
		params.Bool("datanode-hostname", &c.options.UseDatanodeHostname)); err != nil {
		return settings{}, err
	}
	size := t.Params.Get("block-size")
	if size == "" {
		size = conf["dfs.blocksize"]
	}
	if c.blockSize, err = parseSize(size); err != nil {
		return invalid("a block size must be a multiple of 512 bytes such as 134217728, 128m or 1g, not %q", size)
	}
	if text := conf["dfs.replication"]; text != "" {
		if c.replicas, err = strconv.Atoi(strings.TrimSpace(text)); err != nil || c.replicas < 1 {
			return invalid("dfs.replication in %s/hdfs-site.xml must be a number of at least 1, not %q", dir, text)
		}
	}
	if c.options.User = first(t.Params.Get("user"), getenv("HADOOP_USER_NAME")); c.options.User == "" && !c.kerberos {
		u, err := user.Current()
		if err != nil || u.Username == "" {
			return invalid("the user name is unknown because this process's user has no name: set HADOOP_USER_NAME or ?user=")
		}
		c.options.User = u.Username
	}
	return c, nil
}

func first(values ...string) string {
	for _, v := range values {
		if v != "" {
			return v
		}
	}
	return ""
}

// loadConf reads the Hadoop configuration and returns it with its location. It returns nil if there
// is none and none was requested.
func loadConf(param string, getenv func(string) string) (hadoopconf.HadoopConf, string, error) {
	dir := first(param, getenv("HADOOP_CONF_DIR"))
	must := dir != ""
	if home := getenv("HADOOP_HOME"); dir == "" && home != "" {
		dir = filepath.Join(home, "etc", "hadoop")
	}
	if dir == "" {
		return nil, "", nil
	}
	conf, err := hadoopconf.Load(dir)
	if err != nil {
		return nil, dir, backends.Errorf(backends.Invalid, "open", "", "cannot read the Hadoop configuration: %w", err)
	}
	if conf == nil && must {
		return nil, dir, &backends.Error{Op: "open", Kind: backends.Invalid, Err: fmt.Errorf(
			"there is no core-site.xml or hdfs-site.xml in %s: %w", dir, fs.ErrNotExist)}
	}
	// The library iterates over all file systems and parses their values as URLs.
	for name, value := range conf {
		if _, err := url.Parse(value); err != nil && strings.Contains(name, "fs.default") {
			return nil, dir, backends.Errorf(backends.Invalid, "open", "", "%s in %s is not a URL: %q", name, dir, value)
		}
	}
	return conf, dir, nil
}

// namenodes returns the addresses for the host of a URL: the host itself, those of a name service,
// or for an empty host those of the configured file system.
func namenodes(host string, conf hadoopconf.HadoopConf, dir string) ([]string, error) {
	invalid := func(format string, args ...any) ([]string, error) {
		return nil, backends.Errorf(backends.Invalid, "open", "", format, args...)
	}
	if host == "" {
		u, err := url.Parse(first(conf["fs.defaultFS"], conf["fs.default.name"]))
		if err != nil || u.Scheme != "hdfs" || u.Host == "" {
			return invalid("an hdfs URL must contain a NameNode or name service, as in hdfs://namenode:8020/directory/, unless fs.defaultFS in HADOOP_CONF_DIR is set")
		}
		host = u.Host
	}
	ids := conf["dfs.ha.namenodes."+host]
	if ids == "" {
		if address := conf["dfs.namenode.rpc-address."+host]; address != "" {
			host = address // a name service with one NameNode
		}
		return []string{withPort(host)}, nil
	}
	var addresses []string
	for id := range strings.SplitSeq(ids, ",") {
		name := "dfs.namenode.rpc-address." + host + "." + strings.TrimSpace(id)
		if conf[name] == "" {
			return invalid("the name service %q has a NameNode %q, but %s is not in %s/hdfs-site.xml", host, strings.TrimSpace(id), name, dir)
		}
		addresses = append(addresses, withPort(strings.TrimSpace(conf[name])))
	}
	return addresses, nil
}

// withPort adds the usual port of a NameNode to an address without one.
func withPort(host string) string {
	if _, _, err := net.SplitHostPort(host); err == nil {
		return host
	}
	return net.JoinHostPort(strings.Trim(host, "[]"), "8020")
}

// parseSize parses a number of bytes in Hadoop's notation. It returns 0 for "".
func parseSize(text string) (int64, error) {
	text = strings.ToLower(strings.TrimSpace(text))
	if text == "" {
		return 0, nil
	}
	shift := 0
	if i := strings.IndexByte("kmgt", text[len(text)-1]); i >= 0 {
		shift, text = 10*(i+1), text[:len(text)-1]
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n <= 0 || n<<shift>>shift != n || n<<shift%512 != 0 {
		return 0, fmt.Errorf("invalid block size %q", text)
	}
	return n << shift, nil
}
