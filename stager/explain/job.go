package explain

import (
	"github.com/stager-dev/stager/stager/jobspec"
	"github.com/stager-dev/stager/stager/jobspec/pai"
)

// job is a file that has been read.
type job struct {
	format   string
	result   *jobspec.Result
	pods     []*jobspec.Pod
	warnings []string
}

// Formats of jobs.
const (
	FormatKubernetes = "kubernetes"
	FormatPai1       = "openpai-1"
	FormatPai2       = "openpai-2"
)

// readJob reads a file of Kubernetes objects, or a job of OpenPAI.
func readJob(cfg Config) (*job, error) {
	j := &job{format: FormatKubernetes}
	file, opts := cfg.File, cfg.Inject
	if version := pai.Version(file); version > 0 {
		j.format = FormatPai1
		if version == 2 {
			j.format = FormatPai2
		}
		convert := cfg.Pai
		convert.Inject = opts
		made, err := pai.Convert(file, convert)
		if err != nil {
			return nil, err
		}
		j.warnings = made.Warnings
		// What the conversion has injected is injected again, as it would be from its output.
		file, opts.JobPolicies = made.Output, true
	}
	var err error
	if j.result, j.pods, err = jobspec.Describe(file, opts); err != nil {
		return nil, err
	}
	if j.format != FormatKubernetes {
		for _, p := range j.pods { // lines of a file that nobody has seen
			p.Line = 0
			for i := range p.Dirs {
				p.Dirs[i].Line = 0
			}
			for i := range p.Containers {
				p.Containers[i].Line = 0
			}
		}
	}
	return j, nil
}
