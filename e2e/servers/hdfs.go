package servers

import (
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/stager-dev/stager/e2e/servers/ports"
)

// HDFSOptions say what cluster is wanted. The zero value works.
type HDFSOptions struct {
	Dir       string            // where all of it lies; "": a directory that Close removes
	BlockSize int64             // of files whose writer names none; 0: 1 MiB, so that small files have several
	Keys      []string          // for encryption zones; they lie in a file, as no key server is needed
	Conf      map[string]string // properties beside or instead of ours
	Kerberos  *KDC              // whom daemons and clients log in with; nil: who says a name is believed
	HA        bool              // two NameNodes, nn1 and nn2, of the name service "cluster"
	Log       io.Writer         // what it says
}

// HDFS is a running NameNode, or two, with one DataNode: real daemons of a Hadoop
// release, each a Java process with 256 MB of heap. Files have one replica.
// Permissions are checked, and User is the superuser.
//
// What it took beyond two main classes, the release's jars and a configuration:
//
//   - hadoop-hdfs alone does not bring hadoop-hdfs-client, which it needs
//   - both daemons refuse to start without directories webapps/hdfs and webapps/datanode
//     on the classpath, which only the full distribution has; empty ones do
//   - every address must be named: RPC, HTTP, data and IPC, or they listen on 0.0.0.0
//   - the DataNode's name must be an address, for not every machine resolves its own
//   - clusters that are minutes old leave safe mode at once only if its extension is 0
type HDFS struct {
	Address   string // of the NameNode's RPC
	User      string // the superuser
	ConfDir   string // core-site.xml and hdfs-site.xml
	Classpath string // for Hadoop's own tools, such as org.apache.hadoop.fs.FsShell

	java      string
	namenodes []namenode
	kdc       *KDC     // nil without Kerberos
	variables []string // of the environment, for Kerberos
	props     map[string]string
	temp      *temp // nil when it is somebody else's directory
	log       io.Writer
	daemons   map[string]*process // by the names of the NameNodes, and "datanode"
}

// namenode is one of a cluster's.
type namenode struct {
	name string // "namenode", or of two nn1 and nn2
	rpc  string
	http string // its web address, which tells how it is
}

// The main classes.
const (
	namenodeClass = "org.apache.hadoop.hdfs.server.namenode.NameNode"
	datanodeClass = "org.apache.hadoop.hdfs.server.datanode.DataNode"
)

// hdfsStartsWithin is how long the daemons may take until files can be written; on an
// idle machine it is six seconds.
const hdfsStartsWithin = 2 * time.Minute

// StartHDFS formats a cluster, starts it on free ports of this machine and returns
// when files can be written. It needs what [Install] installs.
func StartHDFS(ctx context.Context, opts HDFSOptions) (h *HDFS, err error) {
	jars, err := hadoopJars.found("hdfs")
	if err != nil {
		return nil, err
	}
	h = &HDFS{User: "stager", java: java(), log: opts.Log, daemons: make(map[string]*process)}
	defer closeUnlessStarted(&h, &err)
	dir := opts.Dir
	if dir == "" {
		if h.temp, err = makeTemp("hdfs"); err != nil {
			return h, err
		}
		dir = h.temp.path
	}
	if err := h.configure(ctx, dir, opts); err != nil {
		return h, err
	}
	h.Classpath = h.ConfDir + ":" + jars
	if out, err := h.Command(ctx, namenodeClass, h.id(h.namenodes[0].name, "-format", "-nonInteractive")...).CombinedOutput(); err != nil {
		return h, fmt.Errorf("formatting the NameNode: %w\n%s", err, out)
	}
	for _, key := range opts.Keys {
		if out, err := h.Command(ctx, "org.apache.hadoop.crypto.key.KeyShell", "create", key).CombinedOutput(); err != nil {
			return h, fmt.Errorf("making the key %s: %w\n%s", key, err, out)
		}
	}
	if opts.HA {
		// What bootstrapStandby does, without a NameNode to ask.
		if err := os.CopyFS(filepath.Join(dir, "nn2"), os.DirFS(filepath.Join(dir, "nn1"))); err != nil {
			return h, err
		}
	}
	return h, h.Start(ctx)
}

// Daemons are what the cluster is made of, in the order to start them.
func (h *HDFS) Daemons() (names []string) {
	for _, n := range h.namenodes {
		names = append(names, n.name)
	}
	return append(names, "datanode")
}

