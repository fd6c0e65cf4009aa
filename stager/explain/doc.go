// Package explain predicts what a job with stager will do before it runs: what is added to its pods
// and why, where each byte is stored, how long staging takes, which limit is too small, and what
// the stores charge.
//
// [Explain] reads the file of a job and describes its pods with package jobspec, as inject does.
// [Config] defines how sizes are determined: by listing the stores, or by assumption. [Report] is
// the output of "stager explain -o json". [Report.Text] is its readable form.
//
//	report, err := explain.Explain(ctx, explain.Config{File: file, Name: "job.yaml"})
//	if err != nil {
//		return err
//	}
//	return report.Text(os.Stdout)
//
// Each step has a file: the job's file (job.go), sizes (sizes.go), what pods transfer and store
// (load.go), capacity (checks.go), time (time.go), requests and cost (requests.go, prices.go), the
// verdict (verdict.go) and the text (text.go).
package explain
