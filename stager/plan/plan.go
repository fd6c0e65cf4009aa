package plan

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/stager-dev/stager/stager/unpack"
)

// What a plan's file begins with.
const (
	APIVersion = "stager.dev/v1alpha1"
	Kind       = "StagePlan"
)

// StagePlan is what a job needs and leaves. A value from [Parse] is complete and
// consistent; marshalled and parsed again it is the same.
type StagePlan struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"`
	Metadata   Metadata `json:"metadata"`
	Spec       Spec     `json:"spec"`
}

// Metadata names the plan.
type Metadata struct {
	Name string `json:"name"`
}

// Spec is the plan itself.
type Spec struct {
	Shard        ShardSpec         `json:"shard"`
	NodeSelector map[string]string `json:"nodeSelector,omitempty"` // labels of the nodes that pods may run on
	Volumes      []Volume          `json:"volumes,omitempty"`
	Inputs       []Input           `json:"inputs,omitempty"`
	Outputs      []Output          `json:"outputs,omitempty"`
	Limits       Limits            `json:"limits"`
}

// How nodes learn their part; see [ShardSpec].
const (
	ShardAuto     = "auto"
	ShardNone     = "none"
	ShardExplicit = "explicit"
)

// ShardSpec says how the inputs are divided among nodes: by what the environment
// tells (auto), not at all (none), or as written here (explicit). Index and Count
// are numbers, or $NAME for one in the environment.
type ShardSpec struct {
	By    string `json:"by"`
	Index string `json:"index,omitempty"`
	Count string `json:"count,omitempty"`
}

// Volume is a disk of the pod.
type Volume struct {
	Name   string `json:"name"`
	Size   Bytes  `json:"size,omitzero"` // 0: not said
	Medium string `json:"medium"`        // disk, memory, claim:PVC, host:PATH or existing:VOLUME
}

// How an input is brought.
const (
	ModePrefetch = "prefetch" // all of it, before the job begins
	ModeWindow   = "window"   // a part that moves with its readers
)

// What becomes of archives.
const (
	UnpackNone = "none" // they are files
	UnpackAuto = "auto" // each becomes a directory, see unpack.Dir
)

// Input is a dataset and where it is to be.
type Input struct {
	Name        string      `json:"name"`
	Source      string      `json:"source,omitempty"`  // a URL, with placeholders
	Sources     []Source    `json:"sources,omitempty"` // or several, for an order by weights
	Path        string      `json:"path"`              // absolute, with placeholders
	Volume      string      `json:"volume,omitempty"`
	Mode        string      `json:"mode"`
	Window      *Window     `json:"window,omitempty"` // not nil exactly in ModeWindow
	Order       OrderSpec   `json:"order"`
	Index       string      `json:"index,omitempty"`   // what is in each shard; see Index and Aside
	Include     []string    `json:"include,omitempty"` // as in Filter
	Exclude     []string    `json:"exclude,omitempty"`
	Unpack      string      `json:"unpack"`            // none or auto
	Verify      string      `json:"verify"`            // auto: by whatever checksum the store tells
	Write       string      `json:"write,omitempty"`   // how large files get to the disk: auto, direct or buffered; "": auto
	MaxBytes    Bytes       `json:"maxBytes,omitzero"` // refuse a larger source; 0: any
	Optional    bool        `json:"optional"`          // a source without objects is no fault
	Credentials Credentials `json:"credentials,omitzero"`
}

// Room for what comes out of an archive, in multiples of its size. A file takes whole
// blocks, and in a tar one more of 512 bytes.
const (
	expandTar    = 2
	expandPacked = 4
	maxExpand    = 10_000
)

// UnpackedRoom is the room that a window keeps for the files of an archive while it
// arrives, in blocks; 0 for an object that stays a file.
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

// Source is one of several that an input is mixed of.
type Source struct {
	Source      string      `json:"source"`
	Weight      int         `json:"weight"` // its share, beside those of the others
	Index       string      `json:"index,omitempty"`
	Credentials Credentials `json:"credentials,omitzero"` // those of the input unless told
}

// From are the sources of an input, also where it is one.
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

// URLs are all that an input is read from, its list and indexes included.
func (in Input) URLs() (urls []string) {
	for _, s := range in.From() {
		urls = append(urls, s.Source, s.Index)
	}
	urls = append(urls, in.Order.List)
	return slices.DeleteFunc(urls, func(url string) bool { return !Aside(url) })
}

// When a file of the window may go.
const (
	ReleaseLease   = "lease"   // acknowledged
	ReleaseUnlink  = "unlink"  // deleted or moved to done/ by its reader
	ReleaseRolling = "rolling" // the oldest gives way to the next; no epoch ends
	ReleaseNever   = "never"   // one epoch comes and stays
)

