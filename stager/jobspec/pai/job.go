package pai

import (
	"strconv"

	"github.com/tailscale/hujson"
)

// job is a parsed job. Missing fields have OpenPAI's defaults.
type job struct {
	name, image, authFile           string
	dataDir, outputDir, codeDir     string
	virtualCluster, gpuType, extras string // extras is JSON
	roles                           []*role
	retries                         int  // a number, or endless
	second                          bool // in the second format
	gang                            bool // its tasks start together
	env                             []variable
	storages                        []storage      // directories that OpenPAI mounts into each task
	registries                      []registry     // of the images
	at                              map[string]int // offsets of fields
}

// Special values of retryCount: retry forever, and retry forever even after a success, as services
// did.
const (
	endless = -1
	always  = -2
)

// role is a task role.
type role struct {
	name, image             string // image: of the role, in the second format
	tasks                   int
	cpu, memory, gpu, shm   int // memory and shm in MiB, the unit of OpenPAI's MB
	ports                   []portType
	command                 string
	secret                  bool // the command contains the value of a secret
	minFailed, minSucceeded int  // a number of tasks, or never
	tries                   int  // how often a failed task is retried, or endless
	reported                completionRules
	at                      int
}

// completionRules holds the values of OpenPAI's variables where they differ from the effective
// rules: the variables show the defaults of the second format in another way.
type completionRules struct{ failed, succeeded, shm string }

// storage is a directory that OpenPAI mounts into each task. It is a PersistentVolumeClaim with the
// same name.
type storage struct {
	name, path string
	readOnly   bool
	at         int
}

// never is a count of tasks that is never reached; null in the file.
const never = 0

// portType is a label and the number of its ports.
type portType struct {
	label         string
	begin, number int // begin 0: any free port
	at            int
}

// variable is an environment variable. If field is set, Kubernetes fills in the value.
type variable struct{ name, value, field string }

// Limits and defaults of OpenPAI.
const (
	leastMemory  = 100 // MiB
	usualShared  = 64  // MiB
	usualShared2 = 512 // MiB, in the second format
	mostPort     = 65535
)

// job parses a job. Faults are added to the reader.
func (r *reader) job(root *hujson.Value) *job {
	o := r.object(root, "the job")
	if o == nil {
		return nil
	}
	j := &job{at: o.at}
	j.name = o.named("jobName", jobName)
	j.image = o.text("image", true)
	j.authFile, j.gpuType = o.text("authFile", false), o.text("gpuType", false)
	j.dataDir, j.outputDir, j.codeDir = o.text("dataDir", false), o.text("outputDir", false), o.text("codeDir", false)
	j.virtualCluster = o.text("virtualCluster", false)
	j.retries = o.number("retryCount", 0, 0, func(n int) string {
		if n < always {
			return "it is the number of retries; write 0 or more, -1 to retry failures without limit, or -2 to restart after a success, too"
		}
		return ""
	})
	if j.retries == always {
		r.warn("retryCount -2 has no equivalent: the job restarts after each failure, without limit, but not after a success; use a Deployment for a service")
		j.retries = endless
	}
	j.env = o.variables("jobEnvs")
	j.extras = o.json("extras")
	seen := map[string]bool{}
	for _, v := range o.list("taskRoles", true) {
		t := r.role(v)
		if t == nil {
			continue
		}
		if seen[t.name] {
			r.fault(t.at, "two task roles have the name %q; rename one", t.name)
		}
		seen[t.name] = true
		j.roles = append(j.roles, t)
	}
	if v, ok := o.fields["taskRoles"]; ok && v.Value.Kind() == '[' && len(v.Value.(*hujson.Array).Elements) == 0 {
		r.fault(v.StartOffset, "taskRoles is empty; add at least one task role")
	}
	o.rest()
	return j
}

func (r *reader) role(v *hujson.Value) *role {
	o := r.object(v, "a task role")
	if o == nil {
		return nil
	}
	t := &role{at: v.StartOffset}
	t.name = o.named("name", roleName)
	o.what = "task role " + t.name
	t.tasks = o.number("taskNumber", required, 1, nil)
	t.cpu = o.number("cpuNumber", required, 1, nil)
	t.memory = o.number("memoryMB", required, leastMemory, nil)
	t.gpu = o.number("gpuNumber", required, 0, nil)
	t.shm = o.number("shmMB", usualShared, 1, nil)
	if at, said := o.at["shmMB"]; said && t.memory > 0 && t.shm > t.memory {
		r.fault(at, "%s: shmMB is %d and memoryMB %d: shared memory is part of the memory; raise memoryMB or lower shmMB", o.what, t.shm, t.memory)
	}
	t.command = o.text("command", true)
	count := func(n int) string {
		if n > t.tasks && t.tasks > 0 {
			return "the role has fewer tasks, so the number is never reached; write a number up to taskNumber, or null"
		}
		return ""
	}
	t.minFailed = o.numberOrNull("minFailedTaskCount", 1, count)
	t.minSucceeded = o.numberOrNull("minSucceededTaskCount", never, count)
	t.reported = completionRules{orNull(t.minFailed), orNull(t.minSucceeded), strconv.Itoa(t.shm)}
	seen := map[string]bool{}
	for _, v := range o.list("portList", false) {
		p := r.port(v)
		if seen[p.label] {
			r.fault(p.at, "%s: two ports have the label %q; rename one", o.what, p.label)
		}
		seen[p.label] = true
		for _, other := range t.ports {
			if p.begin > 0 && other.begin > 0 && p.begin < other.begin+other.number && other.begin < p.begin+p.number {
				r.fault(p.at, "%s: the ports %s and %s both contain %d; change one of them, or write beginAt: 0 to have any port",
					o.what, other.label, p.label, max(p.begin, other.begin))
			}
		}
		t.ports = append(t.ports, p)
	}
	for _, label := range []string{"http", "ssh"} { // OpenPAI defined these ports for each task
		if !seen[label] {
			t.ports = append(t.ports, portType{label: label, number: 1, at: t.at})
		}
	}
	o.rest()
	return t
}

func (r *reader) port(v *hujson.Value) portType {
	p := portType{at: v.StartOffset}
	o := r.object(v, "a port")
	if o == nil {
		return p
	}
	p.label = o.named("label", roleName)
	o.what = "port " + p.label
	p.begin = o.number("beginAt", required, 0, nil)
	p.number = o.number("portNumber", required, 1, nil)
	if p.begin+p.number-1 > mostPort {
		r.fault(p.at, "%s: %d ports from %d exceed the highest port, %d; lower beginAt or portNumber", o.what, p.number, p.begin, mostPort)
	}
	o.rest()
	return p
}
