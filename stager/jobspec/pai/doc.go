// Package pai converts OpenPAI jobs to Kubernetes manifests. It reads both versions of OpenPAI's
// job format: the first, a JSON file with comments, and the second, YAML.
//
// [Convert] makes an Indexed Job of each task role and injects stager into the pods with package
// jobspec. [Local] converts one task for "stager run" on a workstation. Both are pure functions of
// bytes.
//
//	result, err := pai.Convert(file, pai.Options{User: "ada"})
//
// # Guarantees
//
//   - A command finds the environment that OpenPAI gave it: its code in the working directory,
//     the ports and addresses of all tasks, and every variable of OpenPAI's job reference.
//   - Differences in Kubernetes are reported as warnings. What Kubernetes cannot do is refused.
//     [jobspec.Faults] reports all faults of a job at once, with line and column.
//   - Each line of the manifests that is not obvious has a comment with its origin.
//
// # Steps
//
// Each step has a file: the job (job.go and read.go for the first format; version2.go,
// references.go and plugins.go for the second), names (names.go), ports (ports.go), the environment
// of tasks (environment.go), the StagePlan (plan.go), and the objects (manifest.go, registry.go,
// write.go).
package pai
