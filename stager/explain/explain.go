package explain

import (
	"context"
	"time"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/stager/jobspec"
	"github.com/stager-dev/stager/stager/jobspec/pai"
	"github.com/stager-dev/stager/stager/plan"
)

// Config configures [Explain].
type Config struct {
	Name   string // of the file
	File   []byte
	Inject jobspec.Options
	Pai    pai.Options // for OpenPAI jobs

	// Open opens a store with the credentials of a Secret. If it is nil, sources are not listed.
	Open func(ctx context.Context, url, secret string) (*backends.Store, error)
	// ListLimit is the number of objects after which the listing of a source stops; 0: never.
	ListLimit int
	// Assume maps names of inputs to their sizes. These inputs are not listed.
	Assume map[string]Size
	// Measure is how long to read from each store to measure its throughput; 0: do not measure.
	Measure  time.Duration
	Progress func(now string) // called with the current step; may be nil

	NodeBandwidth  float64 // bytes per second of a node; 0: the measured rate
	StoreBandwidth float64 // bytes per second of all pods together; 0: unlimited
	StoreRequests  float64 // requests per second of all pods together; 0: unlimited
	PodsPerNode    int     // pods that share a node; 0: one
	Pods           int     // number of pods if the job does not define it; 0: unknown
	NodeDisk       int64   // ephemeral storage of a node in bytes; 0: unknown
	NodeMemory     int64   // memory of a node in bytes; 0: unknown

	Checkpoint  map[string]int64 // largest checkpoint in bytes by output; "": all other outputs
	Checkpoints int              // checkpoints that each pod saves; 0: one
	Kept        int              // checkpoints that the trainer retains on its volume; 0: one
	Within      time.Duration    // deadline for the start of the job; 0: none
	Prices      *Prices          // nil: no costs
	Now         time.Time        // value of {date}
}

// Explain reports on a job. It returns [jobspec.Faults] if the job cannot be injected, and the
// context's error if ctx ended. Errors of stores are findings in the report.
func Explain(ctx context.Context, cfg Config) (*Report, error) {
	cfg.PodsPerNode, cfg.Checkpoints, cfg.Kept = max(cfg.PodsPerNode, 1), max(cfg.Checkpoints, 1), max(cfg.Kept, 1)
	j, err := readJob(cfg)
	if err != nil {
		return nil, err
	}
	e := &explainer{Config: cfg, report: &Report{File: cfg.Name, Format: j.format, Warnings: j.warnings}, sizes: make(map[sizeKey]*size)}
	e.left(j.result)
	for _, d := range j.pods {
		if err := e.pod(ctx, d); err != nil {
			return nil, err
		}
	}
	e.total()
	e.decide()
	return e.report, nil
}

// explainer reports on one job.
type explainer struct {
	Config
	report   *Report
	findings []Finding
	sizes    map[sizeKey]*size // cache of sources
}

// left reports the objects that are not injected, and annotations without effect.
func (e *explainer) left(result *jobspec.Result) {
	for _, o := range result.Objects {
		if o.Kind == "" {
			continue
		}
		if o.Action == jobspec.LeftAlone || o.Action == jobspec.Removed {
			e.report.Left = append(e.report.Left, Left{Object: o.String(), Line: o.Line, Reason: o.Reason, Unmatched: o.Unmatched})
		}
		for _, text := range o.Unmatched {
			e.find(Finding{Kind: NoEffect, Name: "annotations", Object: o.String(), Text: text, Line: o.Line})
		}
	}
}

// find adds a finding unless the report has it already.
func (e *explainer) find(f Finding) {
	for _, have := range e.findings {
		if have.Name == f.Name && have.Object == f.Object && have.Text == f.Text {
			return
		}
	}
	e.findings = append(e.findings, f)
}

func (e *explainer) progress(now string) {
	if e.Progress != nil {
		e.Progress(now)
	}
}

// pod reports on one pod template.
func (e *explainer) pod(ctx context.Context, d *jobspec.Pod) error {
	p := &work{Pod: Pod{
		Object: d.String(), Line: d.Line, Template: d.Template, Found: d.Found, Role: d.Role,
		Pods: d.Pods.Total, AtOnce: d.Pods.AtOnce, PodsNote: d.Pods.Why, Sharing: d.Sharing,
		Gate: d.Gate, Finalize: d.Finalize, Targets: d.Targets, Grace: d.Grace, Warnings: d.Warnings,
	}, d: d}
	if e.Pods > 0 && (p.Pods == 0 || d.Pods.Why != "") {
		p.Pods, p.AtOnce, p.PodsNote = e.Pods, e.Pods, "as --pods says"
	}
	for _, part := range d.Parts {
		p.Parts = append(p.Parts, Part(part))
	}
	for i := range d.Plan.Spec.Inputs {
		if err := e.input(ctx, p, i); err != nil {
			return err
		}
	}
	for _, out := range d.Plan.Spec.Outputs {
		e.output(p, out)
	}
	e.volumes(p)
	e.budgets(p)
	e.disk(p)
	e.memory(p)
	e.staging(p)
	e.uploads(p)
	e.report.Pods = append(e.report.Pods, p.Pod)
	return nil
}

// work is a pod template and its intermediate results.
type work struct {
	Pod
	d    *jobspec.Pod
	gets []int64 // requests of one pod for each input, in one epoch
	rate float64 // measured throughput in bytes per second; 0: none
}

// sharing returns the number of pods that divide an input; 0: unknown.
func (p *work) sharing(in plan.Input) int {
	if in.Whole() {
		return 1
	}
	return p.Sharing
}

// directory returns the directory of an input or output.
func (p *work) directory(kind, name string) jobspec.Dir {
	for _, f := range p.d.Dirs {
		if f.Kind == kind && f.Name == name {
			return f
		}
	}
	return jobspec.Dir{}
}
