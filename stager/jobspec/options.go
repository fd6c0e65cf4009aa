package jobspec

// Annotations and names that users write and stager writes.
const (
	prefix = "stager.dev/"

	AnnotationPlan        = prefix + "plan"       // configmap:NAME, which has the plan under plan.yaml
	AnnotationPlanYAML    = prefix + "plan-yaml"  // the plan itself
	AnnotationInput       = prefix + "in."        // and a name: URL -> PATH ? key=value&…
	AnnotationOutput      = prefix + "out."       // and a name: PATH -> URL ? key=value&…
	AnnotationContainers  = prefix + "containers" // who works with the data; the first without it
	AnnotationFinalize    = prefix + "finalize"   // auto, sidecar, wrap or run
	AnnotationGate        = prefix + "gate"       // init, startup or none
	AnnotationCount       = prefix + "count"      // how many pods share the data, where the object does not tell
	AnnotationImage       = prefix + "image"      // of the containers that are put in
	AnnotationCPU         = prefix + "cpu"        // request of each
	AnnotationMemory      = prefix + "memory"     // request of each, without its RAM disks
	AnnotationCPULimit    = prefix + "cpu-limit"
	AnnotationMemoryLimit = prefix + "memory-limit" // without its RAM disks
	AnnotationPrivileges  = prefix + "privileges"   // files: stager reads files that only root, or their owner, may read
	AnnotationStatus      = prefix + "status"       // written: v1;sha256:…
	AnnotationUndo        = prefix + "undo"         // written: what Uninject needs

	LabelInject = prefix + "inject" // "true": webhooks look at it; "false": nobody does
)

// Names of the containers that are put in.
const (
	ContainerSidecar  = "stager"          // native sidecar: windows and outputs
	ContainerPrefetch = "stager-prefetch" // init container: brings or finds what must be there before the job begins
	ContainerInstall  = "stager-install"  // init container: brings the binary for wrap
)

// How outputs are saved at the end.
const (
	// FinalizeAuto is FinalizeWrap for a plan with a required output and one container whose
	// command is known, and FinalizeSidecar otherwise, with a warning if an output is required.
	FinalizeAuto    = "auto"
	FinalizeSidecar = "sidecar" // by a sidecar; when it is down at the end of the job's container, they are lost
	FinalizeWrap    = "wrap"    // by a sidecar, and the job's container does not end before: stager is the parent of its command
	FinalizeRun     = "run"     // by stager in the job's container, as the parent of its command and with the stores' Secrets
)

// What holds the job until its data are there.
const (
	GateInit    = "init"    // prefetched inputs, and the sources of windows, by an init container
	GateStartup = "startup" // these, and the first files of windows, by the sidecar's startupProbe
	GateNone    = "none"    // nothing: all inputs come while the job runs
)

// PrivilegesFiles has stager run as root with the capabilities to read and link the files of
// others. Without it stager has no capability.
const PrivilegesFiles = "files"

// Levels of the Pod Security Standards.
const (
	Privileged = "privileged"
	Baseline   = "baseline"
	Restricted = "restricted"
)

// DefaultImage is the image of the containers that are put in.
const DefaultImage = "stager"

// Options are what the caller of [Inject] knows and the file does not say.
type Options struct {
	// Plan is a StagePlan for the pod templates whose annotations name none.
	Plan []byte
	// PlanName is where Plan comes from, for messages.
	PlanName string
	// ConfigMap finds the plan of a ConfigMap that the file does not hold; nil: none.
	// It is called from several goroutines.
	ConfigMap func(namespace, name string) (plan []byte, ok bool)
	// CheckURL tells what is wrong with a URL, as backends.Registry.Check does; nil
	// takes all.
	CheckURL func(string) error

	Image           string            // of stager; DefaultImage without it
	ImagePullPolicy string            // "": as the cluster does
	Env             map[string]string // for stager's containers, such as proxies and endpoints
	Listen          string            // address of a port in the pod for metrics, such as :9090

	// Path is where pod templates are, such as spec.tasks[].template, in objects whose
	// structure does not show it; "": they are looked for.
	Path string
	// Finalize and Gate hold where annotations say nothing. Without a Gate it is
	// GateStartup when a window has a minReady, else GateInit.
	Finalize, Gate string
	// AdjustMemory raises the job's own memory limit for a RAM disk that is charged to
	// it, where it would be refused.
	AdjustMemory bool
	// PodSecurity is the level that the namespace enforces; Privileged without it. What is put
	// in meets Restricted, except where a pod has [AnnotationPrivileges].
	PodSecurity string
	// Kubernetes is the cluster's version, such as 1.31; without it it is new enough.
	Kubernetes string
	// JobPolicies gives Jobs that say nothing themselves a podFailurePolicy by stager's
	// exit codes, and podReplacementPolicy: Failed. For Jobs that a program generates.
	JobPolicies bool
	// Admission is for a webhook: the file is one Pod as the API server has it, and
	// one that has been injected before, by whomever, is left as it is.
	Admission bool
	// Owner is, for Admission, the object that created the pod, as JSON: it knows of how many
	// pods this is one. Nil: it is not known, and NoOwner says why. Where either is set, a pod
	// whose number of likes remains unknown is refused if its plan needs it.
	Owner   []byte
	NoOwner string
}

// Action is what was done about a pod template or object.
type Action string

// The actions.
const (
	Injected  Action = "injected"
	Removed   Action = "removed"   // by Uninject, or because it asks for nothing any more
	Unchanged Action = "unchanged" // it is as it should be
	LeftAlone Action = "left alone"
)

// Object is what was done about one object of a file, or one of its pod templates.
type Object struct {
	Line     int    // of the file, from 1, where its document begins
	Kind     string // such as Job
	Name     string
	Template string // path of the pod template, such as spec.template; "": the object has none
	Action   Action
	Reason   string   // why it was left alone
	Warnings []string // what its user should know
	// Unmatched is what was written for stager, or nearly so, and has no effect: most likely a
	// slip, after which the job would run without its data.
	Unmatched []string
}

// String is "Job/train".
func (o Object) String() string {
	if o.Name == "" {
		return o.Kind
	}
	return o.Kind + "/" + o.Name
}

// Result is a changed file and the story of it.
type Result struct {
	Output  []byte
	Objects []Object
}
