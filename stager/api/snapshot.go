package api

import (
	"time"

	"github.com/stager-dev/stager/stager/checkpoint"
	"github.com/stager-dev/stager/stager/download"
	"github.com/stager-dev/stager/window"
)

// Phase is the phase of a daemon's life.
type Phase string

// The phases, in order.
const (
	Starting Phase = "starting" // listing, and fetching what the trainer needs first
	Running  Phase = "running"  // every input is ready
	Draining Phase = "draining" // fetching has stopped; outputs are being saved
	Drained  Phase = "drained"  // outputs are saved; later ones will be, too
	Ended    Phase = "ended"
)

// Snapshot is the whole state at one moment.
type Snapshot struct {
	Version string              `json:"version"`
	Plan    string              `json:"plan"`
	Phase   Phase               `json:"phase"`
	Ready   bool                `json:"ready"`
	Waiting string              `json:"waiting,omitempty"` // what it waits for, while not ready
	Started time.Time           `json:"started"`
	Inputs  []Input             `json:"inputs,omitempty"`
	Outputs []checkpoint.Status `json:"outputs,omitempty"`
}

// Input is one input: a window or a prefetch.
type Input struct {
	Name     string             `json:"name"`
	Mode     string             `json:"mode"`
	Source   string             `json:"source"`
	Path     string             `json:"path"`
	Ready    bool               `json:"ready"`
	Listing  *int64             `json:"listing,omitempty"` // objects found so far, while the source of a window is being listed
	Window   *window.Status     `json:"window,omitempty"`
	Prefetch *download.Progress `json:"prefetch,omitempty"`
	Error    string             `json:"error,omitempty"`
}
