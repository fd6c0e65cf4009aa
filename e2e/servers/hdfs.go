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
)

// HDFSOptions say what cluster is wanted. The zero value works.
type HDFSOptions struct {
	Dir       string            // where all of it lies; "": a folder that Close removes
	BlockSize int64             // of files whose writer names none; 0: 1 MiB, so that small files have several
	Keys      []string          // for encryption zones; they lie in a file, as no key server is needed
	Conf      map[string]string // properties of hdfs-site.xml beside or instead of ours
	Log       io.Writer         // what it says, and what is being fetched; nil: the latter on stderr
}

// HDFS is a running NameNode with one DataNode: real daemons of a Hadoop release, each
// a Java process with 256 MB of heap. Files have one replica. Permissions are checked,
// and User is the superuser.
//
// What it took beyond two main classes, the release's jars and a configuration:
//
//   - hadoop-hdfs alone does not bring hadoop-hdfs-client, which it needs
//   - both daemons refuse to start without folders webapps/hdfs and webapps/datanode
//     on the classpath, which only the full distribution has; empty ones do
//   - every address must be named: RPC, HTTP, data and IPC, or they listen on 0.0.0.0
//   - the DataNode's name must be an address, for not every machine resolves its own
//   - clusters that are minutes old leave safe mode at once only if its extension is 0
type HDFS struct {
	Address   string // of the NameNode's RPC
	User      string // the superuser
	ConfDir   string // core-site.xml and hdfs-site.xml
	Classpath string // for Hadoop's own tools, such as org.apache.hadoop.fs.FsShell

	java    string
	http    string // the NameNode's web address, which tells how it is
	temp    string // removed by Close; may be empty
	log     io.Writer
	daemons map[string]*process // by the names in hdfsDaemons
}

// hdfsDaemons are the main classes.
var hdfsDaemons = map[string]string{
	"namenode": "org.apache.hadoop.hdfs.server.namenode.NameNode",
	"datanode": "org.apache.hadoop.hdfs.server.datanode.DataNode",
}

// hdfsStartsWithin is how long the daemons may take until files can be written; on an
// idle machine it is six seconds.
const hdfsStartsWithin = 2 * time.Minute

// StartHDFS formats a cluster, starts it on free ports of this machine and returns
// when files can be written.
func StartHDFS(ctx context.Context, opts HDFSOptions) (h *HDFS, err error) {
	progress := opts.Log
	h = &HDFS{User: "stager", log: opts.Log, daemons: make(map[string]*process)}
	if opts.Log == nil {
		progress, h.log = os.Stderr, io.Discard
	}
	jars, java, err := hadoopJars(ctx, progress)
	if err != nil {
		return nil, err
	}
	h.java = java
	defer func() {
		if err != nil {
			err = errors.Join(err, h.Close())
			h = nil
		}
	}()
	dir := opts.Dir
	if dir == "" {
		if h.temp, err = os.MkdirTemp("", "stager-hdfs-"); err != nil {
			return h, err
		}
		dir = h.temp
	}
	if err := h.configure(dir, opts); err != nil {
		return h, err
	}
	h.Classpath = h.ConfDir + ":" + filepath.Join(jars, "*")
	if out, err := h.Command(ctx, hdfsDaemons["namenode"], "-format", "-nonInteractive").CombinedOutput(); err != nil {
		return h, fmt.Errorf("formatting the NameNode: %w\n%s", err, out)
	}
	for _, key := range opts.Keys {
		if out, err := h.Command(ctx, "org.apache.hadoop.crypto.key.KeyShell", "create", key).CombinedOutput(); err != nil {
			return h, fmt.Errorf("making the key %s: %w\n%s", key, err, out)
		}
	}
	for _, name := range []string{"namenode", "datanode"} {
		if err := h.Start(name); err != nil {
			return h, err
		}
	}
	return h, h.Ready(ctx)
}

