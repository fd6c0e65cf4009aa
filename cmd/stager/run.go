package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/time/rate"

	"github.com/stager-dev/stager/backends/all"
	"github.com/stager-dev/stager/stager"
	"github.com/stager-dev/stager/stager/plan"
	"github.com/stager-dev/stager/stager/preemption"
)

type runCmd struct {
	storing
	socket
	rehearsing
	shape
	File      string   `short:"f" help:"StagePlan file; - reads standard input." required:"" xor:"plan" placeholder:"PLAN" env:"STAGER_PLAN"`
	PlanYAML  string   `name:"plan-yaml" help:"StagePlan as a string instead of a file." required:"" xor:"plan" placeholder:"YAML"`
	Prefetch  string   `help:"Inputs of mode prefetch: all (fetch them alongside the rest), only (fetch them, check the other sources and exit) or skip (another container fetches them)." enum:"all,only,skip" default:"all"`
	Listen    string   `help:"Address for probes and metrics, such as :9090. Calls that change state need the token." placeholder:"ADDR"`
	Notice    string   `help:"Preemption notice: a file to watch for, or a URL to poll, such as http://169.254.169.254/latest/meta-data/spot/instance-action." placeholder:"PATH|URL"`
	AnyUser   bool     `help:"Let every user who can reach the socket use it, not only its owner and group."`
	TokenFile string   `help:"File with the token for --listen." placeholder:"FILE"`
	Command   []string `arg:"" optional:"" passthrough:"" help:"Command to run when the inputs are ready, after --."`
}

// Help returns the detailed help for both modes.
func (runCmd) Help() string {
	return `Without a command, stager is a sidecar: it serves until SIGTERM, then saves the outputs.

    stager run -f plan.yaml

With a command, it stages the inputs, runs the command, forwards signals and saves the outputs. It exits with the command's exit code, or with 75 if the command succeeded and required outputs are not saved.

    stager run -f plan.yaml -- python train.py
    stager run --dry-run -f plan.yaml          # check the plan, and print what it would do

SIGUSR1 starts saving while the command continues, as with sbatch --signal=B:USR1@600. The command finds the socket in STAGER_SOCKET and the directories in STAGER_INPUT_name and STAGER_OUTPUT_name.`
}

func (c runCmd) Run(ctx context.Context, log *slog.Logger) error {
	file, err := c.readPlan()
	if err != nil {
		return err
	}
	p, err := parsePlan(file)
	if err != nil {
		return fmt.Errorf("invalid plan %s:\n%w", c.planName(), err)
	}
	node, part, err := p.Spec.Shard.Resolve(os.Getenv)
	if err != nil {
		return err
	}
	vars := p.Vars(node, time.Now(), os.Getenv)
	if p, err = p.Expand(vars); err != nil {
		return err
	}
	p = p.Part(c.Prefetch)
	for _, out := range p.Spec.Outputs {
		if caution := out.Caution(); caution != "" {
			log.Warn("an output may lose its last checkpoint", "output", out.Name, "reason", caution)
		}
	}
	token, err := c.token()
	if err != nil {
		return err
	}
	child, err := c.child()
	if err != nil {
		return err
	}
	if c.Notice != "" {
		if err := preemption.Check(c.Notice); err != nil {
			return &usageError{err}
		}
	}
	if c.DryRun {
		return c.describe(p, child)
	}
	if err := onlyOnLinux(runtime.GOOS, "run", "it must know which files other processes have open; --dry-run checks the plan here, and prefetch, push and restore copy data"); err != nil {
		return err
	}
	attempt, _ := strconv.Atoi(vars["attempt"]) // an attempt that is not a number counts as the first
	job, _ := plan.JobIdentity(os.Getenv)
	opts := c.options(log)
	if opts.Secrets == "" {
		opts.Secrets = plan.SecretsDir
	}
	if n := p.Spec.Limits.Connections; n > 0 && opts.Connections == 0 {
		opts.Connections = n
	}
	if b := p.Spec.Limits.Bandwidth; b > 0 && opts.Bandwidth == nil {
		opts.Bandwidth = rate.NewLimiter(rate.Limit(b), bandwidthBurst)
	}
	d := stager.New(stager.Config{
		Plan: p, Shard: part, Node: node, Registry: all.Registry(), Options: opts, Attempt: attempt, Version: version,
		Job: job, Pod: podID(os.Getenv, vars["attempt"]),
		Socket: c.path(), AnyUser: c.AnyUser, Listen: c.Listen, Token: token, Log: log, Child: child, Preemption: c.Notice,
		Stage: c.Prefetch == plan.PartPrefetch,
	})
	stop := c.handOn(d)
	defer stop()
	lives, end := context.WithCancel(ctx)
	defer end()
	spareDaemonMemory()
	go spareIdleMemory(lives)
	return d.Run(ctx)
}

