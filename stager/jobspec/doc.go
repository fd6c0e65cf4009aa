// Package jobspec injects stager into Kubernetes job specs and removes it again.
//
// [Inject] reads a file of Kubernetes objects, YAML or JSON. It adds a sidecar and an init
// container to every pod template that requests data, by annotations or by the plan in [Options].
// [Uninject] reverses it. [Check] lists the pod templates that are out of date.
//
//	result, err := jobspec.Inject(file, jobspec.Options{Plan: plan})
//	if err != nil {
//		return err // of type jobspec.Faults: all faults, with line and column
//	}
//	os.Stdout.Write(result.Output)
//
// These are pure functions of bytes. They use no files, no network and no cluster. The command
// line, the admission webhook, a KRM function and a scheduler written in Go therefore behave the
// same.
//
// # Guarantees
//
//   - Inject is idempotent: Inject(Inject(x)) == Inject(x).
//   - Uninject is its exact inverse: Uninject(Inject(x)) == x, byte for byte.
//   - If another program rewrites the file, Uninject(rewrite(Inject(x))) is equal to x as an
//     object, or it fails.
//   - Comments, unknown fields, formatting and all other documents stay as they are.
//   - A file that cannot be changed under these rules is refused with an explanation. So is a
//     plan that would lose data or never run. [Faults] reports all faults at once.
//
// # Steps
//
// Each step has a file: the objects of a file (inject.go), the pod templates of an object and what
// its kind defines about index and count (find.go, kinds.go), the annotations (request.go), the
// resulting changes to the pod (pod.go and the files next to it), and the edit of the text with the
// record that reverses it (change.go). Package yamledit edits the text itself.
package jobspec
