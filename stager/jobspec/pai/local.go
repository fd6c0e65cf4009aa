package pai

import (
	"strings"

	"github.com/stager-dev/stager/stager/jobspec"
)

// Task is one task of a job that runs on a workstation.
type Task struct {
	Plan     string   // the StagePlan; "": nothing is staged
	Env      []string // NAME=value
	Command  []string
	Warnings []string
}

// scriptVariable is the variable that holds a script with secrets on a workstation.
const scriptVariable = "STAGER_PAI_SCRIPT"

// Local returns one task of a role. All its directories are below dir, which must be absolute.
// Tasks on the same machine can reach each other.
func Local(file []byte, roleName string, index int, dir string, opts Options) (*Task, error) {
	c := &conversion{reader: &reader{text: file}, opts: opts, root: dir, local: true}
	if err := c.begin(); err != nil {
		return nil, err
	}
	var names []string
	for _, t := range c.roles {
		names = append(names, t.name)
		if t.name != roleName {
			continue
		}
		if index < 0 || index >= t.tasks {
			c.fault(t.at, "task role %s has no task %d; it has %d tasks, numbered from 0", t.name, index, t.tasks)
			return nil, c.faults
		}
		task := &Task{Plan: c.plan(t)}
		for _, s := range c.environment(t, index) {
			for _, v := range s.variables {
				task.Env = append(task.Env, v.name+"="+v.value)
			}
		}
		work := quote(dir + "/work")
		script := c.script(t)
		if t.secret { // other users can read a command line, but not an environment
			task.Env = append(task.Env, scriptVariable+"="+script)
			script = `eval "$` + scriptVariable + `"`
		}
		task.Command = []string{"bash", "-c", "mkdir -p " + work + " && cd " + work + " || exit\n" + script}
		task.Warnings = c.warnings
		return task, nil
	}
	return nil, jobspec.Faults{{Text: "there is no task role " + roleName + "; the task roles are " + strings.Join(names, ", ")}}
}
