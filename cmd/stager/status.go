package main

import (
	"context"
	"net/http"
	"os"

	"github.com/stager-dev/stager/stager/api"
)

type statusCmd struct {
	socket
	shape
	Ready bool `help:"Print nothing; exit with 0 if ready, else 75. For exec probes."`
}

// Help returns the detailed help.
func (statusCmd) Help() string {
	return `Prints the phase, inputs with waiting readers, and outputs with their saved checkpoints.

    stager status
    stager status -o json
    stager status --ready && ./train`
}

func (c statusCmd) Run(ctx context.Context) error {
	var s api.Snapshot
	if _, _, err := c.call(ctx, http.MethodGet, "/v1/status", nil, nil, &s); err != nil {
		return err
	}
	switch {
	case c.Ready && s.Ready:
		return nil
	case c.Ready:
		return exitError(exitTryAgain)
	case c.structured():
		return c.value(s)
	}
	return printStatus(os.Stdout, s)
}