// configure writes what the daemons and their clients read.
func (h *HDFS) configure(ctx context.Context, dir string, opts HDFSOptions) error {
	names := []string{"namenode"}
	if opts.HA {
		names = []string{"nn1", "nn2"}
	}
	var addresses [7]string
	for i := range addresses {
		var err error
		if addresses[i], err = ports.Free(localhost); err != nil {
			return err
		}
	}
	for i, name := range names {
		// Kerberos knows hosts by name.
		rpc := strings.Replace(addresses[3+2*i], "127.0.0.1", "localhost", 1)
		h.namenodes = append(h.namenodes, namenode{name, rpc, addresses[4+2*i]})
	}
	h.Address = h.namenodes[0].rpc
	if opts.BlockSize == 0 {
		opts.BlockSize = 1 << 20
	}
	h.props = map[string]string{
		"fs.defaultFS":                                              "hdfs://" + h.Address,
		"dfs.datanode.address":                                      addresses[0],
		"dfs.datanode.http.address":                                 addresses[1],
		"dfs.datanode.ipc.address":                                  addresses[2],
		"dfs.datanode.hostname":                                     "127.0.0.1",
		"dfs.namenode.datanode.registration.ip-hostname-check":      "false",
		"dfs.datanode.data.dir":                                     "file://" + filepath.Join(dir, "data"),
		"dfs.replication":                                           "1",
		"dfs.blocksize":                                             fmt.Sprint(opts.BlockSize),
		"dfs.namenode.fs-limits.min-block-size":                     "4096",
		"dfs.namenode.safemode.extension":                           "0",
		"dfs.heartbeat.interval":                                    "1",
		"dfs.namenode.handler.count":                                "4",
		"dfs.namenode.redundancy.interval.seconds":                  "1s",
		"dfs.datanode.directoryscan.throttle.limit.ms.per.sec":      "1000",
		"dfs.client.block.write.replace-datanode-on-failure.policy": "NEVER",
	}
	if opts.HA {
		h.highlyAvailable(dir)
	} else {
		h.props["dfs.namenode.rpc-address"] = h.Address
		h.props["dfs.namenode.http-address"] = h.namenodes[0].http
		h.props["dfs.namenode.name.dir"] = "file://" + filepath.Join(dir, "name")
	}
	if len(opts.Keys) > 0 {
		h.props["hadoop.security.key.provider.path"] = "jceks://file" + filepath.Join(dir, "keys.jceks")
	}
	if opts.Kerberos != nil {
		if err := h.secure(ctx, opts.Kerberos); err != nil {
			return err
		}
	}
	h.ConfDir = filepath.Join(dir, "conf")
	if err := os.MkdirAll(h.tmp(), 0o755); err != nil {
		return err
	}
	for _, webapp := range []string{"hdfs", "datanode"} {
		if err := os.MkdirAll(filepath.Join(h.ConfDir, "webapps", webapp), 0o755); err != nil {
			return err
		}
	}
	return errors.Join(h.Configure(opts.Conf), os.WriteFile(filepath.Join(h.ConfDir, "log4j.properties"), []byte(log4j), 0o644))
}

// Configure changes properties. Daemons read them when they are started.
func (h *HDFS) Configure(changed map[string]string) error {
	maps.Copy(h.props, changed)
	core, site := make(map[string]string), make(map[string]string)
	for name, value := range h.props {
		if strings.HasPrefix(name, "dfs.") {
			site[name] = value
		} else {
			core[name] = value
		}
	}
	return errors.Join(
		writeHadoopConf(filepath.Join(h.ConfDir, "core-site.xml"), core),
		writeHadoopConf(filepath.Join(h.ConfDir, "hdfs-site.xml"), site),
	)
}

const log4j = `log4j.rootLogger=WARN,err
log4j.appender.err=org.apache.log4j.ConsoleAppender
log4j.appender.err.target=System.err
log4j.appender.err.layout=org.apache.log4j.PatternLayout
log4j.appender.err.layout.ConversionPattern=%d{HH:mm:ss} %p %c{1}: %m%n
`

func writeHadoopConf(path string, props map[string]string) error {
	type property struct {
		Name  string `xml:"name"`
		Value string `xml:"value"`
	}
	var conf struct {
		XMLName    xml.Name   `xml:"configuration"`
		Properties []property `xml:"property"`
	}
	for _, name := range slices.Sorted(maps.Keys(props)) {
		conf.Properties = append(conf.Properties, property{name, props[name]})
	}
	text, err := xml.MarshalIndent(conf, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, text, 0o644)
}

// Command is a run of one of Hadoop's main classes as the superuser, such as
// org.apache.hadoop.fs.FsShell, which is what "hdfs dfs" runs.
func (h *HDFS) Command(ctx context.Context, class string, args ...string) *exec.Cmd {
	// The JVM verifies no bytecode: that is a tenth of the start.
	line := []string{"-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UnlockDiagnosticVMOptions", "-XX:-BytecodeVerificationRemote", "-Djava.net.preferIPv4Stack=true", "-Djava.io.tmpdir=" + h.tmp()}
	if h.kdc != nil {
		line = append(line, "-Djava.security.krb5.conf="+h.kdc.Conf)
	}
	cmd := exec.CommandContext(ctx, h.java, append(append(line, "-cp", h.Classpath, class), args...)...)
	cmd.Env = append(append(os.Environ(), "HADOOP_USER_NAME="+h.User), h.variables...)
	return cmd
}

// tmp is where JVMs put what they leave when they are killed.
func (h *HDFS) tmp() string { return filepath.Join(h.ConfDir, "tmp") }

