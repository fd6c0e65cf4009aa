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

// What becomes of dataDir and outputDir.
const (
	DataStage = "stage" // they are directories of the pod: brought before, and saved
	DataURI   = "uri"   // they are URLs in variables, as in OpenPAI, and the command does the rest
)

// NoQueue is a queue that keeps Kueue out.
const NoQueue = "none"

// Options are what the job's file does not say.
type Options struct {
	User      string            // who submits the job
	DefaultFS string            // the URL in place of $PAI_DEFAULT_FS_URI, such as hdfs://namenode:8020
	Data      string            // DataStage without it
	DataSize  plan.Bytes        // room for dataDir, and for each of Storages, in each pod; 0: as much as the node has
	Queue     string            // of Kueue; "": named after virtualCluster
	GPUTypes  map[string]string // node label, NAME=VALUE, of each gpuType
	Registry  []byte            // authFile's three lines: registry, user, password

	// Storages are URLs that are staged in place of OpenPAI's storages, by their names.
	Storages map[string]string

	ReadSecret, WriteSecret string // Secrets that open the stores of inputs and outputs

	Inject jobspec.Options // how stager is put in
}

// Result is a converted job.
type Result struct {
	jobspec.Result          // the manifests, and what was put into them
	Warnings       []string // what is not as it was in OpenPAI
}

// directories of a task.
const (
	podRoot   = "/pai"
	codeMax   = plan.Bytes(200_000_000) // OpenPAI's
	codeRoom  = plan.Bytes(512 << 20)   // many small files take more than their bytes
	objectMax = 1_000_000               // etcd takes 1.5 MiB
)

var tooLarge = jobspec.Faults{{Text: fmt.Sprintf("the manifests would pass %d bytes, which is more than Kubernetes stores: every task is told of every other; lower taskNumber or portNumber, or make several jobs of it", objectMax)}}

// conversion is the work on one job.
type conversion struct {
	*reader
	*job
	opts  Options
	names names
	set   bool   // it becomes a JobSet
	root  string // where code, data and output are
	local bool   // on a workstation
	ports map[string][][]int
}

// Convert makes manifests of a job. When its error is not nil it is of type
// [jobspec.Faults].
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
			for i := range faults { // lines of a file that nobody has seen
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

// begin reads and checks the job.
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

// leastSize is what the manifests will have at least: each role tells of all.
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

// locations puts values for variables into the URLs of the job.
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
			if err := c.opts.Inject.CheckURL(*l.at); err != nil {
				c.fault(c.at[l.field], "%s: %v", l.field, err)
			}
		}
	}
	if c.codeDir != "" && len(c.faults) == 0 && c.codeBase() == "" {
		c.fault(c.at["codeDir"], "codeDir is the root of its store; give the directory that the code is in")
	}
	if c.outputDir == "" && c.staged() && !c.second {
		c.warn("there is no outputDir, and no user and default file system to make OpenPAI's own of: what the tasks leave in $PAI_OUTPUT_DIR is lost")
	}
}

var reference = regexp.MustCompile(`\$\{?(PAI_[A-Z_]+)\}?`)

// expand replaces the variables that OpenPAI replaced in a URL.
func (c *conversion) expand(field, text string) string {
	return reference.ReplaceAllStringFunc(text, func(ref string) string {
		switch name := reference.FindStringSubmatch(ref)[1]; name {
		case "PAI_DEFAULT_FS_URI":
			c.needFS(field)
			return c.opts.DefaultFS
		case "PAI_JOB_NAME":
			return c.name
		case "PAI_USER_NAME", "PAI_USERNAME": // both stand in OpenPAI's examples
			if c.opts.User == "" {
				c.fault(c.at[field], "%s asks for $PAI_USER_NAME, and who submits the job is not said; give it by --user", field)
			}
			return c.opts.User
		default:
			c.fault(c.at[field], "%s asks for $%s, which nothing is known of here; known are $PAI_DEFAULT_FS_URI, $PAI_JOB_NAME and $PAI_USER_NAME", field, name)
		}
		return ref
	})
}

func (c *conversion) needFS(field string) bool {
	if c.opts.DefaultFS == "" {
		c.fault(c.at[field], "%s is in OpenPAI's default file system, which is not said; give its URL by --default-fs, as in hdfs://namenode:8020", field)
	}
	return c.opts.DefaultFS != ""
}

func (c *conversion) staged() bool { return c.opts.Data == DataStage }

// codeBase is the last name of codeDir.
func (c *conversion) codeBase() string {
	_, at, _ := strings.Cut(c.codeDir, "://")
	_, directory, _ := strings.Cut(at, "/")
	if base := path.Base("/" + directory); base != "/" {
		return base
	}
	return ""
}

// listen gives every task its ports. Pods have an address each, so the tasks of a role
// have the same; those on one machine share its numbers.
func (c *conversion) listen() {
	c.ports = map[string][][]int{}
	from := firstPort
	for _, t := range c.roles {
		for range t.tasks {
			first, next := t.portsFrom(from)
			if next > mostPort+1 {
				c.fault(t.at, "task role %s needs ports up to %d, and %d is the last there is; ask for fewer", t.name, next-1, mostPort)
				return
			}
			c.ports[t.name] = append(c.ports[t.name], first)
			if c.local {
				from = next
			}
		}
	}
}