// What of an epoch stays on the disk for the next one, which does not fetch it again.
const (
	ReuseNone = "none"
	ReuseFit  = "fit" // all that the next one wants, if all of it fits
	ReusePin  = "pin" // what the next one wants first, as much as there is room for
)

// LayoutStage puts the files of a window into ready/, claimed/ and done/ below its
// path, under names in delivery order. (A prefetch keeps the source's names.)
const LayoutStage = "stage"

// Window says how much of an input is there at a time.
type Window struct {
	Size   Bytes  `json:"size"`            // all files together never exceed it
	Items  string `json:"items,omitempty"` // what a lease hands out; "": ItemsFiles
	Bundle Bytes  `json:"bundle,omitzero"` // ItemsBundles: the room of one
	// Expand is, with UnpackAuto, for how many times the size of an archive there is room for
	// its files; 0: expandTar of a plain tar, expandPacked of others.
	Expand       int      `json:"expand,omitempty"`
	Release      string   `json:"release"`
	MinAge       Duration `json:"minAge,omitzero"` // rolling: how long a file stays at least
	MinReady     MinReady `json:"minReady,omitzero"`
	MinFree      Bytes    `json:"minFree,omitzero"`      // left alone on a disk shared with others
	LeaseTimeout Duration `json:"leaseTimeout,omitzero"` // of leases that no connection holds; 0: the window's default
	AnyOrder     bool     `json:"anyOrder,omitzero"`     // lease: give what is ready; false: wait for what comes first in the order
	Reuse        string   `json:"reuse,omitempty"`       // lease, unlink: what stays from epoch to epoch; "": ReuseNone
	Groups       int      `json:"groups,omitzero"`       // lease: so many groups of readers get every shard each; 0: all share them
	OnBad        string   `json:"onBad,omitempty"`       // what becomes of a position that cannot be delivered; "": BadFail
	Layout       string   `json:"layout"`
	Parallel     int      `json:"parallel,omitzero"` // files on their way at once; 0: the window's default
}

// MinReady is how much must be there before the input counts as ready. It is ready
// when both are reached, or the whole input is there.
type MinReady struct {
	Files int   `json:"files,omitzero"`
	Bytes Bytes `json:"bytes,omitzero"`
}

// What becomes of a position that cannot be delivered: its object changed, is gone, does not
// match its checksum, or was refused by readers three times.
const (
	BadFail  = "fail"  // the input fails
	BadSkip  = "skip"  // it is left out and listed, and the exit code is 76 at the end
	BadAllow = "allow" // it is left out and listed
)

// In which order the objects of an input come; see [Order].
const (
	ByName   = "name"
	ByList   = "list"
	Shuffle  = "shuffle"
	ByBlock  = "block"
	Balanced = "balanced"
	Weighted = "weighted"
)

// OrderSpec is the order of an input's objects and how often they come.
type OrderSpec struct {
	By         string `json:"by"`
	Seed       int64  `json:"seed,omitzero"`
	Epochs     int    `json:"epochs"`              // 0: without end
	List       string `json:"list,omitempty"`      // ByList: the names, one a line; see Aside
	Block      int    `json:"block,omitzero"`      // ByBlock: shards
	Candidates int    `json:"candidates,omitzero"` // Balanced: among so many each is chosen
	Over       int    `json:"over,omitzero"`       // Balanced: samples whose mix is to be that of all; 0: DefaultOver shards' worth
	Within     string `json:"within,omitempty"`    // Weighted: the order of each source, ByName or Shuffle; "": Shuffle
	Equalize   string `json:"equalize,omitempty"`  // how the nodes' parts are made equal; "": EqualizeNone
}

// Credentials names the Secret that opens a store. In a pod it is mounted below
// SecretsDir; where it is not, the environment is asked, as each protocol does.
type Credentials struct {
	Secret string `json:"secret,omitempty"`
}

// Variable is the name of the variable in which a command finds the directory of an
// input or output; kind is INPUT or OUTPUT.
func Variable(kind, name string) string {
	return "STAGER_" + kind + "_" + strings.ToUpper(strings.NewReplacer("-", "_", ".", "_").Replace(name))
}

// Parts of a plan, for pods in which an init container brings what the job needs whole
// and a sidecar all the rest.
const (
	PartAll      = "all"
	PartPrefetch = "only" // the inputs of ModePrefetch; of others, whether their sources are there
	PartRest     = "skip" // all but these
)

// Part is a plan of a part of p alone.
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

