package pai

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/stager-dev/stager/stager/jobspec"
	"github.com/stager-dev/stager/stager/plan"
)

// How dataDir and outputDir are converted.
const (
	DataStage = "stage" // to directories of the pod: inputs are fetched before the command, outputs are saved
	DataURI   = "uri"   // to URLs in variables, as in OpenPAI: the command transfers the data itself
)

// NoQueue is the value of Options.Queue that disables Kueue.
const NoQueue = "none"

// Options are the settings that the job's file does not contain.
type Options struct {
	User      string            // who submits the job
	DefaultFS string            // value of $PAI_DEFAULT_FS_URI, such as hdfs://namenode:8020
	Data      string            // DataStage or DataURI; "": DataStage
	DataSize  plan.Bytes        // size of each volume for dataDir and for Storages; 0: limited only by the node's disk
	Queue     string            // of Kueue; "": derived from virtualCluster
	GPUTypes  map[string]string // node label, NAME=VALUE, of each gpuType
	Registry  []byte            // content of authFile, three lines: registry, user, password

	// Storages maps the names of OpenPAI storages to URLs that are staged instead.
	Storages map[string]string

	ReadSecret, WriteSecret string // names of the Secrets for the stores of inputs and of outputs
	// ReadSecretKeys and WriteSecretKeys are their keys; see plan.Credentials.
	ReadSecretKeys, WriteSecretKeys []string

	Inject jobspec.Options // options of the injection
}

// Result is a converted job.
type Result struct {
	jobspec.Result          // the manifests, and what was injected into them
	Warnings       []string // differences from OpenPAI
}

// Directories of a task, and limits in bytes.
const (
	podRoot   = "/pai"
	codeMax   = plan.Bytes(200_000_000) // OpenPAI's limit
	codeRoom  = plan.Bytes(512 << 20)   // many small files occupy more than their size
	objectMax = 1_000_000               // etcd accepts 1.5 MiB
)

var tooLarge = jobspec.Faults{{Text: fmt.Sprintf("the manifests would exceed %d bytes, the maximum that Kubernetes stores, because every task lists all others; lower taskNumber or portNumber, or split the job", objectMax)}}

// conversion converts one job.
type conversion struct {
	*reader
	*job
	opts  Options
	names names
	set   bool   // converted to a JobSet
	root  string // parent directory of code, data and output
	local bool   // for a workstation
	ports map[string][][]int
}

// Convert returns the manifests of a job. Its errors are of type [jobspec.Faults].
func Convert(file []byte, opts Options) (*Result, error) {
	c := &conversion{reader: &reader{text: file}, opts: opts, root: podRoot}
	if err := c.begin(); err != nil {
		return nil, err
	}
	text, err := c.manifests()
	if err != nil {
		return nil, err
	}
	opts.Inject.JobPolicies = true
	injected, err := jobspec.Inject(text, opts.Inject)
	if err != nil {
		var faults jobspec.Faults
		if errors.As(err, &faults) {
			for i := range faults { // line numbers of an intermediate file that the user never sees
				faults[i].Line, faults[i].Column = 0, 0
			}
			err = faults
		}
		return nil, err
	}
	if len(injected.Output) > objectMax {
		return nil, tooLarge
	}
	return &Result{*injected, c.warnings}, nil
}

// begin parses and validates the job.
func (c *conversion) begin() error {
	if c.opts.Data == "" {
		c.opts.Data = DataStage
	}
	c.job = c.reader.read()
	if len(c.faults) > 0 {
		slices.SortStableFunc(c.faults, func(a, b jobspec.Fault) int { return cmp.Or(a.Line-b.Line, a.Column-b.Column) })
		return c.faults
	}
	if c.leastSize() > objectMax {
		return tooLarge
	}
	if c.opts.Registry != nil {
		c.registries = c.reader.registryFile(c.opts.Registry)
	}
	c.set = len(c.roles) > 1 || c.retries != 0
	c.names = c.job.names(c.set)
	c.locations()
	c.mount()
	c.listen()
	c.commands()
	if len(c.faults) > 0 {
		return c.faults
	}
	return nil
}

// leastSize returns a lower bound for the size of the manifests in bytes. It grows with the square
// of the number of roles, because the pods of each role contain variables about all roles.
func (c *conversion) leastSize() (bytes int) {
	for _, t := range c.roles {
		each := len("- {name: PAI_HOST_IP_, value: }")
		for _, p := range t.ports {
			each += len("- {name: PAI_PORT_LIST_, value: }") + p.number*len("20000")
		}
		bytes += t.tasks * each
	}
	return bytes * len(c.roles)
}

