package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/alecthomas/kong"
)

// Names of the binary as a plugin of kubectl, which runs kubectl-NAME for "kubectl NAME", and
// kubectl_complete-NAME for its completion.
const (
	pluginFile     = "kubectl-stager"
	pluginComplete = "kubectl_complete-stager"
	pluginName     = "kubectl stager"
)

// pluginAbout is the first text of "kubectl stager --help".
const pluginAbout = `Shows what stager does in the pods of the current context and namespace. Runs kubectl, with its configuration and credentials.`

// plugin defines the commands of "kubectl stager". "stager kubectl" has those for pods, too.
type plugin struct {
	logging
	ShowVersion kong.VersionFlag `name:"version" short:"v" env:"-" help:"Print the version and exit."`

	kubectlCmd
	Inject   injectCmd   `cmd:"" help:"Inject stager into Kubernetes manifests."`
	Version  versionCmd  `cmd:"" help:"Print the version."`
	Help     helpCmd     `cmd:"" help:"Show the help of a command."`
	Complete completeCmd `cmd:"" hidden:"" help:"Print what a word of a command line may become."`
}

// kubectlCmd has the commands for pods of a cluster.
type kubectlCmd struct {
	Status kubectlStatusCmd `cmd:"" help:"Show the state of the stager in a pod."`
	Logs   kubectlLogsCmd   `cmd:"" help:"Print the logs of stager's containers in a pod."`
	Check  kubectlCheckCmd  `cmd:"" help:"Test the sources and destinations of a pod from inside it."`
}

// isPlugin reports whether kubectl runs the binary as its plugin, by the name of its file.
func isPlugin(file string) bool {
	name := filepath.Base(file)
	return name == pluginFile || name == pluginComplete
}

// inCluster has the flags that select the cluster. They have no variables: kubectl has its own, and
// in a pod STAGER_NAMESPACE is that of the pod.
type inCluster struct {
	Namespace string `short:"n" env:"-" help:"Namespace. Default: that of the context." placeholder:"NAME"`
	Context   string `env:"-" help:"Context of the kubeconfig file. Default: the current one." placeholder:"NAME"`
}

// set sets a flag by its name, while a command line is completed.
func (c *inCluster) set(flag, value string) {
	switch flag {
	case "namespace":
		c.Namespace = value
	case "context":
		c.Context = value
	}
}

// podNames returns the names of all pods, or none if kubectl cannot list them.
func (c inCluster) podNames(ctx context.Context) []string {
	out, err := c.read(ctx, "get", "pods", "--output=name")
	if err != nil {
		return nil
	}
	return strings.Fields(strings.ReplaceAll(string(out), "pod/", ""))
}

// kubectl returns a command that runs kubectl in the cluster. A signal to this process ends it.
func (c inCluster) kubectl(ctx context.Context, verb string, args ...string) *exec.Cmd {
	words := []string{verb}
	if c.Context != "" {
		words = append(words, "--context="+c.Context)
	}
	if c.Namespace != "" {
		words = append(words, "--namespace="+c.Namespace)
	}
	cmd := exec.CommandContext(ctx, "kubectl", append(words, args...)...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 5 * time.Second
	return cmd
}

// read returns what kubectl prints.
func (c inCluster) read(ctx context.Context, verb string, args ...string) ([]byte, error) {
	cmd := c.kubectl(ctx, verb, args...)
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	if err := cmd.Run(); err != nil {
		return nil, kubectlFailure(ctx, err, said.String())
	}
	return out.Bytes(), nil
}

// pass runs kubectl with this process's input and output. It returns the exit code of the program
// that kubectl ran, as an exitError. kubectl itself ends with 1, and has printed why.
func (c inCluster) pass(ctx context.Context, verb string, args ...string) error {
	cmd := c.kubectl(ctx, verb, args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	err := cmd.Run()
	var ended *exec.ExitError
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil || !errors.As(err, &ended) || ended.ExitCode() < 0:
		return kubectlFailure(ctx, err, "")
	case ended.ExitCode() == 1:
		return exitError(exitUnavailable)
	}
	return exitError(ended.ExitCode())
}

// kubectlError reports that kubectl cannot do what it was asked.
type kubectlError struct {
	text string
	code int
}

func (e *kubectlError) Error() string { return e.text }

// kubectlFailure returns the error for a run of kubectl that printed said.
func kubectlFailure(ctx context.Context, err error, said string) error {
	var ended *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, exec.ErrNotFound):
		return &kubectlError{"kubectl is not on PATH; install it, or link yours under this name, because stager reaches the cluster through it", codeForStart(err)}
	case !errors.As(err, &ended):
		return &kubectlError{fmt.Sprintf("cannot run kubectl: %v", err), codeForStart(err)}
	}
	lines := strings.Split(strings.TrimSpace(said), "\n")
	last := lines[len(lines)-1] // those before are of single attempts
	if last == "" {
		last = err.Error()
	}
	return &kubectlError{"kubectl: " + last, codeForKubectl(last)}
}

// codeForKubectl maps a message of kubectl by the reason that the API server gave.
func codeForKubectl(message string) int {
	switch {
	case strings.Contains(message, "(NotFound)"):
		return exitNoInput
	case strings.Contains(message, "(Forbidden)"), strings.Contains(message, "(Unauthorized)"):
		return exitPermission
	case strings.HasPrefix(message, "error: "), strings.HasPrefix(message, "Error in configuration: "): // before it asked the API server
		return exitConfig
	}
	return exitUnavailable
}
