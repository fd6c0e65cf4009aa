// Package pai makes Kubernetes manifests of jobs that were written for OpenPAI, in the
// first version of its job format, a JSON file with comments, or in the second, YAML.
//
// Begin with [Convert]: it reads a job, gives each task role an Indexed Job, and puts
// stager into the pods by package jobspec. [Local] makes of one task what "stager run"
// runs on a workstation. Both are pure functions of bytes.
//
// What is promised:
//
//   - a command finds what it found in OpenPAI: its code in the working directory, the
//     ports and addresses of all tasks, every variable of OpenPAI's job reference;
//   - what Kubernetes does otherwise is told as a warning, and what it cannot do is
//     refused: all [jobspec.Faults] of a job are told at once, with line and column;
//   - each line of the manifests that is not obvious says where it comes from.
//
// One file a step: the job as its file has it (job.go and read.go for the first format,
// version2.go, references.go and plugins.go for the second), what its tasks are called
// (names.go), where they listen (ports.go), what they find in their environment
// (environment.go), what is staged (plan.go), and the objects (manifest.go, registry.go,
// write.go).
package pai