// locations expands the variables in the job's URLs.
func (c *conversion) locations() {
	c.opts.DefaultFS = strings.TrimRight(c.opts.DefaultFS, "/")
	if c.outputDir == "" && !c.second && c.opts.DefaultFS != "" && c.opts.User != "" {
		c.outputDir = "$PAI_DEFAULT_FS_URI/Output/$PAI_USER_NAME/$PAI_JOB_NAME"
	}
	for _, l := range []struct {
		field  string
		at     *string
		staged bool
	}{{"dataDir", &c.dataDir, c.staged()}, {"outputDir", &c.outputDir, c.staged()}, {"codeDir", &c.codeDir, true}, {"authFile", &c.authFile, false}} {
		if *l.at == "" {
			continue
		}
		*l.at = c.expand(l.field, *l.at)
		if strings.HasPrefix(*l.at, "/") && l.field != "authFile" {
			if c.needFS(l.field) {
				*l.at = c.opts.DefaultFS + *l.at
			}
		}
		if l.staged && c.opts.Inject.CheckURL != nil && len(c.faults) == 0 {
			check := c.opts.Inject.CheckURL
			if to := c.opts.Inject.CheckDestination; l.field == "outputDir" && to != nil {
				check = to
			}
			if err := check(*l.at); err != nil {
				c.fault(c.at[l.field], "%s: %s", l.field, refusal(*l.at, err))
			}
		}
	}
	if c.codeDir != "" && len(c.faults) == 0 && c.codeBase() == "" {
		c.fault(c.at["codeDir"], "codeDir is the root of its store; write the directory that contains the code")
	}
	if c.outputDir == "" && c.staged() && !c.second {
		c.warn("the job has no outputDir, and without --user and --default-fs it has no default one: files that the tasks leave in $PAI_OUTPUT_DIR are lost")
	}
}

// refusal returns the message for a URL that is refused, with the URL to write instead if it has a
// form of Hadoop's that stager does not support.
func refusal(url string, err error) string {
	scheme, rest, ok := strings.Cut(url, ":")
	_, below, _ := strings.Cut(strings.TrimPrefix(rest, "//"), "/")
	switch {
	case !ok || !strings.HasPrefix(rest, "/"):
		return fmt.Sprintf("%q is not an absolute path or a URL; write hdfs://namenode:8020/directory, or /directory for OpenPAI's default file system", url)
	case scheme == "hdfs" && !strings.HasPrefix(rest, "//"):
		return fmt.Sprintf("%q names no namenode; write hdfs://namenode:8020%s, or only %s for OpenPAI's default file system", url, rest, rest)
	case slices.Contains([]string{"webhdfs", "swebhdfs", "viewfs", "hftp"}, scheme):
		return fmt.Sprintf("stager does not support %s; write the namenode and its RPC port, hdfs://namenode:8020/%s", scheme, below)
	case scheme == "s3a" || scheme == "s3n":
		return fmt.Sprintf("stager does not support %s; write s3:%s", scheme, rest)
	}
	return err.Error()
}

var reference = regexp.MustCompile(`\$\{?(PAI_[A-Z_]+)\}?`)

// expand replaces the variables that OpenPAI supports in a URL.
func (c *conversion) expand(field, text string) string {
	return reference.ReplaceAllStringFunc(text, func(ref string) string {
		switch name := reference.FindStringSubmatch(ref)[1]; name {
		case "PAI_DEFAULT_FS_URI":
			c.needFS(field)
			return c.opts.DefaultFS
		case "PAI_JOB_NAME":
			return c.name
		case "PAI_USER_NAME", "PAI_USERNAME": // OpenPAI's examples use both
			if c.opts.User == "" {
				c.fault(c.at[field], "%s contains $PAI_USER_NAME, and the user is unknown; set it with --user", field)
			}
			return c.opts.User
		default:
			c.fault(c.at[field], "%s contains the unknown variable $%s; use $PAI_DEFAULT_FS_URI, $PAI_JOB_NAME or $PAI_USER_NAME, or write out its value", field, name)
		}
		return ref
	})
}

func (c *conversion) needFS(field string) bool {
	if c.opts.DefaultFS == "" {
		c.fault(c.at[field], "%s is in OpenPAI's default file system, whose URL is unknown; set it with --default-fs, for example hdfs://namenode:8020", field)
	}
	return c.opts.DefaultFS != ""
}

func (c *conversion) staged() bool { return c.opts.Data == DataStage }

// codeBase returns the last element of codeDir.
func (c *conversion) codeBase() string {
	_, at, _ := strings.Cut(c.codeDir, "://")
	_, directory, _ := strings.Cut(at, "/")
	if base := path.Base("/" + directory); base != "/" {
		return base
	}
	return ""
}

// listen assigns ports to every task. Every pod has its own address, so all tasks of a role have
// the same ports. Tasks on one workstation share its port numbers.
func (c *conversion) listen() {
	c.ports = map[string][][]int{}
	from := firstPort
	for _, t := range c.roles {
		for range t.tasks {
			first, next := t.portsFrom(from)
			if next > mostPort+1 {
				c.fault(t.at, "task role %s needs ports up to %d, and the highest port is %d; lower portNumber or taskNumber", t.name, next-1, mostPort)
				return
			}
			c.ports[t.name] = append(c.ports[t.name], first)
			if c.local {
				from = next
			}
		}
	}
}
