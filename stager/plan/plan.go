package plan

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/stager-dev/stager/stager/unpack"
)

// Values of the first fields of a plan.
const (
	APIVersion = "stager.dev/v1alpha1"
	Kind       = "StagePlan"
)

// StagePlan lists what a job needs and produces. A value returned by [Parse] is complete and
// consistent; marshalled and parsed again it is the same.
type StagePlan struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"`
	Metadata   Metadata `json:"metadata"`
	Spec       Spec     `json:"spec"`
}

// Metadata contains the name of the plan.
type Metadata struct {
	Name string `json:"name"`
}

// Spec contains everything but the name.
type Spec struct {
	Shard        ShardSpec         `json:"shard"`
	NodeSelector map[string]string `json:"nodeSelector,omitempty"` // labels of nodes that pods may run on
	Volumes      []Volume          `json:"volumes,omitempty"`
	Inputs       []Input           `json:"inputs,omitempty"`
	Outputs      []Output          `json:"outputs,omitempty"`
	Limits       Limits            `json:"limits"`
}

// How nodes get their partition; see [ShardSpec].
const (
	ShardAuto     = "auto"
	ShardNone     = "none"
	ShardExplicit = "explicit"
)

// ShardSpec divides the inputs among nodes: by the environment (auto), not at all (none), or as
// given here (explicit). Index and Count are numbers, or $NAME for an environment variable.
type ShardSpec struct {
	By    string `json:"by"`
	Index string `json:"index,omitempty"`
	Count string `json:"count,omitempty"`
}

// Volume is a disk of the pod.
type Volume struct {
	Name   string `json:"name"`
	Size   Bytes  `json:"size,omitzero"` // 0: unknown
	Medium string `json:"medium"`        // disk, memory, claim:PVC, host:PATH or existing:VOLUME
}

// How an input is fetched.
const (
	ModePrefetch = "prefetch" // all of it, before the job begins
	ModeWindow   = "window"   // a part at a time, following its readers
)

// How archives are handled.
const (
	UnpackNone = "none" // they stay files
	UnpackAuto = "auto" // each becomes a directory, see unpack.Dir
)

// Input is a dataset and its local path.
type Input struct {
	Name        string      `json:"name"`
	Source      string      `json:"source,omitempty"`  // URL, with placeholders
	Sources     []Source    `json:"sources,omitempty"` // several sources, for an order by weights
	Path        string      `json:"path"`              // absolute, with placeholders
	Volume      string      `json:"volume,omitempty"`
	Mode        string      `json:"mode"`
	Window      *Window     `json:"window,omitempty"` // set exactly in ModeWindow
	Order       OrderSpec   `json:"order"`
	Index       string      `json:"index,omitempty"`   // metadata of each shard; see Index and Aside
	Include     []string    `json:"include,omitempty"` // as in Filter
	Exclude     []string    `json:"exclude,omitempty"`
	Unpack      string      `json:"unpack"`            // none or auto
	Verify      string      `json:"verify"`            // auto: by any checksum that the store reports
	Write       string      `json:"write,omitempty"`   // how large files are written: auto, direct or buffered; "": auto
	MaxBytes    Bytes       `json:"maxBytes,omitzero"` // refuse a larger source; 0: no limit
	Optional    bool        `json:"optional"`          // a source without objects is not an error
	Credentials Credentials `json:"credentials,omitzero"`
}

// Room for the contents of an archive, as a multiple of its size. A file occupies whole blocks, and
// in a tar one more block of 512 bytes.
const (
	expandTar    = 2
	expandPacked = 4
	maxExpand    = 10_000
)

// UnpackedRoom returns the room that a window reserves for the files of an archive while it
// arrives, in multiples of block. It returns 0 for an object that stays a file.
func (in Input) UnpackedRoom(key string, size, block int64) int64 {
	_, format := unpack.Dir(key)
	if format == "" || in.Unpack != UnpackAuto || in.Window == nil {
		return 0
	}
	times := int64(in.Window.Expand)
	switch {
	case times > 0:
	case format == unpack.Tar:
		times = expandTar
	default:
		times = expandPacked
	}
	if size > math.MaxInt64/times-block {
		return math.MaxInt64 / block * block
	}
	return max(1, (size*times+block-1)/block) * block
}

// Source is one of several sources of an input.
type Source struct {
	Source      string      `json:"source"`
	Weight      int         `json:"weight"` // share relative to the other sources
	Index       string      `json:"index,omitempty"`
	Credentials Credentials `json:"credentials,omitzero"` // default: those of the input
}

// From returns the sources of an input, also if there is only one.
func (in Input) From() []Source {
	if len(in.Sources) == 0 {
		return []Source{{in.Source, 1, in.Index, in.Credentials}}
	}
	from := slices.Clone(in.Sources)
	for i := range from {
		from[i].Credentials = cmp.Or(from[i].Credentials, in.Credentials)
	}
	return from
}

