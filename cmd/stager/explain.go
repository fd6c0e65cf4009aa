package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/stager/explain"
	"github.com/stager-dev/stager/stager/jobspec"
)

type explainCmd struct {
	injecting
	converting
	reaching
	shape
	File string `arg:"" help:"Job to explain: Kubernetes manifests or an OpenPAI job; - reads standard input."`
	Plan string `help:"StagePlan for pod templates that name none." placeholder:"PLAN" env:"STAGER_INJECT_PLAN"`

	Offline   bool              `help:"Do not contact stores; take sizes from --assume and the plan."`
	ListLimit int               `help:"Stop listing a source after this many objects; 0 lists all." default:"1000000"`
	Assume    map[string]string `help:"Size of an input and its number of objects, such as train=2TB/2000. Repeatable." placeholder:"NAME=SIZE" mapsep:"none"`
	Pods      int               `help:"Number of pods, if the job does not define it." default:"0"`

	Bandwidth      rateFlag      `help:"Bandwidth of each node, such as 10Gbit/s or 1.2GB/s." placeholder:"RATE" env:"STAGER_NODE_BANDWIDTH" default:"0"`
	StoreBandwidth rateFlag      `help:"Bandwidth of a store, shared by all pods." placeholder:"RATE" default:"0"`
	StoreRequests  float64       `help:"Requests per second of a store, shared by all pods." placeholder:"N" default:"0"`
	Measure        bool          `help:"Read each source for 3 s to measure the bandwidth, unless --bandwidth is set."`
	Within         time.Duration `help:"Maximum staging time; 0 is unlimited." default:"0"`

	PodsPerNode    int      `help:"Pods per node." default:"1"`
	NodeDisk       sizeFlag `help:"Ephemeral storage of each node, such as 1.8TB." placeholder:"SIZE" default:"0"`
	NodeMemory     sizeFlag `help:"Memory of each node, such as 512Gi." placeholder:"SIZE" default:"0"`
	CheckpointSize []string `help:"Largest checkpoint of a pod, such as 20GB, or of one output, such as ckpt=20GB. Repeatable." placeholder:"[NAME=]SIZE" sep:"none"`
	Checkpoints    int      `help:"Checkpoints saved by each pod, for requests and prices." default:"1"`
	Kept           int      `help:"Checkpoints that the trainer keeps on its volume." default:"1"`
	Prices         string   `help:"Price file; see examples/s3.prices.yaml." placeholder:"FILE"`
}

// Help returns the detailed help.
func (explainCmd) Help() string {
	return `Reports before a job runs: what inject adds to its pods and why, where the data will be stored and how much there is, how long staging takes, which volume, request, limit, deadline or grace period is too small, and what the stores charge.

Lists the sources with the credentials of the environment or of --secrets, which has a directory for each Secret. Writes nothing, and reads no data without --measure.

Exit codes: 0 the job fits, 64 invalid job, 65 annotations without effect, 66 source missing, 69 store unreachable, 73 not enough space, 75 a needed value is unknown, 77 permission denied, 78 a deadline, grace period or --within cannot be met.

    stager explain job.yaml --bandwidth 10Gbit/s --checkpoint-size 20GB
    stager explain job.yaml --offline --assume train=2TB/2000 --bandwidth 10Gbit/s --checkpoint-size 20GB
    stager explain job.yaml --measure --within 15m -o json
    stager explain pai.yaml --storage data=s3://datasets/imagenet --prices examples/s3.prices.yaml`
}

// measureFor is how long --measure reads from a source.
const measureFor = 3 * time.Second

func (c explainCmd) Run(ctx context.Context, log *slog.Logger, to *console) error {
	cfg, err := c.config(log)
	if err != nil {
		return err
	}
	done := watchImage(&cfg.Inject, log)
	show := newSpinner(to, log)
	cfg.Progress = func(now string) { show.update(moving{Phase: now}) }
	report, err := explain.Explain(ctx, cfg)
	show.close()
	var faults jobspec.Faults
	if errors.As(err, &faults) {
		return &manifestError{cfg.Name, err}
	}
	if err != nil {
		return err
	}
	for _, w := range report.Warnings {
		log.Warn(w, "file", cfg.Name)
	}
	if len(report.Pods) == 0 {
		return &usageError{fmt.Errorf("%s: no pod template requests data; add annotations such as stager.dev/in.train, or use --plan", cfg.Name)}
	}
	report.Verdict.ExitCode = codeForVerdict(report.Verdict.Kind)
	if c.structured() {
		err = c.value(report)
	} else {
		err = report.Text(os.Stdout)
	}
	if err = done(err); err == nil && report.Verdict.ExitCode != exitOK {
		err = exitError(report.Verdict.ExitCode)
	}
	return err
}

