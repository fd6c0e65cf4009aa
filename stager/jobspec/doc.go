// Package jobspec puts stager into the job specs that schedulers, pipelines and people
// write, and takes it out again.
//
// Begin with [Inject]: it takes a file of Kubernetes objects, YAML or JSON, and gives
// it back with a sidecar and an init container in every pod template that asks for
// data, by annotations or because [Options] brings a plan. [Uninject] undoes it, and
// [Check] tells what is out of date. They are pure functions of bytes: they touch
// neither files nor the network nor a cluster, so that a command line, an admission
// webhook, a KRM function and a scheduler written in Go are the same thing.
//
// What is promised, whatever the file looks like:
//
//   - Inject(Inject(x)) == Inject(x) and Uninject(Inject(x)) == x, byte for byte;
//   - Uninject(rewrite(Inject(x))) is x as an object, whichever program wrote the file
//     anew, or is refused;
//   - comments, unknown fields, formatting and all other documents stay as they are;
//   - a file that cannot be changed so is refused with a sentence, and so is a plan
//     that would lose data or never run: all [Faults] are told at once.
//
// How it goes, one file a step: the objects of a file (inject.go), the pod templates
// of an object and what its kind knows of index and count (find.go, kinds.go), what
// their annotations ask for (request.go), what that means for the pod (pod.go and the
// files beside it), and the changes to the text with the record that undoes them
// (change.go). The text itself is the business of package yamledit.
package jobspec
