package explain

// Report is what is known of a job before it runs. Sizes are in bytes, times in seconds. Its
// JSON names are stable: fields may be added.
type Report struct {
	File     string   `json:"file"`
	Format   string   `json:"format"` // kubernetes, openpai-1 or openpai-2
	Verdict  Verdict  `json:"verdict"`
	Pods     []Pod    `json:"pods"`               // one for each pod template that stager is put into
	Stores   []Store  `json:"stores"`             // one for each input and output of each pod template
	Total    Total    `json:"total"`              // of all pods
	Warnings []string `json:"warnings,omitempty"` // of the conversion of an OpenPAI job
	Left     []Left   `json:"leftAlone,omitempty"`
}

// Left is an object that nothing is put into.
type Left struct {
	Object    string   `json:"object"`
	Line      int      `json:"line"`
	Reason    string   `json:"reason"`
	Unmatched []string `json:"unmatched,omitempty"` // annotations or labels without effect
}

// States of a verdict.
const (
	Fits    = "fits"
	Unknown = "unknown" // something that decides is not known
	Fails   = "does not fit"
)

// Verdict is whether the job will find room and time.
type Verdict struct {
	State    string    `json:"state"`          // fits, unknown or "does not fit"
	Kind     Kind      `json:"kind,omitempty"` // of the most important finding
	ExitCode int       `json:"exitCode"`       // of the command; its caller sets it
	Findings []Finding `json:"findings"`       // why, most important first; empty: it fits
}

// Kind is what a finding is about, most important first.
type Kind string

// The kinds of findings.
const (
	MissingSource Kind = "missing-source" // there is no object
	Forbidden     Kind = "permission"     // a store refuses to list
	Unreachable   Kind = "unreachable"    // a store does not answer
	NoSpace       Kind = "no-space"       // bytes do not fit, or are not asked for
	BadLimit      Kind = "limit"          // a limit, of time above all, that cannot be kept
	NoEffect      Kind = "no-effect"      // annotations or labels that nobody reads
	NotKnown      Kind = "not-known"      // something that decides is not known
)

// kinds are all of them, most important first.
var kinds = []Kind{MissingSource, Forbidden, Unreachable, NoSpace, BadLimit, NoEffect, NotKnown}

// Finding is one thing that does not suffice, or is not known.
type Finding struct {
	Kind   Kind   `json:"kind"`
	Name   string `json:"name"` // of the check, such as volume, ephemeral-storage, memory, deadline
	Object string `json:"object,omitempty"`
	Text   string `json:"text"`
	Has    int64  `json:"has,omitempty"`   // bytes or seconds that there are
	Needs  int64  `json:"needs,omitempty"` // bytes or seconds that are needed
	Add    string `json:"add,omitempty"`   // what to write, and where
	Line   int    `json:"line,omitempty"`  // of the file
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
	Sharing  int      `json:"sharing"` // among how many pods inputs are divided; 1: each takes all, 0: unknown
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

// Part is one thing that is put in.
type Part struct {
	Kind      string   `json:"kind"`
	Name      string   `json:"name,omitempty"`
	Container string   `json:"container,omitempty"`
	For       []string `json:"for,omitempty"`
	Reason    string   `json:"reason"`
	Value     string   `json:"value,omitempty"`
}

// Input is what one pod takes, in each run. Where pods share an input, sizes are those of the
// pod that takes most.
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
	// SizeFrom says how sizes are known: listed, assumed, plan (at most so much), or unknown.
	SizeFrom string `json:"sizeFrom"`
	AtLeast  bool   `json:"atLeast"` // the listing was cut: there may be more
	Epochs   int    `json:"epochs"`  // 0: without end
	OnDisk   int64  `json:"onDiskBytes"`
	PodTakes int64  `json:"podBytes"`   // of the pod that takes most, in one epoch
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
	OnDisk      int64  `json:"onDiskBytes"`     // with one being saved while the next is written
	Deadline    int64  `json:"deadlineSeconds"`
	Upload      int64  `json:"uploadSeconds"` // of the largest checkpoint; 0: unknown
}

// Volume is one volume of the pod and what lies on it.
type Volume struct {
	Name   string   `json:"name"`
	Medium string   `json:"medium"`
	Own    bool     `json:"injected"`
	Limit  int64    `json:"limitBytes"` // 0: none
	Needs  int64    `json:"needsBytes"` // as far as it is known
	Known  bool     `json:"known"`      // Needs is all
	For    []string `json:"for"`
}

// Budget is what a pod asks for, or may take; 0 is nothing or none.
type Budget struct {
	Memory int64 `json:"memoryBytes"`
	Disk   int64 `json:"ephemeralStorageBytes"`
}

// Staging is how long a pod waits for its data.
type Staging struct {
	Seconds   float64 `json:"seconds"`   // until the job's container begins, when all pods of atOnce begin together
	Bytes     int64   `json:"bytes"`     // that one pod waits for
	LimitedBy string  `json:"limitedBy"` // node, plan, store or requests
	AtLeast   bool    `json:"atLeast"`
}

// Store is what an input or output asks of its store, over all pods.
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

// Requests are numbers of requests by their kind.
type Requests struct {
	List int64 `json:"list"`
	Get  int64 `json:"get"`
	Put  int64 `json:"put"`
}

// Total is that of all pods.
type Total struct {
	Pods     int      `json:"pods"` // 0: unknown
	Requests Requests `json:"requests"`
	Egress   int64    `json:"egressBytes"`
	Ingress  int64    `json:"ingressBytes"`
	Cost     *float64 `json:"cost,omitempty"`
	Currency string   `json:"currency,omitempty"`
	AtLeast  bool     `json:"atLeast"` // something is not known
}