// config reads the flags and the files that they name.
func (c explainCmd) config(log *slog.Logger) (cfg explain.Config, err error) {
	name, file, err := readNamed(c.File)
	if err != nil {
		return cfg, err
	}
	inject := c.injecting.options()
	inject.ConfigMap = jobspec.ConfigMaps(file)
	if c.Plan != "" {
		if _, inject.Plan, err = readNamed(c.Plan); err != nil {
			return cfg, err
		}
	}
	convert, err := c.converting.options()
	if err != nil {
		return cfg, err
	}
	cfg = explain.Config{
		Name: name, File: file, Inject: inject, Pai: convert, ListLimit: c.ListLimit, Pods: c.Pods,
		NodeBandwidth: float64(c.Bandwidth), StoreBandwidth: float64(c.StoreBandwidth), StoreRequests: c.StoreRequests, Within: c.Within,
		PodsPerNode: c.PodsPerNode, NodeDisk: int64(c.NodeDisk), NodeMemory: int64(c.NodeMemory), Checkpoints: c.Checkpoints, Kept: c.Kept, Now: time.Now(),
	}
	for flag, n := range map[string]int64{
		"--list-limit": int64(c.ListLimit), "--pods": int64(c.Pods), "--pods-per-node": int64(c.PodsPerNode), "--checkpoints": int64(c.Checkpoints),
		"--kept": int64(c.Kept), "--store-requests": int64(c.StoreRequests), "--within": int64(c.Within),
	} {
		if n < 0 {
			return cfg, &usageError{fmt.Errorf("%s must not be negative (got %d)", flag, n)}
		}
	}
	if c.Measure {
		if c.Offline {
			return cfg, &usageError{errors.New("--measure and --offline are mutually exclusive")}
		}
		cfg.Measure = measureFor
	}
	if !c.Offline {
		cfg.Open = func(ctx context.Context, url, secret string) (*backends.Store, error) {
			at := c.reaching
			if secret != "" && at.Secrets != "" {
				at.Secrets = filepath.Join(at.Secrets, secret)
			}
			return storing{reaching: at}.open(ctx, url, log)
		}
	}
	return cfg, c.sizes(&cfg)
}

// sizes parses the flags for prices and for sizes of inputs and checkpoints.
func (c explainCmd) sizes(cfg *explain.Config) error {
	cfg.Assume, cfg.Checkpoint = make(map[string]explain.Size), make(map[string]int64)
	for name, text := range c.Assume {
		size, err := explain.ParseSize(text)
		if err != nil {
			return &usageError{fmt.Errorf("--assume %s: %w", name, err)}
		}
		cfg.Assume[name] = size
	}
	for _, text := range c.CheckpointSize {
		name, size, named := strings.Cut(text, "=")
		if !named {
			name, size = "", text
		}
		n, err := explain.ParseBytes(size)
		if err != nil {
			return &usageError{fmt.Errorf("--checkpoint-size %s: %w", text, err)}
		}
		if n == 0 {
			return &usageError{fmt.Errorf("--checkpoint-size must be positive (got %s)", text)}
		}
		cfg.Checkpoint[name] = n
	}
	if c.Prices == "" {
		return nil
	}
	name, text, err := readNamed(c.Prices)
	if err != nil {
		return err
	}
	if cfg.Prices, err = explain.ParsePrices(text); err != nil {
		return &usageError{fmt.Errorf("%s: %w", name, err)}
	}
	return nil
}

// readNamed reads the file of a flag, or standard input.
func readNamed(path string) (name string, text []byte, err error) {
	if path == "-" {
		text, err = io.ReadAll(os.Stdin)
		return "standard input", text, err
	}
	text, err = os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil, &usageError{fmt.Errorf("%s does not exist", path)}
	}
	return path, text, err
}

// rateFlag is a number of bytes per second.
type rateFlag float64

// UnmarshalText parses a rate.
func (r *rateFlag) UnmarshalText(text []byte) error {
	rate, err := explain.ParseRate(string(text))
	*r = rateFlag(rate)
	return err
}

// sizeFlag is a number of bytes, also in decimal units as for disks: 1.8TB.
type sizeFlag int64

// UnmarshalText parses a size.
func (s *sizeFlag) UnmarshalText(text []byte) error {
	n, err := explain.ParseBytes(string(text))
	*s = sizeFlag(n)
	return err
}
