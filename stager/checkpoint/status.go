package checkpoint

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Status is the state of an Uploader at one moment.
type Status struct {
	Output      string     `json:"output"`
	Dir         string     `json:"dir"`
	Destination string     `json:"destination"`
	Mode        Mode       `json:"mode"`
	Complete    *StepTime  `json:"complete,omitempty"`  // the newest complete local checkpoint that this process saw
	Committed   *StepTime  `json:"committed,omitempty"` // the newest in the store; without a time when an earlier process saved it
	LagSeconds  float64    `json:"lagSeconds"`          // how long the newest complete checkpoint has waited for its COMMIT
	Uploading   *Uploading `json:"uploading,omitempty"`
	Pending     []int64    `json:"pending,omitempty"` // complete and not yet in the store, newest first
	Waiting     []Waiting  `json:"waiting,omitempty"` // incomplete
	Failed      []Failed   `json:"failed,omitempty"`  // not retried in their current state
	Missed      []Waiting  `json:"missed,omitempty"`  // will not be committed, with the reason; the last 100
	Mirrored    Mirrored   `json:"mirrored"`
	NotSaved    []Omission `json:"notSaved,omitempty"` // files that cannot be mirrored, the first 100
	Blind       bool       `json:"blind,omitempty"`    // the kernel does not report writers: only sizes and times decide
	LastError   string     `json:"lastError,omitempty"`
	Nodes       string     `json:"nodes,omitempty"` // what this node waits for from others
	View        string     `json:"view,omitempty"`  // which nodes save together now
}

// StepTime is a step, the time of its state, and its completion evidence, as far as this process
// knows them.
type StepTime struct {
	Step        int64     `json:"step"`
	Time        time.Time `json:"time,omitzero"`
	Evidence    string    `json:"evidence,omitempty"`
	Provisional bool      `json:"provisional,omitempty"`
}

// Uploading is a checkpoint that is being uploaded.
type Uploading struct {
	Step           int64   `json:"step"`
	Files          int     `json:"files"`
	BytesDone      int64   `json:"bytesDone"`
	BytesTotal     int64   `json:"bytesTotal"`
	BytesPerSecond float64 `json:"bytesPerSecond"`
}

// Waiting is a directory or file that is not a complete checkpoint, with the reason.
type Waiting struct {
	Name   string `json:"name"`
	Reason string `json:"reason"`
}

// Failed is a checkpoint that is not in the store and will not be saved.
type Failed struct {
	Name   string `json:"name"`
	Step   int64  `json:"step"`
	Reason string `json:"reason"`
}

// Mirrored counts the plain files that were sent.
type Mirrored struct {
	Files int64 `json:"files"`
	Bytes int64 `json:"bytes"`
}

