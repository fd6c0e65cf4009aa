package pai

import "github.com/tailscale/hujson"

// job is a job as its file says it. What the file leaves out has OpenPAI's default.
type job struct {
	name, image, authFile           string
	dataDir, outputDir, codeDir     string
	virtualCluster, gpuType, extras string // extras is JSON
	roles                           []*role
	retries                         int  // endless, or so many
	second                          bool // it is of the second format
	env                             []variable
	at                              map[string]int // where fields are
}

// endless is the retryCount of a job that is tried again for ever.
const endless = -1

// role is a task role.
type role struct {
	name, image             string // image: its own, in the second format
	tasks                   int
	cpu, memory, gpu, shm   int // memory and shm in MiB, as OpenPAI took its MB
	ports                   []portType
	command                 string
	minFailed, minSucceeded int // never, or so many tasks
	at                      int
}

// never is a count of tasks that decides nothing: null in the file.
const never = 0

// portType is a label and how many ports it has.
type portType struct {
	label         string
	begin, number int // begin 0: anywhere
	at            int
}

// variable is one of the environment. A field is what Kubernetes fills in.
type variable struct{ name, value, field string }

// limits of OpenPAI.
const (
	leastMemory = 100 // MiB
	usualShared = 64  // MiB
	mostPort    = 65535
)

// readJob reads a job; what is wrong with it is in the reader afterwards.
func (r *reader) job(root *hujson.Value) *job {
	o := r.object(root, "the job")
	if o == nil {
		return nil
	}
	j := &job{at: o.at}
	if at, ok := o.at["protocolVersion"]; ok {
		r.fault(at, "this is a job of OpenPAI's second format as JSON; write it as YAML, with protocolVersion in a line of its own")
		return nil
	}
	j.name = o.named("jobName", jobName)
	j.image = o.text("image", true)
	j.authFile, j.gpuType = o.text("authFile", false), o.text("gpuType", false)
	j.dataDir, j.outputDir, j.codeDir = o.text("dataDir", false), o.text("outputDir", false), o.text("codeDir", false)
	j.virtualCluster = o.text("virtualCluster", false)
	j.retries = o.number("retryCount", 0, 0, func(n int) string {
		switch {
		case n == -2:
			return "-2 tries again by the kind of failure, which Kubernetes cannot tell; write how often, or -1 for ever"
		case n < endless:
			return "it is how often the job is tried again: 0 or more, or -1 for ever"
		}
		return ""
	})
	j.env = o.variables("jobEnvs")
	j.extras = o.json("extras")
	seen := map[string]bool{}
	for _, v := range o.list("taskRoles", true) {
		t := r.role(v)
		if t == nil {
			continue
		}
		if seen[t.name] {
			r.fault(t.at, "two task roles are called %q; give each a name of its own", t.name)
		}
		seen[t.name] = true
		j.roles = append(j.roles, t)
	}
	if v, ok := o.fields["taskRoles"]; ok && v.Value.Kind() == '[' && len(v.Value.(*hujson.Array).Elements) == 0 {
		r.fault(v.StartOffset, "taskRoles is empty; a job has one task role at least")
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
			return "there are fewer tasks, so it would never be reached; write a number up to taskNumber, or null"
		}
		return ""
	}
	t.minFailed = o.numberOrNull("minFailedTaskCount", 1, count)
	t.minSucceeded = o.numberOrNull("minSucceededTaskCount", never, count)
	seen := map[string]bool{}
	for _, v := range o.list("portList", false) {
		p := r.port(v)
		if seen[p.label] {
			r.fault(p.at, "%s: two ports have the label %q; give each its own", o.what, p.label)
		}
		seen[p.label] = true
		for _, other := range t.ports {
			if p.begin > 0 && other.begin > 0 && p.begin < other.begin+other.number && other.begin < p.begin+p.number {
				r.fault(p.at, "%s: the ports %s and %s both begin at %d or reach it; move one of them, or let it begin at 0, which is anywhere",
					o.what, other.label, p.label, max(p.begin, other.begin))
			}
		}
		t.ports = append(t.ports, p)
	}
	for _, label := range []string{"http", "ssh"} { // OpenPAI gave each task these
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
		r.fault(p.at, "%s: %d ports from %d on pass %d, the last there is", o.what, p.number, p.begin, mostPort)
	}
	o.rest()
	return p
}
