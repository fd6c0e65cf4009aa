package explain

import (
	"context"
	"time"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/stager/jobspec"
	"github.com/stager-dev/stager/stager/jobspec/pai"
)

// Config is what [Explain] is told beside the job.
type Config struct {
	Name   string // of the file
	File   []byte
	Inject jobspec.Options
	Pai    pai.Options // for jobs of OpenPAI

	// Open opens a store with the credentials of a Secret; nil: sizes are not learned by listing.
	Open func(ctx context.Context, url, secret string) (*backends.Store, error)
	// ListLimit is after how many objects of a source its listing is cut; 0: never.
	ListLimit int
	// Assume are sizes of inputs by their names, which then are not listed.
	Assume map[string]Size
	// Measure is how long to read from each store to measure it; 0: not at all.
	Measure  time.Duration
	Progress func(now string) // what is being done; may be nil

	NodeBandwidth  float64 // bytes per second of a node; 0: what was measured
	StoreBandwidth float64 // bytes per second of all pods together; 0: no limit
	StoreRequests  float64 // requests per second of all pods together; 0: no limit
	PodsPerNode    int     // pods that share a node; 0: one
	Pods           int     // how many pods there are, where the job does not say; 0: not known
	NodeDisk       int64   // bytes for ephemeral storage of a node; 0: not known
	NodeMemory     int64   // bytes of memory of a node; 0: not known

	Checkpoint  map[string]int64 // the largest checkpoint of an output; "": of all others
	Checkpoints int              // how many each pod saves; 0: one
	Kept        int              // checkpoints that the trainer keeps on its volume; 0: one
	Within      time.Duration    // in which the job is to begin; 0: any time
	Prices      *Prices          // nil: none
	Now         time.Time        // for {date}
}

// Explain reports on a job. Its error is of type [jobspec.Faults] when the job cannot be
// injected, and the context's when that ended; what is wrong with stores is in the report.
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

// explainer is the work on one job.
type explainer struct {
	Config
	report   *Report
	findings []Finding
	sizes    map[sizeKey]*size // of sources that have been learned
}

// left reports the objects that nothing is put into, and what has no effect.
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

// find adds a finding, once.
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

// work is a pod template and what is known of it.
type work struct {
	Pod
	d    *jobspec.Pod
	gets []int64 // requests for what one pod reads of each input, in one epoch
	rate float64 // bytes per second that were measured; 0: none
}

// directory is where an input or output lies.
func (p *work) directory(kind, name string) jobspec.Dir {
	for _, f := range p.d.Dirs {
		if f.Kind == kind && f.Name == name {
			return f
		}
	}
	return jobspec.Dir{}
}
