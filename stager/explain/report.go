package explain

// Report describes a job before it runs. Sizes are in bytes, times in seconds. The JSON names are
// stable; fields may be added.
type Report struct {
	File     string   `json:"file"`
	Format   string   `json:"format"` // kubernetes, openpai-1 or openpai-2
	Verdict  Verdict  `json:"verdict"`
	Pods     []Pod    `json:"pods"`               // one for each injected pod template
	Stores   []Store  `json:"stores"`             // one for each input and output of each pod template
	Total    Total    `json:"total"`              // over all pods
	Warnings []string `json:"warnings,omitempty"` // from the conversion of an OpenPAI job
	Left     []Left   `json:"leftAlone,omitempty"`
}

// Left is an object that is not injected.
type Left struct {
	Object    string   `json:"object"`
	Line      int      `json:"line"`
	Reason    string   `json:"reason"`
	Unmatched []string `json:"unmatched,omitempty"` // annotations or labels without effect
}

// States of a verdict.
const (
	Fits    = "fits"
	Unknown = "unknown" // a value needed for the decision is unknown
	Fails   = "does not fit"
)

// Verdict reports whether the job has enough space and time.
type Verdict struct {
	State    string    `json:"state"`          // fits, unknown or "does not fit"
	Kind     Kind      `json:"kind,omitempty"` // of the most important finding
	ExitCode int       `json:"exitCode"`       // exit code of the command, set by the caller
	Findings []Finding `json:"findings"`       // reasons, most important first; empty if the job fits
}

// Kind is the category of a finding. The constants are in order of importance.
type Kind string

// The kinds of findings.
const (
	MissingSource Kind = "missing-source" // no object exists
	Forbidden     Kind = "permission"     // a store denies the listing
	Unreachable   Kind = "unreachable"    // a store is not reachable
	NoSpace       Kind = "no-space"       // bytes do not fit, or are not requested
	BadLimit      Kind = "limit"          // a limit, usually of time, that cannot be met
	NoEffect      Kind = "no-effect"      // annotations or labels that nothing reads
	NotKnown      Kind = "not-known"      // a value needed for the decision is unknown
)

// kinds lists all kinds, most important first.
var kinds = []Kind{MissingSource, Forbidden, Unreachable, NoSpace, BadLimit, NoEffect, NotKnown}

// Finding is one thing that is insufficient or unknown.
type Finding struct {
	Kind   Kind   `json:"kind"`
	Name   string `json:"name"` // of the check, such as volume, ephemeral-storage, memory, deadline
	Object string `json:"object,omitempty"`
	Text   string `json:"text"`
	Has    int64  `json:"has,omitempty"`   // available bytes or seconds
	Needs  int64  `json:"needs,omitempty"` // required bytes or seconds
	Add    string `json:"add,omitempty"`   // what to write, and where
	Line   int    `json:"line,omitempty"`  // in the file
}

// Pod is one pod template.
type Pod struct {
	Object   string   `json:"object"`
	Line     int      `json:"line"`
	Template string   `json:"template"`
	Found    string   `json:"found"`
	Role     string   `json:"role,omitempty"`
	Pods     int      `json:"pods"`   // 0: unknown
	AtOnce   int      `json:"atOnce"` // 0: unknown
	PodsNote string   `json:"podsNote,omitempty"`
	Sharing  int      `json:"sharing"` // number of pods that divide the inputs; 1: each reads all, 0: unknown
	Gate     string   `json:"gate"`
	Finalize string   `json:"finalize"`
	Targets  []string `json:"containers"`
	Parts    []Part   `json:"injected"`
	Inputs   []Input  `json:"inputs"`
	Outputs  []Output `json:"outputs"`
	Volumes  []Volume `json:"volumes"`
	Requests Budget   `json:"requests"` // of the whole pod
	Limits   Budget   `json:"limits"`   // 0: none
	Grace    int64    `json:"graceSeconds"`
	Staging  *Staging `json:"staging,omitempty"` // nil: no bandwidth, or unknown sizes
	Warnings []string `json:"warnings,omitempty"`
}

