package main

import (
	"io"
	"log/slog"
	"os"

	"github.com/stager-dev/stager/stager/jobspec"
)

type krmCmd struct {
	injecting
}

// Help returns the detailed help.
func (krmCmd) Help() string {
	return `Reads a ResourceList from standard input and prints it with its items injected and warnings as results. The function's configuration is a StagePlan, used by items that name none, or a ConfigMap whose data are options such as image, gate, finalize, podSecurity and plan.yaml.

    # kustomization.yaml
    transformers:
    - |-
      apiVersion: stager.dev/v1alpha1
      kind: StagePlan
      metadata:
        name: imagenet
        annotations: {config.kubernetes.io/function: "exec: {path: stager-krm}"}
      spec: …

    ln -s "$(command -v stager)" ~/bin/stager-krm      # the same as stager krm, without an argument
    kustomize build --enable-alpha-plugins --enable-exec .
    kpt fn eval --exec 'stager krm' --fn-config plan.yaml`
}

func (c krmCmd) Run(log *slog.Logger) error {
	opts := c.options()
	done := watchImage(&opts, log)
	list, err := io.ReadAll(os.Stdin)
	if err != nil {
		return err
	}
	out, failed, err := jobspec.KRM(list, opts)
	if err != nil {
		return err
	}
	if _, err := os.Stdout.Write(out); err != nil {
		return err
	}
	if failed {
		return exitError(exitUsage)
	}
	return done(nil)
}