// configure writes what the daemons and their clients read.
func (h *HDFS) configure(dir string, opts HDFSOptions) error {
	var addresses [5]string
	for i := range addresses {
		var err error
		if addresses[i], err = freeAddress(); err != nil {
			return err
		}
	}
	h.Address, h.http = addresses[0], addresses[1]
	if opts.BlockSize == 0 {
		opts.BlockSize = 1 << 20
	}
	site := map[string]string{
		"dfs.namenode.rpc-address":                                  h.Address,
		"dfs.namenode.http-address":                                 h.http,
		"dfs.datanode.address":                                      addresses[2],
		"dfs.datanode.http.address":                                 addresses[3],
		"dfs.datanode.ipc.address":                                  addresses[4],
		"dfs.datanode.hostname":                                     "127.0.0.1",
		"dfs.namenode.datanode.registration.ip-hostname-check":      "false",
		"dfs.namenode.name.dir":                                     "file://" + filepath.Join(dir, "name"),
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
	maps.Copy(site, opts.Conf)
	core := map[string]string{"fs.defaultFS": "hdfs://" + h.Address}
	if len(opts.Keys) > 0 {
		core["hadoop.security.key.provider.path"] = "jceks://file" + filepath.Join(dir, "keys.jceks")
	}
	h.ConfDir = filepath.Join(dir, "conf")
	for _, webapp := range []string{"hdfs", "datanode"} {
		if err := os.MkdirAll(filepath.Join(h.ConfDir, "webapps", webapp), 0o755); err != nil {
			return err
		}
	}
	return errors.Join(
		writeHadoopConf(filepath.Join(h.ConfDir, "core-site.xml"), core),
		writeHadoopConf(filepath.Join(h.ConfDir, "hdfs-site.xml"), site),
		os.WriteFile(filepath.Join(h.ConfDir, "log4j.properties"), []byte(log4j), 0o644),
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
	cmd := exec.CommandContext(ctx, h.java, append([]string{"-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", h.Classpath, class}, args...)...)
	cmd.Env = append(os.Environ(), "HADOOP_USER_NAME="+h.User)
	return cmd
}

// Start starts the daemon "namenode" or "datanode" again, on its old port.
func (h *HDFS) Start(name string) error {
	class, ok := hdfsDaemons[name]
	if !ok {
		return fmt.Errorf("there is no daemon %q, only namenode and datanode", name)
	}
	if p := h.daemons[name]; p != nil {
		if err := p.stop(); err != nil {
			return err
		}
	}
	p, err := start(h.Command(context.Background(), class), h.log)
	h.daemons[name] = p
	return err
}

// Kill ends a daemon at once, as a power cut does.
func (h *HDFS) Kill(name string) error {
	p := h.daemons[name]
	if p == nil {
		return fmt.Errorf("there is no daemon %q", name)
	}
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	<-p.done
	return nil
}

// Ready waits until the NameNode has left safe mode and knows a living DataNode.
func (h *HDFS) Ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, hdfsStartsWithin)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		err := h.healthy(ctx)
		if err == nil {
			return nil
		}
		for name, p := range h.daemons {
			select {
			case <-p.done:
				return fmt.Errorf("the %s ended at once: %w", name, p.err)
			default:
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the HDFS at %s does not get ready: %w", h.Address, err)
		case <-tick.C:
		}
	}
}

// healthy asks the NameNode's own counters.
func (h *HDFS) healthy(ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet,
		"http://"+h.http+"/jmx?qry="+url.QueryEscape("Hadoop:service=NameNode,name=FSNamesystemState"), nil)
	if err != nil {
		return err
	}
	res, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
	if err != nil {
		return err
	}
	defer res.Body.Close() // it was read
	var answer struct {
		Beans []struct {
			FSState          string
			NumLiveDataNodes int
		} `json:"beans"`
	}
	if err := json.NewDecoder(res.Body).Decode(&answer); err != nil {
		return err
	}
	if len(answer.Beans) != 1 || answer.Beans[0].FSState != "Operational" || answer.Beans[0].NumLiveDataNodes < 1 {
		return fmt.Errorf("it says %+v", answer.Beans)
	}
	return nil
}

// Env are the variables by which Hadoop's tools and stager find the cluster.
func (h *HDFS) Env() []string {
	return []string{
		"HADOOP_CONF_DIR=" + h.ConfDir, "HADOOP_USER_NAME=" + h.User,
		"HADOOP_CLASSPATH=" + h.Classpath, "STAGER_TEST_HDFS=" + h.Address,
	}
}

// Close ends the cluster.
func (h *HDFS) Close() error {
	var errs []error
	for _, p := range h.daemons {
		if p != nil {
			_ = p.cmd.Process.Kill() // nothing of it is kept
			errs = append(errs, p.stop())
		}
	}
	if h.temp != "" {
		errs = append(errs, os.RemoveAll(h.temp))
	}
	return errors.Join(errs...)
}

// javaHome is where java lies, "" when it is to be looked for.
func javaHome() string {
	if home := os.Getenv("JAVA_HOME"); home != "" {
		if bin := filepath.Join(home, "bin", "java"); isFile(bin) {
			return bin
		}
	}
	bin, err := exec.LookPath("java")
	if err != nil {
		return ""
	}
	return bin
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

// describesJava is the first line of what a Java says of itself.
func describesJava(ctx context.Context, java string) string {
	out, _ := exec.CommandContext(ctx, java, "-version").CombinedOutput()
	line, _, _ := strings.Cut(string(out), "\n")
	return line
}