// podID identifies this run of a pod. With another ID the same volume belongs to another member of
// the job.
func podID(getenv func(string) string, attempt string) string {
	return strings.TrimSpace(getenv("STAGER_POD_UID") + " " + attempt)
}

// planName returns the name of the plan's file, for messages.
func (c runCmd) planName() string {
	switch c.File {
	case "":
		return "the text of --plan-yaml"
	case "-":
		return "standard input"
	}
	return c.File
}

func (c runCmd) readPlan() ([]byte, error) {
	switch {
	case c.File == "":
		return []byte(c.PlanYAML), nil
	case c.File == "-":
		return io.ReadAll(os.Stdin)
	}
	file, err := os.ReadFile(c.File)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &usageError{fmt.Errorf("the plan %s does not exist", c.File)}
	}
	return file, err
}

func (c runCmd) token() (string, error) {
	if c.TokenFile == "" {
		return "", nil
	}
	text, err := os.ReadFile(c.TokenFile)
	if errors.Is(err, fs.ErrNotExist) {
		return "", &usageError{fmt.Errorf("the token file %s does not exist", c.TokenFile)}
	}
	if err != nil {
		return "", err
	}
	token := strings.TrimSpace(string(text))
	if token == "" {
		return "", &usageError{fmt.Errorf("%s is empty; it must contain the token", c.TokenFile)}
	}
	return token, nil
}

// child returns the command, if there is one. A name without a slash is looked up now, not after
// hours of staging; a path may be among the inputs.
func (c runCmd) child() (*stager.Child, error) {
	command := c.Command
	if len(command) > 0 && command[0] == "--" {
		command = command[1:]
	} else if len(command) > 0 && strings.HasPrefix(command[0], "-") {
		return nil, &usageError{fmt.Errorf("unknown flag %s; put the command after --", command[0])}
	}
	if len(command) == 0 {
		return nil, nil
	}
	if !strings.Contains(command[0], "/") {
		if _, err := exec.LookPath(command[0]); err != nil {
			return nil, &usageError{fmt.Errorf("cannot start the command: %w", err)}
		}
	}
	return &stager.Child{Command: command}, nil
}

// handedOn returns the signals that are forwarded to the command. On a terminal both processes
// already receive Ctrl-C and Ctrl-\.
func handedOn() []os.Signal {
	signals := []os.Signal{syscall.SIGTERM, syscall.SIGHUP, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGCONT}
	if !isTerminal(os.Stdin) {
		signals = append(signals, syscall.SIGINT, syscall.SIGQUIT)
	}
	return signals
}

// handOn forwards signals to the daemon's command, and starts the drain at SIGUSR1.
func (c runCmd) handOn(d *stager.Daemon) (stop func()) {
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, handedOn()...)
	done := make(chan struct{})
	go func() {
		for {
			select {
			case s := <-signals:
				if s == syscall.SIGUSR1 {
					d.Drain(0)
				}
				d.Signal(s)
			case <-done:
				return
			}
		}
	}()
	return func() {
		signal.Stop(signals)
		close(done)
	}
}
