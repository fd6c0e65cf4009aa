package jobspec

// Names of annotations and labels. Users write all of them except status and undo.
const (
	prefix = "stager.dev/"

	AnnotationPlan        = prefix + "plan"       // configmap:NAME of a ConfigMap with the plan under plan.yaml
	AnnotationPlanYAML    = prefix + "plan-yaml"  // the plan itself
	AnnotationInput       = prefix + "in."        // followed by a name: URL -> PATH ? key=value&…
	AnnotationOutput      = prefix + "out."       // followed by a name: PATH -> URL ? key=value&…
	AnnotationContainers  = prefix + "containers" // containers that use the data; default: the first
	AnnotationFinalize    = prefix + "finalize"   // auto, sidecar, wrap or run
	AnnotationGate        = prefix + "gate"       // init, startup or none
	AnnotationCount       = prefix + "count"      // number of pods that share the data, if the object does not define it
	AnnotationImage       = prefix + "image"      // image of the injected containers
	AnnotationCPU         = prefix + "cpu"        // CPU request of each injected container
	AnnotationMemory      = prefix + "memory"     // memory request of each, without RAM disks
	AnnotationCPULimit    = prefix + "cpu-limit"
	AnnotationMemoryLimit = prefix + "memory-limit" // without RAM disks
	AnnotationPrivileges  = prefix + "privileges"   // files: stager may read files that only root or their owner may read
	AnnotationStatus      = prefix + "status"       // written by Inject: v1;sha256:…
	AnnotationUndo        = prefix + "undo"         // written by Inject: the data for Uninject

	LabelInject = prefix + "inject" // "true": the webhook injects the pod; "false": the template is never injected
)

// Names of the injected containers.
const (
	ContainerSidecar  = "stager"          // native sidecar: windows and outputs
	ContainerPrefetch = "stager-prefetch" // init container: fetches or checks the data that the job needs at its start
	ContainerInstall  = "stager-install"  // init container: installs the binary for wrap
)

// How outputs are saved when the job ends.
const (
	// FinalizeAuto selects FinalizeWrap for a plan with a required output if there is one target
	// container and its command is known. Otherwise it selects FinalizeSidecar, with a warning if
	// an output is required.
	FinalizeAuto    = "auto"
	FinalizeSidecar = "sidecar" // a sidecar saves them; outputs are lost if it is down when the job's container ends
	FinalizeWrap    = "wrap"    // a sidecar saves them; stager, as the parent of the job's command, waits for it before the container ends
	FinalizeRun     = "run"     // stager saves them in the job's container, as the parent of its command, with the stores' Secrets
)

// What delays the start of the job until its data are available.
const (
	GateInit    = "init"    // an init container: for prefetched inputs and the sources of windows
	GateStartup = "startup" // the sidecar's startupProbe: for the same, and the first files of windows
	GateNone    = "none"    // nothing: all inputs are fetched while the job runs
)

// PrivilegesFiles runs stager as root, with the capabilities to read and link the files of other
// users. Without it stager has no capabilities.
const PrivilegesFiles = "files"

// Levels of the Pod Security Standards.
const (
	Privileged = "privileged"
	Baseline   = "baseline"
	Restricted = "restricted"
)

// DefaultImage is the default image of the injected containers.
const DefaultImage = "stager"

// Options are the settings of [Inject] that the file does not contain.
type Options struct {
	// Plan is the StagePlan of pod templates whose annotations name none.
	Plan []byte
	// PlanName is the origin of Plan, for messages.
	PlanName string
	// ConfigMap returns the plan of a ConfigMap that is not in the file; nil: there are none. It
	// must be safe for concurrent use.
	ConfigMap func(namespace, name string) (plan []byte, ok bool)
	// CheckURL returns an error for an invalid URL, as backends.Registry.Check does; nil: every URL
	// is valid.
	CheckURL func(string) error
	// CheckDestination is CheckURL for URLs that are written to, as
	// backends.Registry.CheckDestination is; nil: CheckURL.
	CheckDestination func(string) error

	Image           string            // of stager; "": DefaultImage
	NoImage         func()            // called when a container gets DefaultImage; may be nil
	ImagePullPolicy string            // "": the cluster's default
	Env             map[string]string // variables of stager's containers, such as proxies and endpoints
	Listen          string            // address of the metrics port in the pod, such as :9090

	// Path is the path of pod templates, such as spec.tasks[].template, in objects whose structure
	// is ambiguous; "": find them by structure.
	Path string
	// Finalize and Gate are the defaults for templates whose annotations set none. If Gate is empty
	// too, it is GateStartup for a plan whose window has a minReady, and GateInit otherwise.
	Finalize, Gate string
	// AdjustMemory raises the job's memory limit by the size of a RAM disk that is charged to it.
	// Without it such a pod is refused if the limit is too low.
	AdjustMemory bool
	// PodSecurity is the Pod Security level that the namespace enforces; "": Privileged. Injected
	// parts meet Restricted, except in pods with [AnnotationPrivileges].
	PodSecurity string
	// Kubernetes is the version of the cluster, such as 1.31; "": a recent one.
	Kubernetes string
	// JobPolicies adds to Jobs without policies a podFailurePolicy based on stager's exit codes,
	// and podReplacementPolicy: Failed. It is meant for generated Jobs.
	JobPolicies bool
	// Admission is set by the webhook: the file is one Pod from the API server. A pod that was
	// injected before, by any program, stays as it is.
	Admission bool
	// Owner is, for Admission, the object that created the pod, as JSON. It defines the number of
	// pods. If it is nil, NoOwner is the reason. If either is set, a pod is refused if its plan
	// needs the number of pods and the number remains unknown.
	Owner   []byte
	NoOwner string
}

// Action is what Inject or Uninject did to a pod template or object.
type Action string

// The actions.
const (
	Injected  Action = "injected"
	Removed   Action = "removed"   // by Uninject, or because it no longer requests data
	Unchanged Action = "unchanged" // already up to date
	LeftAlone Action = "left alone"
)

// Object is the result for one object of a file, or for one of its pod templates.
type Object struct {
	Line     int    // in the file, from 1, of the start of the document
	Kind     string // such as Job
	Name     string
	Template string // path of the pod template, such as spec.template; "": the object has none
	Action   Action
	Reason   string   // why it was left alone
	Warnings []string // for the user
	// Unmatched lists annotations and labels that seem meant for stager and have no effect. They
	// are most likely typing errors, and the job would run without its data.
	Unmatched []string
}

// String returns the kind and name, such as "Job/train".
func (o Object) String() string {
	if o.Name == "" {
		return o.Kind
	}
	return o.Kind + "/" + o.Name
}

// Result is a changed file and what was done to each of its objects.
type Result struct {
	Output  []byte
	Objects []Object
}

// destinations returns CheckDestination or, without one, CheckURL.
func (o Options) destinations() func(string) error {
	if o.CheckDestination != nil {
		return o.CheckDestination
	}
	return o.CheckURL
}
