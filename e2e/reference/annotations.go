package reference

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/stager-dev/stager/stager/jobspec"
)

const annotationsIntro = `# Annotations

Annotations of a pod template, or of the object around it, request data for its pods; ` + "`stager inject`, `stager krm`" + ` and the webhook read them. The innermost take
precedence. [Add stager to job specs](../guides/job-specs.md) describes what is added to a pod.

| annotation | value | meaning |
|---|---|---|
`

const annotationsLabel = `
The webhook injects pods with the label ` + "`%[1]s: \"true\"`. `%[1]s: \"false\"`" + ` disables injection.
`

const optionsIntro = `
## Options of inputs and outputs

Options follow a question mark in the value of an input or output:

` + "```yaml\n%sckpt: \"/out -> s3://runs/{job}/ ? keep=3&commit=checkpoint&secret=s3-write\"\n```" + `

Each sets a field of [the plan](plan.md), where its values and its default are listed. Two describe the volume of the directory: ` + "`medium` is `disk`, `memory`, `claim:PVC`," + `
` + "`host:/PATH` or `existing:VOLUME`, and `size`" + ` is the size of the window, whose volume has room to spare, or else that of the volume.
Fields are those of ` + "`spec.inputs[]` and `spec.outputs[]`; `volumes[]` is in `spec`. `include`, `exclude` and `when`" + ` accept several values, separated by commas.

| option | field of an input | field of an output |
|---|---|---|
`

// annotationsPage returns the page of the annotations.
func annotationsPage() string {
	var b strings.Builder
	b.WriteString(generated + annotationsIntro)
	for _, a := range jobspec.Annotations {
		key, meaning := a.Key, a.Meaning
		if strings.HasSuffix(key, ".") {
			key += "NAME"
		}
		if a.Written {
			meaning += "; written by stager"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", key, a.Value, meaning)
	}
	fmt.Fprintf(&b, annotationsLabel, jobspec.LabelInject)
	fmt.Fprintf(&b, optionsIntro, jobspec.AnnotationOutput)
	for _, o := range jobspec.EntryOptions() {
		if o.Name == "medium" || o.Name == "size" {
			o.Out = cmp.Or(o.Out, "volumes[]."+o.Name)
			o.In = cmp.Or(o.In, o.Out)
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", o.Name, code(o.In), code(o.Out))
	}
	return b.String()
}
