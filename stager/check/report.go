package check

import (
	"errors"
	"fmt"
	"time"

	"github.com/stager-dev/stager/backends"
)

// Report is what a check found. Its JSON is stable.
type Report struct {
	Store        string       `json:"store"`
	Began        time.Time    `json:"began"`
	Seconds      float64      `json:"seconds"`
	ReadOnly     bool         `json:"readOnly"`          // nothing was written
	Refused      string       `json:"refused,omitempty"` // why not, where it was wanted
	Capabilities Capabilities `json:"facts"`
	Speed        Speed        `json:"speed"`
	Promises     []Promise    `json:"promises"`
	Left         string       `json:"left,omitempty"` // what could not be removed, and why
}

// State is what became of a promise.
type State string

// The states of promises.
const (
	Holds   State = "holds"
	Fails   State = "fails"
	Unknown State = "unknown" // not made by this store, or not to be told here
)

// Promise is one sentence of the contract.
type Promise struct {
	Area     string        `json:"area"`
	Sentence string        `json:"sentence"`
	State    State         `json:"state"`
	Found    []string      `json:"found,omitempty"` // complaints, or why it is unknown
	Means    string        `json:"means,omitempty"` // for prefetch, window and checkpoints
	Do       string        `json:"do,omitempty"`
	Kind     backends.Kind `json:"-"` // of the worst complaint
}

// Capabilities are what was learned about the store.
type Capabilities struct {
	AtomicReplace     bool     `json:"atomicReplace"`
	ConditionalCreate bool     `json:"conditionalCreate"`
	PinnedReads       bool     `json:"pinnedReads"`
	Checksum          string   `json:"checksum"`  // the algorithm that came with objects; "" when none did
	PartBytes         int64    `json:"partBytes"` // how large objects are cut
	MaxParts          int64    `json:"maxParts"`  // 0: any number
	Connections       int      `json:"connections"`
	LongestName       int      `json:"longestName,omitempty"`       // bytes of a part between "/", that worked
	LongestKey        int      `json:"longestKey,omitempty"`        // bytes of a key below the URL, that worked
	RefusedNames      []string `json:"refusedNames,omitempty"`      // odd ones that the store cannot hold
	ClockAheadSeconds *float64 `json:"clockAheadSeconds,omitempty"` // of this machine's; negative: behind
}

// Speed is what was measured; what was not is zero.
type Speed struct {
	One  Rate    `json:"one"`  // one request at a time
	Many Rate    `json:"many"` // as many as the store likes
	Tiny Rate    `json:"tiny"` // files of TinyBytes, or those that were there
	Stat Latency `json:"stat"`
}

// Rate is how fast bytes move.
type Rate struct {
	Requests  int     `json:"requests"`        // at once, at most
	FileBytes int64   `json:"fileBytes"`       // of each file, on average
	Write     float64 `json:"write,omitempty"` // bytes per second
	Read      float64 `json:"read,omitempty"`  // bytes per second
	// ReadCPU is how many of this machine's processors the process used meanwhile; 0:
	// not told.
	ReadCPU float64 `json:"readCPU,omitempty"`
}

// Latency is how long one small request takes.
type Latency struct {
	Requests int     `json:"requests"`
	Median   float64 `json:"medianSeconds"`
	Slowest  float64 `json:"slowestSeconds"`
}

// Count is how many promises are in a state.
func (r *Report) Count(s State) (n int) {
	for _, p := range r.Promises {
		if p.State == s {
			n++
		}
	}
	return n
}

// Err is nil when all holds that could be told and was asked for. Its kind is that of
// the worst that was found: Corrupt when bytes were wrong, Invalid when the store
// answers otherwise than it must.
func (r *Report) Err() error {
	kind := backends.Unknown
	var err error
	if n := r.Count(Fails); n > 0 {
		err = fmt.Errorf("of %d promises %d %s broken", len(r.Promises), n, map[bool]string{true: "is", false: "are"}[n == 1])
		for _, p := range r.Promises {
			if p.State == Fails {
				kind = worse(kind, p.Kind)
			}
		}
	}
	if r.Refused != "" {
		err = errors.Join(err, errors.New(r.Refused))
		kind = worse(kind, backends.Permission)
	}
	if r.Left != "" {
		err = errors.Join(err, errors.New(r.Left))
		kind = worse(kind, backends.Unknown)
	}
	if err == nil {
		return nil
	}
	return &backends.Error{Op: "check", Store: r.Store, Kind: kind, Err: err}
}
