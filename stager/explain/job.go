package explain

import (
	"github.com/stager-dev/stager/stager/jobspec"
	"github.com/stager-dev/stager/stager/jobspec/pai"
)

// job is a parsed job file.
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

// readJob reads a file of Kubernetes objects or an OpenPAI job.
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
		// Inject the converted job again, as if it were read from the output of the conversion.
		file, opts.JobPolicies = made.Output, true
	}
	var err error
	if j.result, j.pods, err = jobspec.Describe(file, opts); err != nil {
		return nil, err
	}
	if j.format != FormatKubernetes {
		for _, p := range j.pods { // line numbers of an intermediate file that the user never sees
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