// FsShell is a run of what "hdfs dfs" is, as the superuser, with the JVM's own choice
// of heap and compilers, as a distribution runs it.
func (h *HDFS) FsShell(ctx context.Context, args ...string) *exec.Cmd {
	cmd := h.Command(ctx, "org.apache.hadoop.fs.FsShell", args...)
	cmd.Args = append([]string{h.java, "-cp", h.Classpath, "org.apache.hadoop.fs.FsShell"}, args...)
	return cmd
}

// Start starts the cluster again after Kill, on its old ports, and returns when files
// can be written. Of two NameNodes the first is the active one.
func (h *HDFS) Start(ctx context.Context) error {
	for _, name := range h.Daemons() {
		if err := h.StartDaemon(name); err != nil {
			return err
		}
	}
	if len(h.namenodes) > 1 {
		if err := h.Activate(ctx, h.namenodes[0].name); err != nil {
			return err
		}
	}
	return h.Ready(ctx)
}

// StartDaemon starts a daemon again, on its old port.
func (h *HDFS) StartDaemon(name string) error {
	if !slices.Contains(h.Daemons(), name) {
		return fmt.Errorf("there is no daemon %q, only %v", name, h.Daemons())
	}
	if p := h.daemons[name]; p != nil {
		if err := p.stop(); err != nil {
			return err
		}
	}
	class, args := namenodeClass, h.id(name)
	if name == "datanode" {
		class, args = datanodeClass, nil
	}
	p, err := start(h.Command(context.Background(), class, args...), h.log)
	if err == nil {
		h.daemons[name] = p
	}
	return err
}

// Kill ends the cluster as a power cut does.
func (h *HDFS) Kill() error { return h.each((*process).kill) }

// KillDaemon ends one of the two.
func (h *HDFS) KillDaemon(name string) error {
	p := h.daemons[name]
	if p == nil {
		return fmt.Errorf("there is no daemon %q", name)
	}
	return p.kill()
}

// Freeze keeps both daemons from answering, until Thaw.
func (h *HDFS) Freeze() error {
	return h.each(func(p *process) error { _, err := p.freeze(); return err })
}

// Thaw ends Freeze.
func (h *HDFS) Thaw() error {
	return h.each((*process).thaw)
}

func (h *HDFS) each(do func(*process) error) error {
	var errs []error
	for _, p := range h.daemons {
		errs = append(errs, do(p))
	}
	return errors.Join(errs...)
}

// Ready waits until a NameNode has left safe mode and knows a living DataNode; of two,
// the active one.
func (h *HDFS) Ready(ctx context.Context) error { return h.until(ctx, h.healthy) }

func (h *HDFS) until(ctx context.Context, fine func(context.Context) error) error {
	return until(ctx, "the HDFS at "+h.Address, hdfsStartsWithin, fine, slices.Collect(maps.Values(h.daemons))...)
}

// healthy asks the NameNodes' own counters.
func (h *HDFS) healthy(ctx context.Context) error {
	var errs []error
	for _, n := range h.namenodes {
		err := n.healthy(ctx)
		if err == nil {
			return nil
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func (n namenode) healthy(ctx context.Context) error {
	for name, good := range map[string]func(bean) bool{
		"FSNamesystemState": func(b bean) bool { return b.FSState == "Operational" && b.NumLiveDataNodes >= 1 },
		"NameNodeStatus":    func(b bean) bool { return b.State == "active" },
	} {
		b, err := n.ask(ctx, name)
		if err != nil {
			return err
		}
		if !good(b) {
			return fmt.Errorf("%s says %+v", n.name, b)
		}
	}
	return nil
}

// bean is what a NameNode counts and says of itself.
type bean struct {
	FSState          string
	NumLiveDataNodes int
	State            string
}

func (n namenode) ask(ctx context.Context, name string) (bean, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet,
		"http://"+n.http+"/jmx?qry="+url.QueryEscape("Hadoop:service=NameNode,name="+name), nil)
	if err != nil {
		return bean{}, err
	}
	res, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
	if err != nil {
		return bean{}, err
	}
	defer res.Body.Close() // it was read
	var answer struct {
		Beans []bean `json:"beans"`
	}
	if err := json.NewDecoder(res.Body).Decode(&answer); err != nil {
		return bean{}, err
	}
	if len(answer.Beans) != 1 {
		return bean{}, fmt.Errorf("%s does not know its %s", n.name, name)
	}
	return answer.Beans[0], nil
}

// Env are the variables by which Hadoop's tools and stager find the cluster.
func (h *HDFS) Env() []string {
	return append([]string{
		"HDFS_SERVER=" + h.Address, "HADOOP_CONF_DIR=" + h.ConfDir,
		"HADOOP_USER_NAME=" + h.User, "HADOOP_CLASSPATH=" + h.Classpath,
	}, h.variables...)
}

// Close ends the cluster.
func (h *HDFS) Close() error {
	return errors.Join(h.Kill(), h.temp.remove()) // nothing of it is kept
}
