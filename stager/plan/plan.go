package plan

import (
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
	APIVersion string   `json:"apiVersion"` // version of this format
	Kind       string   `json:"kind"`       // kind of this document
	Metadata   Metadata `json:"metadata"`   // name of the plan
	Spec       Spec     `json:"spec"`       // everything but the name
}

// Metadata contains the name of the plan.
type Metadata struct {
	Name string `json:"name"` // name of the plan, and of the job in {job} unless STAGER_JOB is set
}

// Spec contains everything but the name.
type Spec struct {
	Shard        ShardSpec         `json:"shard"`                  // how the inputs are divided among nodes
	NodeSelector map[string]string `json:"nodeSelector,omitempty"` // labels of nodes that pods may run on
	Volumes      []Volume          `json:"volumes,omitempty"`      // disks of the pod
	Inputs       []Input           `json:"inputs,omitempty"`       // datasets to stage
	Outputs      []Output          `json:"outputs,omitempty"`      // directories to save
	Limits       Limits            `json:"limits"`                 // limits for all stores of the plan
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
	By    string `json:"by"`              // ShardAuto: by the environment; ShardNone: every node has everything; ShardExplicit: by index and count
	Index string `json:"index,omitempty"` // ShardExplicit: number of this node from 0, or $NAME for an environment variable
	Count string `json:"count,omitempty"` // ShardExplicit: number of nodes, or $NAME for an environment variable
}

// Volume is a disk of the pod.
type Volume struct {
	Name   string `json:"name"`          // name by which inputs and outputs refer to it
	Size   Bytes  `json:"size,omitzero"` // size of the volume; 0: unknown. Required in memory
	Medium string `json:"medium"`        // disk, memory, claim:PVC, host:PATH or existing:VOLUME
}

// How an input is fetched.
const (
	ModePrefetch = "prefetch" // all of it, before the job begins
	ModeWindow   = "window"   // a part at a time, following its readers
)

// How the files of a prefetch are laid out below its path.
const (
	LayoutKeys    = "keys"     // by their names at the source
	LayoutHFCache = "hf-cache" // as the cache of huggingface_hub, whole on each node
)

// How archives are handled.
const (
	UnpackNone = "none" // they stay files
	UnpackAuto = "auto" // each becomes a directory, see unpack.Dir
)

// Input is a dataset and its local path.
type Input struct {
	Name        string      `json:"name"`                 // name of the input
	Source      string      `json:"source,omitempty"`     // URL to read from, with placeholders such as {job}
	Sources     []Source    `json:"sources,omitempty"`    // several sources, for an order by weights
	Path        string      `json:"path"`                 // local directory, absolute, with placeholders
	Volume      string      `json:"volume,omitempty"`     // name of the volume with the path; in a pod, "" is a volume of its own
	Mode        string      `json:"mode"`                 // ModePrefetch: all of it before the job begins; ModeWindow: a part at a time, following its readers
	Window      *Window     `json:"window,omitempty"`     // limits of the window; with mode: window, and only then
	Order       OrderSpec   `json:"order"`                // order of the objects, and number of epochs
	Index       string      `json:"index,omitempty"`      // ModeWindow: metadata of each shard: key of an object at the source, or a URL
	Include     []string    `json:"include,omitempty"`    // only objects that match one of these patterns, such as *.tar or train/**/*.jpg
	Exclude     []string    `json:"exclude,omitempty"`    // no objects that match one of these patterns
	Layout      string      `json:"layout,omitempty"`     // ModePrefetch: LayoutKeys: the files have the names of the source; LayoutHFCache: the path is a cache of huggingface_hub (HF_HUB_CACHE) for an hf:// source, whole on each node; "": LayoutKeys
	Unpack      string      `json:"unpack"`               // UnpackNone: archives stay files; UnpackAuto: each becomes a directory
	Verify      string      `json:"verify"`               // auto: by any checksum that the store reports
	Write       string      `json:"write,omitempty"`      // how large files are written: auto, direct or buffered; "": auto
	MaxBytes    Bytes       `json:"maxBytes,omitzero"`    // refuse a larger source; 0: the size of the volume, or no limit
	Optional    bool        `json:"optional"`             // a source without objects is not an error
	Credentials Credentials `json:"credentials,omitzero"` // Secret for the store
}

