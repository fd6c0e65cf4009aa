package jobspec

import (
	"maps"
	"slices"
)

// Annotation describes an annotation of a pod template, or of an object around it, for the manual.
type Annotation struct {
	Key     string // ends in a dot if a name follows
	Value   string // what it may be, in Markdown
	Meaning string // in Markdown
	Written bool   // by Inject, not by users
}

// Annotations describes all annotations that Inject accepts.
var Annotations = []Annotation{
	{Key: AnnotationInput, Value: "`URL -> PATH ? option=value&…`", Meaning: "an input of that name, with the options below"},
	{Key: AnnotationOutput, Value: "`PATH -> URL ? option=value&…`", Meaning: "an output of that name, with the options below"},
	{Key: AnnotationPlan, Value: "`configmap:NAME`", Meaning: "the plan under `plan.yaml` of a ConfigMap in the same files, or for the webhook in the cluster"},
	{Key: AnnotationPlanYAML, Value: "a plan", Meaning: "the plan itself; inputs and outputs of annotations add to it, and to that of a ConfigMap"},
	{Key: AnnotationContainers, Value: "names, separated by commas", Meaning: "the containers that use the data; default: kubectl's default container, else the first"},
	{Key: AnnotationFinalize, Value: "`auto`, `wrap`, `sidecar`, `run`", Meaning: "`wrap`: the container does not end before the sidecar has saved its outputs, and fails with 75 if they are not safe. " +
		"`sidecar`: the container ends with its command. `run`: stager runs in the container, with the Secrets there and without a sidecar. " +
		"`auto`, the default: `wrap` if an output is required and the container has a `command`, else `sidecar` with a warning"},
	{Key: AnnotationGate, Value: "`init`, `startup`, `none`", Meaning: "`init`: an init container fetches prefetched inputs, and checks that the sources of windows exist, so a job without its source ends with 66. " +
		"`startup`: in addition the job waits for each window's `minReady`; the default if there is one. `none`: all data arrives while the job runs"},
	{Key: AnnotationCount, Value: "number", Meaning: "how many pods share the data, if the object does not specify it"},
	{Key: AnnotationPrivileges, Value: "`files`", Meaning: "stager reads and holds files that only root, or their owner, may read"},
	{Key: AnnotationImage, Value: "image", Meaning: "the image of stager's containers, if it differs from that of the webhook or of `--image`"},
	{Key: AnnotationCPU, Value: "quantity", Meaning: "the CPU request of each of stager's containers"},
	{Key: AnnotationMemory, Value: "quantity", Meaning: "the memory request of each; RAM disks are added"},
	{Key: AnnotationCPULimit, Value: "quantity", Meaning: "the CPU limit of each"},
	{Key: AnnotationMemoryLimit, Value: "quantity", Meaning: "the memory limit of each; RAM disks are added"},
	{Key: AnnotationStatus, Value: "`v1;sha256:…`", Meaning: "a digest of the injected parts", Written: true},
	{Key: AnnotationUndo, Value: "data", Meaning: "what `stager uninject` needs", Written: true},
}

// EntryOption is an option of an input or output in an annotation.
type EntryOption struct {
	Name    string
	In, Out string // the field of an input and of an output in a plan that it sets; "": it is not known there
}

// EntryOptions returns all options, in the order of their names.
func EntryOptions() (options []EntryOption) {
	for _, name := range slices.Sorted(maps.Keys(params)) {
		options = append(options, EntryOption{name, params[name].in, params[name].out})
	}
	return options
}
