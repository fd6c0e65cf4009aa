package check

import (
	"errors"
	"fmt"
	"time"

	"github.com/stager-dev/stager/backends"
)

// Report is the result of a check. Its JSON format is stable.
type Report struct {
	Store        string       `json:"store"`
	Began        time.Time    `json:"began"`
	Seconds      float64      `json:"seconds"`
	ReadOnly     bool         `json:"readOnly"`          // nothing was written
	Refused      string       `json:"refused,omitempty"` // why nothing was written, although it was requested
	Capabilities Capabilities `json:"facts"`
	Speed        Speed        `json:"speed"`
	Promises     []Promise    `json:"promises"`
	Left         string       `json:"left,omitempty"` // what could not be removed, and why
}

// State is the result for a promise.
type State string

// The states of promises.
const (
	Holds   State = "holds"
	Fails   State = "fails"
	Unknown State = "unknown" // the store does not make this promise, or it cannot be tested here
)

// Promise is one sentence of the contract.
type Promise struct {
	Area     string        `json:"area"`
	Sentence string        `json:"sentence"`
	State    State         `json:"state"`
	Found    []string      `json:"found,omitempty"` // failures, or why the state is unknown
	Means    string        `json:"means,omitempty"` // consequence for prefetch, window and checkpoints
	Do       string        `json:"do,omitempty"`
	Kind     backends.Kind `json:"-"` // of the worst failure

	cause string // see causeOf
}

// Capabilities are the properties found in the store.
type Capabilities struct {
	AtomicReplace     bool     `json:"atomicReplace"`
	ConditionalCreate bool     `json:"conditionalCreate"`
	PinnedReads       bool     `json:"pinnedReads"`
	Checksum          string   `json:"checksum"`  // algorithm reported with objects; "" if none was
	PartBytes         int64    `json:"partBytes"` // size of the parts of large objects
	MaxParts          int64    `json:"maxParts"`  // 0: no limit
	Connections       int      `json:"connections"`
	LongestName       int      `json:"longestName,omitempty"`       // in bytes, of an element between "/"
	LongestKey        int      `json:"longestKey,omitempty"`        // in bytes, below the URL
	RefusedNames      []string `json:"refusedNames,omitempty"`      // unusual names that the store cannot hold
	ClockAheadSeconds *float64 `json:"clockAheadSeconds,omitempty"` // relative to this machine's clock; negative: behind
}

// Speed contains the measurements; values not measured are zero.
type Speed struct {
	One  Rate    `json:"one"`  // one request at a time
	Many Rate    `json:"many"` // as many requests as suit the store
	Tiny Rate    `json:"tiny"` // files of TinyBytes, or existing small files
	Stat Latency `json:"stat"`
}

// Rate is a measured transfer rate.
type Rate struct {
	Requests  int     `json:"requests"`        // maximum number of concurrent requests
	FileBytes int64   `json:"fileBytes"`       // average size of a file
	Write     float64 `json:"write,omitempty"` // bytes per second
	Read      float64 `json:"read,omitempty"`  // bytes per second
	// ReadCPU is how many of this machine's processors the process used meanwhile; 0: unknown.
	ReadCPU float64 `json:"readCPU,omitempty"`
}

// Latency is the duration of one small request.
type Latency struct {
	Requests int     `json:"requests"`
	Median   float64 `json:"medianSeconds"`
	Slowest  float64 `json:"slowestSeconds"`
}

// Count returns the number of promises in a state.
func (r *Report) Count(s State) (n int) {
	for _, p := range r.Promises {
		if p.State == s {
			n++
		}
	}
	return n
}

// Err returns nil if every tested promise holds and everything requested was done. The kind of the
// error is the worst that was found: Corrupt for wrong bytes, Invalid for other violations of the
// contract.
func (r *Report) Err() error {
	kind := backends.Unknown
	var err error
	if n := r.Count(Fails); n > 0 {
		err = fmt.Errorf("%[2]d of %[1]d promises %[3]s broken%[4]s", len(r.Promises), n, map[bool]string{true: "is", false: "are"}[n == 1], r.cause())
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

// cause returns what broke several promises at once, as a part of a sentence: a request that the
// store always fails breaks most of them.
func (r *Report) cause() string {
	times := make(map[string]int)
	var most string
	for _, p := range r.Promises {
		if p.State != Fails || p.cause == "" {
			continue
		}
		if times[p.cause]++; times[p.cause] > times[most] {
			most = p.cause
		}
	}
	if times[most] < 2 {
		return ""
	}
	return fmt.Sprintf(", %d of them by one cause: %s", times[most], most)
}
