// Package explain reports what a job with stager in it will do before it runs: what is put into
// its pods and why, where each byte will lie, how long staging takes, which limit is too small,
// and what the stores charge for.
//
// Begin with [Explain]: it reads the file of a job, describes its pods by package jobspec, which
// is what inject does, and weighs them. A [Config] says how sizes are learned: by listing the
// stores, or by what its caller assumes. The [Report] is what "stager explain -o json" prints;
// [Report.Text] is the same for people.
//
// One file a step: the job's file (job.go), sizes (sizes.go), what pods move and keep (load.go),
// what suffices (checks.go), time (time.go), requests and money (requests.go, prices.go), the
// verdict (verdict.go) and the text (text.go).
package explain
