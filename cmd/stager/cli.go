package main

import (
	"reflect"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// groups are the headings of "stager --help", in their order.
var groups = []kong.Group{
	{Key: "data", Title: "Move data"},
	{Key: "ckpt", Title: "Checkpoints"},
	{Key: "job", Title: "In a job"},
	{Key: "wire", Title: "Kubernetes and OpenPAI"},
	{Key: "diag", Title: "Diagnose"},
}

// cli defines all commands and flags. Each flag can also be set by an environment variable: STAGER_
// and the flag's name.
type cli struct {
	logging
	ShowVersion kong.VersionFlag `name:"version" short:"v" env:"-" help:"Print the version and exit."`

	Prefetch prefetchCmd `cmd:"" group:"data" help:"Copy a dataset or object to a local directory."`
	Copy     copyCmd     `cmd:"" group:"data" help:"Copy objects between two stores."`
	Pack     packCmd     `cmd:"" group:"data" help:"Pack small files into tar shards with an index."`
	Push     pushCmd     `cmd:"" group:"data" help:"Copy a file or directory to a store."`
	Fanout   fanoutCmd   `cmd:"" group:"data" help:"Print a Kubernetes Job that copies with several pods."`
	Ls       lsCmd       `cmd:"" group:"data" help:"List a directory of a store, or its buckets."`
	Cat      catCmd      `cmd:"" group:"data" help:"Print an object, or a part of it."`
	Du       duCmd       `cmd:"" group:"data" help:"Print the size of a directory of a store."`
	Rm       rmCmd       `cmd:"" hidden:"" help:"Explain why stager removes no data."`

	Restore     restoreCmd     `cmd:"" group:"ckpt" help:"Restore the newest valid checkpoint."`
	Checkpoints checkpointsCmd `cmd:"" group:"ckpt" help:"List checkpoints and their state."`
	Prune       pruneCmd       `cmd:"" group:"ckpt" help:"Remove old checkpoints."`
	Commit      commitCmd      `cmd:"" group:"ckpt" help:"Declare a checkpoint complete and save it."`

	Run    runCmd    `cmd:"" group:"job" help:"Run a plan as a sidecar or around a command."`
	Wrap   wrapCmd   `cmd:"" group:"job" help:"Run a command and exit when a sidecar has saved its outputs."`
	Next   nextCmd   `cmd:"" group:"job" help:"Lease the next shard and print its path."`
	Ack    ackCmd    `cmd:"" group:"job" help:"Acknowledge a shard, so that its space is freed."`
	Nack   nackCmd   `cmd:"" group:"job" help:"Return a shard for redelivery."`
	Sample sampleCmd `cmd:"" group:"job" help:"Shuffle samples across the shards of an input."`
	Drain  drainCmd  `cmd:"" group:"job" help:"Stop fetching and save all outputs."`
	Status statusCmd `cmd:"" group:"job" help:"Show the state of a running stager."`

	Inject    injectCmd    `cmd:"" group:"wire" help:"Inject stager into Kubernetes manifests."`
	Uninject  uninjectCmd  `cmd:"" group:"wire" help:"Remove what inject added."`
	Explain   explainCmd   `cmd:"" group:"wire" help:"Report what a job will stage, and whether it fits."`
	Kubectl   kubectlCmd   `cmd:"" group:"wire" help:"Show what stager does in pods of a cluster; also kubectl stager."`
	Krm       krmCmd       `cmd:"" group:"wire" help:"Inject as a KRM function for kustomize and kpt."`
	Pai       paiCmd       `cmd:"" group:"wire" help:"Convert OpenPAI jobs to Kubernetes manifests."`
	Webhook   webhookCmd   `cmd:"" group:"wire" help:"Serve the admission webhook that injects stager into pods."`
	Manifests manifestsCmd `cmd:"" group:"wire" help:"Print manifests for the webhook, an admission policy or RBAC."`
	Install   installCmd   `cmd:"" group:"wire" help:"Copy this binary into a directory that other containers mount."`

	Check   checkCmd   `cmd:"" group:"diag" help:"Test a store's guarantees and speed."`
	Bench   benchCmd   `cmd:"" group:"diag" help:"Measure a store and a local disk."`
	Version versionCmd `cmd:"" group:"diag" help:"Print the version."`

	Help       helpCmd       `cmd:"" group:"diag" help:"Show the help of a command."`
	Completion completionCmd `cmd:"" group:"diag" help:"Print a completion script for bash, zsh or fish."`
	Complete   completeCmd   `cmd:"" hidden:"" help:"Print what a word of a command line may become."`
	Reference  referenceCmd  `cmd:"" hidden:"" help:"Print all commands, flags and exit codes as JSON."`
}

// overviews are the commands that know all others.
var overviews = []string{"Help", "Completion", "Complete", "Reference"}

// only leaves all commands out of the grammar but the one that a command line begins with, if it
// does. Building all of them takes longer than "stager next" does otherwise, which scripts call for
// each shard.
func only(args []string) kong.Option {
	if len(args) == 0 {
		return kong.IgnoreFields()
	}
	var others []string
	known := false
	for field := range reflect.TypeFor[cli]().Fields() {
		if _, command := field.Tag.Lookup("cmd"); !command {
			continue
		}
		if strings.ToLower(field.Name) == args[0] && !slices.Contains(overviews, field.Name) {
			known = true
			continue
		}
		others = append(others, `^cli\.`+field.Name+"$")
	}
	if !known {
		others = nil
	}
	return kong.IgnoreFields(others...)
}
