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
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/stager-dev/stager/stager/jobspec/pai"
	"github.com/stager-dev/stager/stager/plan"
)

type paiCmd struct {
	Convert paiConvertCmd `cmd:"" help:"Convert an OpenPAI job to Kubernetes manifests, or run one task locally."`
}

// Help refers to the help of the subcommand.
func (paiCmd) Help() string { return "See stager pai convert --help." }

// converting has the flags of all commands that read OpenPAI jobs.
type converting struct {
	DefaultFS   string            `name:"default-fs" help:"URL that replaces $PAI_DEFAULT_FS_URI, such as hdfs://namenode:8020." placeholder:"URL"`
	User        string            `help:"User who submits the job. Default: $USER." placeholder:"NAME" env:"STAGER_PAI_USER"`
	Data        string            `help:"How to pass dataDir and outputDir: stage (local directories, staged and saved) or uri (URLs in variables, as in OpenPAI)." enum:"stage,uri" default:"stage"`
	DataSize    quantity          `help:"Space in each pod for dataDir and for each staged storage, such as 80Gi." default:"0"`
	Queue       string            `help:"Kueue queue. Default: the job's virtualCluster; none disables Kueue." placeholder:"NAME"`
	GPUType     map[string]string `name:"gpu-type" help:"Node label for a gpuType. Repeatable." placeholder:"TYPE=LABEL=VALUE" mapsep:"none"`
	AuthFile    string            `help:"authFile with three lines: registry, user, password." placeholder:"FILE"`
	Storage     map[string]string `help:"URL to stage instead of an OpenPAI v2 storage. Default: the PersistentVolumeClaim of that name. Repeatable." placeholder:"NAME=URL" mapsep:"none"`
	ReadSecret  string            `help:"Secret with credentials for codeDir and dataDir." placeholder:"NAME"`
	WriteSecret string            `help:"Secret with credentials for outputDir." placeholder:"NAME"`

	ReadSecretKeys  []string `help:"Keys of --read-secret and the names of the credentials that they are. Default: all, under their own names." placeholder:"KEY:NAME,..."`
	WriteSecretKeys []string `help:"The same for --write-secret." placeholder:"KEY:NAME,..."`
}

// options returns the options of a conversion.
func (c converting) options() (pai.Options, error) {
	opts := pai.Options{
		User: c.User, DefaultFS: c.DefaultFS, Data: c.Data, DataSize: plan.Bytes(c.DataSize), Queue: c.Queue, GPUTypes: c.GPUType, Storages: c.Storage,
		ReadSecret: c.ReadSecret, WriteSecret: c.WriteSecret, ReadSecretKeys: c.ReadSecretKeys, WriteSecretKeys: c.WriteSecretKeys,
	}
	if opts.User == "" {
		opts.User = os.Getenv("USER")
	}
	if c.AuthFile != "" {
		var err error
		if opts.Registry, err = os.ReadFile(c.AuthFile); errors.Is(err, fs.ErrNotExist) {
			return opts, &usageError{fmt.Errorf("the authFile %s does not exist", c.AuthFile)}
		} else if err != nil {
			return opts, err
		}
	}
	return opts, nil
}

type paiConvertCmd struct {
	shape
	injecting
	converting
	storing
	socket
	File     string `arg:"" help:"OpenPAI job: v1 (JSON with comments) or v2 (YAML); - reads standard input."`
	RunLocal string `help:"Run this task locally instead." placeholder:"ROLE[/INDEX]"`
	Dir      string `help:"Working directory of the --run-local task. Default: ./pai-ROLE-INDEX." placeholder:"DIR"`
}

// Help returns the detailed help.
func (paiConvertCmd) Help() string {
	return `Reads an OpenPAI v1 or v2 job and prints an Indexed Job with its Service, or a JobSet if there are several task roles or retries, with stager injected. Commands find the same variables, ports and directories as in OpenPAI. Differences are reported as warnings.

    stager pai convert job.json --default-fs hdfs://namenode:8020 | kubectl apply -f -
    stager pai convert job.json --default-fs s3://bucket --read-secret s3-read --write-secret s3-write --data-size 80Gi
    stager pai convert job.json --gpu-type K80=nvidia.com/gpu.product=Tesla-K80 --queue team-a
    stager pai convert job.yaml --storage results=s3://bucket/results --read-secret s3-read
    stager pai convert job.json --default-fs hdfs://namenode:8020 --run-local worker/0`
}

func (c paiConvertCmd) Run(ctx context.Context, log *slog.Logger) error {
	name, job, err := c.read()
	if err != nil {
		return err
	}
	opts, err := c.converting.options()
	if err != nil {
		return err
	}
	opts.Inject = c.injecting.options()
	done := watchImage(&opts.Inject, log)
	if c.RunLocal != "" {
		return c.run(ctx, log, name, job, opts)
	}
	result, err := pai.Convert(job, opts)
	if err != nil {
		return &manifestError{name, err}
	}
	for _, w := range result.Warnings {
		log.Warn(w, "file", name)
	}
	tell(log, name, &result.Result)
	return done(c.documents(result.Output))
}

func (c paiConvertCmd) read() (name string, job []byte, err error) {
	if c.File == "-" {
		job, err = io.ReadAll(os.Stdin)
		return "standard input", job, err
	}
	job, err = os.ReadFile(c.File)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil, &usageError{fmt.Errorf("%s does not exist", c.File)}
	}
	return c.File, job, err
}

// run runs one task with stager run.
func (c paiConvertCmd) run(ctx context.Context, log *slog.Logger, name string, job []byte, opts pai.Options) error {
	role, number, indexed := strings.Cut(c.RunLocal, "/")
	index := 0
	if indexed {
		var err error
		if index, err = strconv.Atoi(number); err != nil {
			return &usageError{fmt.Errorf("--run-local %q: the index must be a number, as in worker/0", c.RunLocal)}
		}
	}
	dir := c.Dir
	if dir == "" {
		dir = fmt.Sprintf("pai-%s-%d", role, index)
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	task, err := pai.Local(job, role, index, dir, opts)
	if err != nil {
		return &manifestError{name, err}
	}
	for _, w := range task.Warnings {
		log.Warn(w, "file", name)
	}
	for _, variable := range task.Env {
		key, value, _ := strings.Cut(variable, "=")
		if err := os.Setenv(key, value); err != nil {
			return err
		}
	}
	if task.Plan == "" { // nothing is staged, so only the command has to run
		return execute(task.Command)
	}
	run := runCmd{storing: c.storing, socket: c.socket, PlanYAML: task.Plan, Prefetch: plan.PartAll, Command: task.Command}
	if run.Socket == "" {
		run.Socket = filepath.Join(dir, "stager.sock") // several tasks may run concurrently
	}
	return run.Run(ctx, log)
}

// execute replaces this process with a command.
func execute(command []string) error {
	path, err := exec.LookPath(command[0])
	if err != nil {
		return &usageError{fmt.Errorf("cannot start the command: %w", err)}
	}
	if err := syscall.Exec(path, command, os.Environ()); err != nil {
		return fmt.Errorf("cannot start the command: %w", err)
	}
	return nil
}
