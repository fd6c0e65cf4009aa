package main

import "errors"

// rmCmd explains why it does not exist.
type rmCmd struct {
	Words []string `arg:"" optional:"" passthrough:"" help:"Ignored."`
}

func (rmCmd) Run() error {
	return &usageError{errors.New(`stager has no rm, so that no typing error can cost data: use the tools of the store; "stager prune" removes old checkpoints by rule, and shows what with --dry-run`)}
}