// Status returns the current state.
func (u *Uploader) Status() Status {
	u.mu.Lock()
	defer u.mu.Unlock()
	s := Status{
		Output: u.cfg.Output, Dir: u.cfg.Dir, Destination: u.cfg.Store.Name(), Mode: u.cfg.Mode,
		LagSeconds: u.lagLocked().Seconds(), Pending: u.pendingLocked(),
		Mirrored: u.plain.mirrored(), Blind: u.blind, LastError: u.lastError,
	}
	s.NotSaved = u.plain.notSaved()
	s.Missed = slices.Clone(u.results.missed)
	s.NotSaved = s.NotSaved[:min(len(s.NotSaved), 100)]
	if u.results.complete.Step >= 0 {
		at := u.results.complete
		s.Complete = &at
	}
	if u.results.committed.Step >= 0 {
		at := u.results.committed
		s.Committed = &at
	}
	if up := u.sending.now; up != nil {
		s.Uploading = &Uploading{
			Step: up.snap.Step, Files: len(up.snap.Files), BytesDone: up.done.Load(), BytesTotal: up.total, BytesPerSecond: up.rate(),
		}
	}
	for _, name := range slices.Sorted(maps.Keys(u.seen)) {
		if reason := u.seen[name].reason; reason != "" {
			s.Waiting = append(s.Waiting, Waiting{name, reason})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(u.halfWritten)) {
		s.Waiting = append(s.Waiting, Waiting{name, halfWritten})
	}
	if u.member != nil {
		s.Nodes, s.LastError = u.member.waitsFor(), cmp.Or(s.LastError, u.member.troubled())
		s.View = u.member.view()
	}
	for _, name := range slices.Sorted(maps.Keys(u.failed)) {
		f := u.failed[name]
		s.Failed = append(s.Failed, Failed{name, f.step, f.reason})
	}
	for _, step := range slices.Sorted(maps.Keys(u.snaps)) {
		if snap := u.snaps[step]; snap.refused != nil {
			s.Failed = append(s.Failed, Failed{snap.Name, step, snap.refused.Error()})
		}
	}
	return s
}

// pendingLocked returns the steps with a snapshot to send, newest first.
func (u *Uploader) pendingLocked() []int64 {
	var steps []int64
	for step, snap := range u.snaps {
		if snap.refused == nil {
			steps = append(steps, step)
		}
	}
	slices.SortFunc(steps, func(a, b int64) int { return newerFirst(u.snaps[a], u.snaps[b]) })
	return steps
}

// newerFirst orders snapshots by the time at which they were complete, newest first. The step
// number decides only between equal times: after a rollback, a newer checkpoint has a lower
// number.
func newerFirst(a, b *snapshot) int {
	return cmp.Or(b.Complete.Compare(a.Complete), cmp.Compare(b.Step, a.Step))
}

// lagLocked returns how long the oldest checkpoint has waited that is newer than all in the
// store.
func (u *Uploader) lagLocked() (lag time.Duration) {
	for _, snap := range u.snaps {
		if snap.Complete.After(u.results.upTo) {
			lag = max(lag, time.Since(snap.Complete))
		}
	}
	return lag
}

// Metrics counts uploads by output. All Uploaders of a process share one value.
type Metrics struct {
	lag                  *lags
	uploading            *prometheus.GaugeVec
	forecast, grace      *prometheus.GaugeVec
	missing              *prometheus.GaugeVec
	committed, failures  *prometheus.CounterVec
	provisional          *prometheus.CounterVec
	abandoned            *prometheus.CounterVec
	bytes, mirroredBytes *prometheus.CounterVec
	omitted              *prometheus.GaugeVec
	missed               *prometheus.CounterVec
	evidence             *prometheus.CounterVec
}

// NewMetrics registers the metrics. With nil, they are counted but not exported.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	gauge := func(name, help string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, []string{"output"})
	}
	counter := func(name, help string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{"output"})
	}
	m := &Metrics{
		lag: newLags(),
		uploading: gauge("stager_checkpoint_uploading_bytes",
			"Size of the checkpoint that is being uploaded; 0: none."),
		forecast: gauge("stager_checkpoint_forecast_seconds",
			"Expected upload time of a checkpoint like the last one. Above stager_checkpoint_grace_seconds: a checkpoint that is complete when the drain starts would be lost. The log also warns, at start and after each save."),
		grace: gauge("stager_checkpoint_grace_seconds", "The deadline of the output: how long its last upload may take."),
		committed: counter("stager_checkpoint_committed_total",
			"Checkpoints that exist in the store and are safe; a provisional one is counted when it becomes final."),
		provisional: counter("stager_checkpoint_provisional_total",
			"Checkpoints that were saved as provisional: no evidence proves that they are complete."),
		failures: counter("stager_checkpoint_failures_total",
			"Uploads that ended without a COMMIT. The log gives the reason, and whether they are retried."),
		missing: gauge("stager_checkpoint_missing_nodes",
			"Other nodes of the job that this one waits for, to begin or to finish a checkpoint."),
		abandoned: counter("stager_checkpoint_abandoned_total",
			"Checkpoints of several nodes that were announced and will not be committed."),
		bytes:         counter("stager_checkpoint_bytes_total", "Bytes of committed checkpoints."),
		mirroredBytes: counter("stager_checkpoint_mirrored_bytes_total", "Bytes of plain files that were uploaded."),
		omitted: gauge("stager_checkpoint_not_saved_files",
			"Files that cannot be saved. The log and the status name them with the reason. Above 0 at the end: exit code 75."),
	}
	m.evidence = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "stager_checkpoint_evidence_total", Help: "Committed checkpoints by the kind of evidence that they are complete: commit, marker, rename, sign, shape, structure or end; those of next and quiet are provisional at first.",
	}, []string{"output", "evidence"})
	m.missed = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "stager_checkpoint_missed_total", Help: "Checkpoints that will not be saved, by reason. removed: by the trainer, before they were complete; superseded: by newer ones; unusable: after a restart. The log and the status name them.",
	}, []string{"output", "reason"})
	if reg != nil {
		reg.MustRegister(m.lag, m.uploading, m.forecast, m.grace, m.missing, m.abandoned, m.committed, m.provisional, m.failures, m.bytes, m.mirroredBytes, m.omitted, m.missed, m.evidence)
	}
	return m
}

// countEvidence counts a committed checkpoint by the first word of its evidence.
func (m *Metrics) countEvidence(output, word string) {
	kind, _, _ := strings.Cut(word, " ")
	m.evidence.WithLabelValues(output, cmp.Or(kind, "none")).Inc()
}

// begin initializes the metrics of an output, so that they exist before the first event.
func (m *Metrics) begin(output string, grace time.Duration, lag func() time.Duration) {
	m.forecast.WithLabelValues(output).Set(0)
	m.omitted.WithLabelValues(output).Set(0)
	m.grace.WithLabelValues(output).Set(grace.Seconds())
	m.lag.report(output, lag)
	m.uploading.WithLabelValues(output).Set(0)
	m.missing.WithLabelValues(output).Set(0)
	for _, c := range []*prometheus.CounterVec{m.abandoned, m.committed, m.provisional, m.failures, m.bytes, m.mirroredBytes} {
		c.WithLabelValues(output).Add(0)
	}
	for _, reason := range []string{missedRemoved, missedSuperseded, missedUnusable} {
		m.missed.WithLabelValues(output, reason).Add(0)
	}
}