// Part is one injected part.
type Part struct {
	Kind      string   `json:"kind"`
	Name      string   `json:"name,omitempty"`
	Container string   `json:"container,omitempty"`
	For       []string `json:"for,omitempty"`
	Reason    string   `json:"reason"`
	Value     string   `json:"value,omitempty"`
}

// Input is what one pod reads in each run. If pods share an input, sizes are those of the pod with
// the largest part.
type Input struct {
	Name    string   `json:"name"`
	URLs    []string `json:"urls"`
	Mode    string   `json:"mode"` // prefetch or window
	Path    string   `json:"path"`
	Volume  string   `json:"volume"`
	Medium  string   `json:"medium"` // disk, memory, or the type of another volume
	Objects int64    `json:"objects"`
	Bytes   int64    `json:"bytes"`
	Largest int64    `json:"largestObjectBytes"`
	// SizeFrom is the origin of the size: listed, assumed, plan (an upper bound), or unknown.
	SizeFrom string `json:"sizeFrom"`
	AtLeast  bool   `json:"atLeast"` // the listing was cut, so there may be more
	Epochs   int    `json:"epochs"`  // 0: endless
	OnDisk   int64  `json:"onDiskBytes"`
	PodTakes int64  `json:"podBytes"`   // of the pod with the largest part, in one epoch
	PodItems int64  `json:"podObjects"` // likewise
	Window   int64  `json:"windowBytes,omitempty"`
	MinReady int64  `json:"minReadyBytes,omitempty"`
	Note     string `json:"note,omitempty"`
}

// Output is what one pod saves.
type Output struct {
	Name        string `json:"name"`
	Path        string `json:"path"`
	Destination string `json:"destination"`
	Volume      string `json:"volume"`
	Medium      string `json:"medium"`
	Checkpoint  int64  `json:"checkpointBytes"` // the largest; 0: unknown
	OnDisk      int64  `json:"onDiskBytes"`     // while one checkpoint is saved and the next is written
	Deadline    int64  `json:"deadlineSeconds"`
	Upload      int64  `json:"uploadSeconds"` // of the largest checkpoint; 0: unknown
}

// Volume is a volume of the pod and the data on it.
type Volume struct {
	Name   string   `json:"name"`
	Medium string   `json:"medium"`
	Own    bool     `json:"injected"`
	Limit  int64    `json:"limitBytes"` // 0: none
	Needs  int64    `json:"needsBytes"` // the known part
	Known  bool     `json:"known"`      // Needs is complete
	For    []string `json:"for"`
}

// Budget is the requests or the limits of a pod; 0: none.
type Budget struct {
	Memory int64 `json:"memoryBytes"`
	Disk   int64 `json:"ephemeralStorageBytes"`
}

// Staging is how long a pod waits for its data.
type Staging struct {
	Seconds   float64 `json:"seconds"`   // until the job's container starts, if all pods of atOnce start together
	Bytes     int64   `json:"bytes"`     // that one pod waits for
	LimitedBy string  `json:"limitedBy"` // node, plan, store or requests
	AtLeast   bool    `json:"atLeast"`
}

// Store is the load of an input or output on its store, over all pods.
type Store struct {
	Object   string   `json:"object"`
	Role     string   `json:"role,omitempty"`
	Name     string   `json:"name"` // of the input or output
	URL      string   `json:"url"`
	Requests Requests `json:"requests"`
	Egress   int64    `json:"egressBytes"`
	Ingress  int64    `json:"ingressBytes"`
	Cost     *float64 `json:"cost,omitempty"` // nil: no price
	AtLeast  bool     `json:"atLeast"`
	Note     string   `json:"note,omitempty"`
}

// Requests counts requests by kind.
type Requests struct {
	List int64 `json:"list"`
	Get  int64 `json:"get"`
	Put  int64 `json:"put"`
}

// Total is the sum over all pods.
type Total struct {
	Pods     int      `json:"pods"` // 0: unknown
	Requests Requests `json:"requests"`
	Egress   int64    `json:"egressBytes"`
	Ingress  int64    `json:"ingressBytes"`
	Cost     *float64 `json:"cost,omitempty"`
	Currency string   `json:"currency,omitempty"`
	AtLeast  bool     `json:"atLeast"` // a part is unknown
}