// Whole reports whether each node gets all of the input, also if the nodes divide the others: a part
// of a model cannot be loaded.
func (in Input) Whole() bool { return in.Layout == LayoutHFCache }

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
	Source      string      `json:"source"`               // URL to read from, with placeholders
	Weight      int         `json:"weight"`               // share relative to the other sources, from 1 to 1000000
	Index       string      `json:"index,omitempty"`      // metadata of each shard: key of an object at the source, or a URL
	Credentials Credentials `json:"credentials,omitzero"` // default: those of the input
}

// From returns the sources of an input, also if there is only one.
func (in Input) From() []Source {
	if len(in.Sources) == 0 {
		return []Source{{in.Source, 1, in.Index, in.Credentials}}
	}
	from := slices.Clone(in.Sources)
	for i := range from {
		if from[i].Credentials.Secret == "" {
			from[i].Credentials = in.Credentials
		}
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
	Size   Bytes  `json:"size"`            // limit for all files together
	Items  string `json:"items,omitempty"` // what one lease is for: ItemsFiles, ItemsDirs or ItemsBundles; "": ItemsFiles
	Bundle Bytes  `json:"bundle,omitzero"` // ItemsBundles: room of one bundle
	// Expand is the room for the files of an archive with unpack: auto, as a multiple of its size; 0: 2
	// for a plain tar, 4 for others.
	Expand       int      `json:"expand,omitempty"`
	Release      string   `json:"release"`               // when a file may be removed; ReleaseLease: when it is acknowledged; ReleaseUnlink: when its reader deletes it or moves it to done/; ReleaseRolling: when the next replaces the oldest, without epochs; ReleaseNever: never, with one epoch
	MinAge       Duration `json:"minAge,omitzero"`       // ReleaseRolling: minimum time that a file stays
	MinReady     MinReady `json:"minReady,omitzero"`     // how much must be on disk before the input is ready
	MinFree      Bytes    `json:"minFree,omitzero"`      // free space to leave on a shared disk
	LeaseTimeout Duration `json:"leaseTimeout,omitzero"` // time limit of leases that are not bound to a connection; 0: the window's default
	AnyOrder     bool     `json:"anyOrder,omitzero"`     // ReleaseLease: any ready file; false: strictly in order
	Reuse        string   `json:"reuse,omitempty"`       // which files stay for the next epoch: ReuseNone; ReuseFit (all that it needs, if all of it fits); ReusePin (what it needs first); "": ReuseNone
	Groups       int      `json:"groups,omitzero"`       // ReleaseLease: number of reader groups, each of which gets every shard; 0: all readers share them
	OnBad        string   `json:"onBad,omitempty"`       // when a shard cannot be delivered: BadFail; BadSkip (omit it, and exit with 76 at the end); BadAllow (omit it); "": BadFail
	Layout       string   `json:"layout"`                // LayoutStage: ready/, claimed/ and done/ below the path
	Parallel     int      `json:"parallel,omitzero"`     // files fetched concurrently; 0: the window's default
}

// MinReady is how much must be on disk before the input is ready. The input is ready when both
// limits are reached, or when the whole input is there.
type MinReady struct {
	Files int   `json:"files,omitzero"` // number of files
	Bytes Bytes `json:"bytes,omitzero"` // their size
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
	By         string `json:"by"`                  // ByName, ByList, Shuffle, ByBlock, Balanced or Weighted
	Seed       int64  `json:"seed,omitzero"`       // seed of the shuffles; the same seed gives the same order
	Epochs     int    `json:"epochs"`              // number of epochs; 0: unlimited
	List       string `json:"list,omitempty"`      // ByList: object with the names, one per line: key of an object at the source, or a URL
	Block      int    `json:"block,omitzero"`      // ByBlock: shards in a block
	Candidates int    `json:"candidates,omitzero"` // Balanced: number of candidates for each choice
	Over       int    `json:"over,omitzero"`       // Balanced: number of samples whose mix matches that of all; 0: that of some shards
	Within     string `json:"within,omitempty"`    // Weighted: order within each source, ByName or Shuffle; "": Shuffle
	Equalize   string `json:"equalize,omitempty"`  // how the nodes' parts are made equal: EqualizeNone; EqualizeDrop (all end with the smallest); EqualizeWrap (smaller ones repeat their beginning); "": EqualizeNone
}

// Credentials names the Secret for a store. In a pod it is mounted below SecretsDir. If it is not
// mounted, the credentials come from the environment, as each protocol defines.
type Credentials struct {
	Secret string   `json:"secret,omitempty"` // name of a Secret; "": credentials of the environment
	Keys   []string `json:"keys,omitempty"`   // keys of the Secret that are mounted, and the names of the credentials that they are: KEY:NAME, such as akId:OSS_ACCESS_KEY_ID; empty: all, under their own names
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
	Name        string   `json:"name"`              // name of the output
	Path        string   `json:"path"`              // local directory, absolute, with placeholders
	Volume      string   `json:"volume,omitempty"`  // name of the volume with the path; in a pod, "" is a volume of its own
	Destination string   `json:"destination"`       // URL to write to, with placeholders
	Commit      string   `json:"commit"`            // CommitCheckpoint: step by step, each atomically; CommitNone: file by file, each after its quiet period
	When        []string `json:"when"`              // when to upload: on WhenChange, each WhenInterval, at the WhenExit of the job, only on WhenSuccess (exit code 0), or only on WhenFailure
	Interval    Duration `json:"interval,omitzero"` // time between two uploads of WhenInterval
	QuietPeriod Duration `json:"quietPeriod"`       // a file that is unchanged for so long is complete
	Step        string   `json:"step,omitempty"`    // how checkpoints are numbered; StepName: by the number in the name; StepTime: by the modification time; StepAuto: by the name, or else the time; "": StepAuto
	Hold        *Hold    `json:"hold,omitempty"`    // limits for incomplete checkpoints
	Keep        Keep     `json:"keep,omitzero"`     // which checkpoints stay at the destination
	Nodes       string   `json:"nodes,omitempty"`   // NodesAll: a step needs the parts of all nodes; "": each node has its own steps
	Conflict    string   `json:"conflict"`          // if the destination already has a different object: ConflictFail, ConflictOverwrite, or ConflictSuffix (a directory for each attempt)
	Required    bool     `json:"required"`          // the job fails if this output is not saved
	Deadline    Duration `json:"deadline"`          // time limit of the last upload
	// MinBandwidth is the guaranteed bandwidth to the destination in bytes per second. The default
	// of deadline follows from it and from the size of the output's volume.
	MinBandwidth Bytes       `json:"minBandwidth,omitzero"`
	Credentials  Credentials `json:"credentials,omitzero"` // Secret for the store
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
	Every  int64  `json:"every,omitzero"`   // also those whose step is a multiple of this
	Best   int    `json:"best,omitzero"`    // also this many with the best metric
	Metric string `json:"metric,omitempty"` // name of the metric in the checkpoint's marker
	Mode   string `json:"mode,omitempty"`   // which value of the metric is best: BestLowest or BestHighest; "": BestLowest
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
	// and outputs are to be saved: WindowFirst, BalancedShare or DeadlineShare; "": WindowFirst.
	Uploads string `json:"uploads,omitempty"`
}

// Values of Limits.Uploads.
const (
	WindowFirst   = "window-first" // feeding; saving has a minimum rate
	BalancedShare = "balanced"     // neither: saving moves as many bytes as feeding
	DeadlineShare = "deadline"     // feeding, as long as checkpoints are in the store before the next one is expected
)
