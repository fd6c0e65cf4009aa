package main

// cli is everything that can be typed. Each flag has its environment twin, STAGER_
// and its name.
type cli struct {
	logging
	Prefetch    prefetchCmd    `cmd:"" help:"Copy a dataset, or one object, to a local folder: verified, and resumed after a kill."`
	Run         runCmd         `cmd:"" help:"Run a plan: feed a trainer through windows, save its outputs; as a sidecar, or around a command."`
	Wrap        wrapCmd        `cmd:"" help:"Run a command beside a sidecar, and end when its outputs are saved."`
	Push        pushCmd        `cmd:"" help:"Copy a file or folder to a store; with --commit as a checkpoint that exists whole or not at all."`
	Copy        copyCmd        `cmd:"" help:"Copy between two stores, verified and resumable; --verify tells whether all is there."`
	Pack        packCmd        `cmd:"" help:"Copy many small files as few large ones: tar shards for WebDataset, with an index."`
	Fanout      fanoutCmd      `cmd:"" help:"Print a Job whose pods copy between two stores, each its share."`
	Restore     restoreCmd     `cmd:"" help:"Bring back the newest good checkpoint."`
	Checkpoints checkpointsCmd `cmd:"" help:"List the checkpoints of a destination, and whether they are good."`
	Prune       pruneCmd       `cmd:"" help:"Remove older checkpoints of a destination."`
	Ls          lsCmd          `cmd:"" help:"List objects of a store."`
	Check       checkCmd       `cmd:"" help:"Try what a store keeps and how fast it is, in a scratch folder, and report."`
	Bench       benchCmd       `cmd:"" help:"Measure what a store and a local disk give, and say which of them limits."`
	Sample      sampleCmd      `cmd:"" help:"Mix the samples of an input's shards into files in memory, and hand these out."`
	Next        nextCmd        `cmd:"" help:"Take the next shard of an input and print its path."`
	Ack         ackCmd         `cmd:"" help:"Say that a shard is done with, so that its space is freed."`
	Nack        nackCmd        `cmd:"" help:"Give a shard back: it is delivered again."`
	Commit      commitCmd      `cmd:"" help:"Say that a checkpoint folder is complete, so that it is saved."`
	Drain       drainCmd       `cmd:"" help:"Say that the end is near: nothing more is fetched, outputs are saved."`
	Status      statusCmd      `cmd:"" help:"Show what stager is doing."`
	Inject      injectCmd      `cmd:"" help:"Put stager into the pod templates of Kubernetes manifests."`
	Uninject    uninjectCmd    `cmd:"" help:"Take out of manifests what inject put in."`
	Explain     explainCmd     `cmd:"" help:"Report what a job will stage, whether it fits and how long it takes, before it runs."`
	Krm         krmCmd         `cmd:"" help:"Inject as a KRM function: for kustomize and kpt."`
	Pai         paiCmd         `cmd:"" help:"Bring jobs of OpenPAI to Kubernetes."`
	Webhook     webhookCmd     `cmd:"" help:"Serve an admission webhook that puts stager into pods as they are created."`
	Manifests   manifestsCmd   `cmd:"" help:"Print what is to be applied to a cluster: the webhook, a policy, or their rights."`
	Install     installCmd     `cmd:"" help:"Copy this binary into a folder, from which other containers run it."`
	Version     versionCmd     `cmd:"" help:"Print the version."`
}