// URLs returns all URLs that an input reads from, including its list and indexes.
func (in Input) URLs() (urls []string) {
	for _, s := range in.From() {
		urls = append(urls, s.Source, s.Index)
	}
	urls = append(urls, in.Order.List)
	return slices.DeleteFunc(urls, func(url string) bool { return !Aside(url) })
}

// When a file of the window may be removed.
const (
	ReleaseLease   = "lease"   // when it is acknowledged
	ReleaseUnlink  = "unlink"  // when its reader deletes it or moves it to done/
	ReleaseRolling = "rolling" // the oldest is replaced by the next; there are no epochs
	ReleaseNever   = "never"   // never; there is one epoch
)

// Which files of an epoch stay on disk for the next one, which need not fetch them again.
const (
	ReuseNone = "none"
	ReuseFit  = "fit" // all that the next epoch needs, if all of it fits
	ReusePin  = "pin" // what the next epoch needs first, as far as there is room
)

// LayoutStage puts the files of a window into ready/, claimed/ and done/ below its path. Their
// names sort in delivery order. (A prefetch keeps the source's names.)
const LayoutStage = "stage"

// Window limits how much of an input is on disk at a time.
type Window struct {
	Size   Bytes  `json:"size"`            // bound for all files together
	Items  string `json:"items,omitempty"` // what one lease is for; "": ItemsFiles
	Bundle Bytes  `json:"bundle,omitzero"` // ItemsBundles: room of one bundle
	// Expand is the room for the files of an archive with UnpackAuto, as a multiple of its size; 0:
	// expandTar for a plain tar, expandPacked for others.
	Expand       int      `json:"expand,omitempty"`
	Release      string   `json:"release"`
	MinAge       Duration `json:"minAge,omitzero"` // rolling: minimum time that a file stays
	MinReady     MinReady `json:"minReady,omitzero"`
	MinFree      Bytes    `json:"minFree,omitzero"`      // free space to leave on a shared disk
	LeaseTimeout Duration `json:"leaseTimeout,omitzero"` // of leases that are not bound to a connection; 0: the window's default
	AnyOrder     bool     `json:"anyOrder,omitzero"`     // lease: any ready file; false: strictly in order
	Reuse        string   `json:"reuse,omitempty"`       // lease, unlink: which files stay for the next epoch; "": ReuseNone
	Groups       int      `json:"groups,omitzero"`       // lease: reader groups, each of which gets every shard; 0: all readers share them
	OnBad        string   `json:"onBad,omitempty"`       // policy for a position that cannot be delivered; "": BadFail
	Layout       string   `json:"layout"`
	Parallel     int      `json:"parallel,omitzero"` // files fetched concurrently; 0: the window's default
}

// MinReady is how much must be on disk before the input is ready. The input is ready when both
// limits are reached, or when the whole input is there.
type MinReady struct {
	Files int   `json:"files,omitzero"`
	Bytes Bytes `json:"bytes,omitzero"`
}

// What happens to a position that cannot be delivered: its object changed, was removed, does not
// match its checksum, or was refused by readers three times.
const (
	BadFail  = "fail"  // the input fails
	BadSkip  = "skip"  // it is omitted and listed, and the exit code at the end is 76
	BadAllow = "allow" // it is omitted and listed
)

// Orders of an input's objects; see [Order].
const (
	ByName   = "name"
	ByList   = "list"
	Shuffle  = "shuffle"
	ByBlock  = "block"
	Balanced = "balanced"
	Weighted = "weighted"
)

// OrderSpec is the order of an input's objects and the number of epochs.
type OrderSpec struct {
	By         string `json:"by"`
	Seed       int64  `json:"seed,omitzero"`
	Epochs     int    `json:"epochs"`              // 0: unlimited
	List       string `json:"list,omitempty"`      // ByList: names, one per line; see Aside
	Block      int    `json:"block,omitzero"`      // ByBlock: shards in a block
	Candidates int    `json:"candidates,omitzero"` // Balanced: number of candidates for each choice
	Over       int    `json:"over,omitzero"`       // Balanced: samples whose mix matches that of all; 0: DefaultOver shards
	Within     string `json:"within,omitempty"`    // Weighted: order within each source, ByName or Shuffle; "": Shuffle
	Equalize   string `json:"equalize,omitempty"`  // how the nodes' parts are made equal; "": EqualizeNone
}

// Credentials names the Secret for a store. In a pod it is mounted below SecretsDir. If it is not
// mounted, the credentials come from the environment, as each protocol defines.
type Credentials struct {
	Secret string `json:"secret,omitempty"`
}

// Variable returns the name of the environment variable with the directory of an input or output.
// kind is INPUT or OUTPUT.
func Variable(kind, name string) string {
	return "STAGER_" + kind + "_" + strings.ToUpper(strings.NewReplacer("-", "_", ".", "_").Replace(name))
}

// Parts of a plan, for pods in which an init container runs the prefetches and a sidecar the rest.
const (
	PartAll      = "all"
	PartPrefetch = "only" // inputs of ModePrefetch; of others, only whether their sources exist
	PartRest     = "skip" // all others
)