// SecretsDir is where pods find the Secrets of a plan, each in a directory of its name.
const SecretsDir = "/run/stager/secrets"

// How an output is published.
const (
	CommitCheckpoint = "checkpoint" // step by step, each whole or not there
	CommitNone       = "none"       // file by file, as they settle
)

// When an output is sent.
const (
	WhenChange   = "change"
	WhenInterval = "interval"
	WhenExit     = "exit"
	WhenSuccess  = "success" // at an exit with code 0
	WhenFailure  = "failure" // at an exit with another
)

// What is done about something that is at the destination already.
const (
	ConflictFail      = "fail"
	ConflictOverwrite = "overwrite"
	ConflictSuffix    = "attempt-suffix"
)

// Output is a directory of results and where they go.
type Output struct {
	Name        string   `json:"name"`
	Path        string   `json:"path"` // absolute, with placeholders
	Volume      string   `json:"volume,omitempty"`
	Destination string   `json:"destination"` // a URL, with placeholders
	Commit      string   `json:"commit"`
	When        []string `json:"when"`
	Interval    Duration `json:"interval,omitzero"` // between two passes of WhenInterval
	QuietPeriod Duration `json:"quietPeriod"`       // unchanged for so long is finished
	Step        string   `json:"step,omitempty"`    // what numbers checkpoints; empty: StepAuto
	Hold        *Hold    `json:"hold,omitempty"`    // what is held of checkpoints that are not complete; nil: DefaultHold
	Keep        Keep     `json:"keep,omitzero"`
	Nodes       string   `json:"nodes,omitempty"` // all: a step is whole when each node brought its part; empty: each node's is whole
	Conflict    string   `json:"conflict"`
	Required    bool     `json:"required"` // the job fails if this is not safe
	Deadline    Duration `json:"deadline"` // for the last upload
	// MinBandwidth is how many bytes per second its destination takes at least. Deadline,
	// where it is left out, follows from it and from the size of the output's volume.
	MinBandwidth Bytes       `json:"minBandwidth,omitzero"`
	Credentials  Credentials `json:"credentials,omitzero"`
}

// Caution is what its user should know of an output, though it can be carried out; ""
// is nothing.
func (o Output) Caution() string {
	if o.Deadline < o.QuietPeriod {
		return fmt.Sprintf("its deadline of %s ends before what was written last has been unchanged for %s (quietPeriod): what nobody signed, by a marker, a commit or an exit with 0, is not saved; make the deadline longer", o.Deadline, o.QuietPeriod)
	}
	return ""
}

// What numbers the checkpoints of an output.
const (
	StepAuto = "auto" // the number in the name; the time of writing where there is none, as in last.pt
	StepName = "name" // the number in the name; others are mirrored as plain files
	StepTime = "time" // the time of writing, in milliseconds since 1970
)

// Hold bounds what is held of checkpoints that are not complete, so that a trainer which
// keeps few may remove them.
type Hold struct {
	Checkpoints int `json:"checkpoints"` // at once; 0: none
	Percent     int `json:"percent"`     // of the free space of the output's volume
}

// DefaultHold is what holds without a Hold.
var DefaultHold = Hold{Checkpoints: 2, Percent: 25}

// Keep says which checkpoints stay at the destination.
type Keep struct {
	Last   int    `json:"last,omitzero"`    // the newest so many; 0: all
	Every  int64  `json:"every,omitzero"`   // and those whose step it divides
	Best   int    `json:"best,omitzero"`    // and so many with the best metric
	Metric string `json:"metric,omitempty"` // as the checkpoint's marker calls it
	Mode   string `json:"mode,omitempty"`   // of the metric: BestLowest or BestHighest; empty: the lowest
}

// Which value of a metric is the best.
const (
	BestLowest  = "lowest"
	BestHighest = "highest"
)

// NodesAll makes the parts of all nodes one step.
const NodesAll = "all"

// Limits hold for the stores of the plan.
type Limits struct {
	Bandwidth   Bytes `json:"bandwidth,omitzero"`   // bytes per second of all stores together; 0: none
	Connections int   `json:"connections,omitzero"` // requests at once to each store; 0: what suits it
	// Uploads is who has the network and the processors while readers wait for an input and
	// outputs are to be saved; "": WindowFirst.
	Uploads string `json:"uploads,omitempty"`
}

// Whom Limits.Uploads favours.
const (
	WindowFirst   = "window-first" // feeding: saving has a trickle
	BalancedShare = "balanced"     // nobody: saving moves as many bytes as feeding
	DeadlineShare = "deadline"     // feeding, as far as checkpoints are in the store before the next one is expected
)