// Part returns a plan with only one part of p.
func (p *StagePlan) Part(part string) *StagePlan {
	out := *p
	if part == PartAll {
		return &out
	}
	out.Spec.Inputs = nil
	for _, in := range p.Spec.Inputs {
		if part == PartPrefetch || in.Mode != ModePrefetch {
			out.Spec.Inputs = append(out.Spec.Inputs, in)
		}
	}
	if part == PartPrefetch {
		out.Spec.Outputs = nil
	}
	return &out
}

// SecretsDir contains a plan's Secrets in a pod, each in a directory with its name.
const SecretsDir = "/run/stager/secrets"

// How an output is published.
const (
	CommitCheckpoint = "checkpoint" // step by step, each atomically
	CommitNone       = "none"       // file by file, each after its quiet period
)

// When an output is uploaded.
const (
	WhenChange   = "change"
	WhenInterval = "interval"
	WhenExit     = "exit"
	WhenSuccess  = "success" // exit code 0
	WhenFailure  = "failure" // another exit code
)

// What happens if the destination already has a different object.
const (
	ConflictFail      = "fail"
	ConflictOverwrite = "overwrite"
	ConflictSuffix    = "attempt-suffix"
)

// Output is a directory of results and its destination.
type Output struct {
	Name        string   `json:"name"`
	Path        string   `json:"path"` // absolute, with placeholders
	Volume      string   `json:"volume,omitempty"`
	Destination string   `json:"destination"` // URL, with placeholders
	Commit      string   `json:"commit"`
	When        []string `json:"when"`
	Interval    Duration `json:"interval,omitzero"` // between two uploads of WhenInterval
	QuietPeriod Duration `json:"quietPeriod"`       // a file that is unchanged for so long is complete
	Step        string   `json:"step,omitempty"`    // how checkpoints are numbered; empty: StepAuto
	Hold        *Hold    `json:"hold,omitempty"`    // limits for incomplete checkpoints; nil: DefaultHold
	Keep        Keep     `json:"keep,omitzero"`
	Nodes       string   `json:"nodes,omitempty"` // all: a step needs the parts of all nodes; empty: each node has its own steps
	Conflict    string   `json:"conflict"`
	Required    bool     `json:"required"` // the job fails if this output is not saved
	Deadline    Duration `json:"deadline"` // for the last upload
	// MinBandwidth is the guaranteed bandwidth to the destination in bytes per second. The default
	// of Deadline follows from it and from the size of the output's volume.
	MinBandwidth Bytes       `json:"minBandwidth,omitzero"`
	Credentials  Credentials `json:"credentials,omitzero"`
}

// Caution returns a warning about an output that works but may surprise its user, or "".
func (o Output) Caution() string {
	if o.Deadline < o.QuietPeriod {
		return fmt.Sprintf("its deadline of %s ends before the last files have been unchanged for %s (quietPeriod): a checkpoint without a marker, a commit or an exit with 0 is not saved; use a longer deadline", o.Deadline, o.QuietPeriod)
	}
	return ""
}

// How the checkpoints of an output are numbered.
const (
	StepAuto = "auto" // number in the name, or else the modification time, as for last.pt
	StepName = "name" // number in the name; other files are mirrored as plain files
	StepTime = "time" // modification time, in milliseconds since 1970
)

// Hold limits what is retained of incomplete checkpoints, so that a trainer which keeps few may
// remove them.
type Hold struct {
	Checkpoints int `json:"checkpoints"` // number at a time; 0: none
	Percent     int `json:"percent"`     // share of the free space of the output's volume
}

// DefaultHold is used without a Hold.
var DefaultHold = Hold{Checkpoints: 2, Percent: 25}

// Keep selects the checkpoints that stay at the destination.
type Keep struct {
	Last   int    `json:"last,omitzero"`    // number of newest checkpoints; 0: all
	Every  int64  `json:"every,omitzero"`   // also those whose step is a multiple
	Best   int    `json:"best,omitzero"`    // also that many with the best metric
	Metric string `json:"metric,omitempty"` // name in the checkpoint's marker
	Mode   string `json:"mode,omitempty"`   // of the metric: BestLowest or BestHighest; empty: BestLowest
}

// Which value of a metric is best.
const (
	BestLowest  = "lowest"
	BestHighest = "highest"
)

// NodesAll combines the parts of all nodes to one step.
const NodesAll = "all"

// Limits apply to the stores of the plan.
type Limits struct {
	Bandwidth   Bytes `json:"bandwidth,omitzero"`   // bytes per second of all stores together; 0: no limit
	Connections int   `json:"connections,omitzero"` // concurrent requests to each store; 0: adapts to the store
	// Uploads is who has priority on the network and the processors while readers wait for an input
	// and outputs are to be saved; "": WindowFirst.
	Uploads string `json:"uploads,omitempty"`
}

// Values of Limits.Uploads.
const (
	WindowFirst   = "window-first" // feeding; saving has a minimum rate
	BalancedShare = "balanced"     // neither: saving moves as many bytes as feeding
	DeadlineShare = "deadline"     // feeding, as long as checkpoints are in the store before the next one is expected
)
