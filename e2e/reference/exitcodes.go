package reference

import (
	"fmt"
	"strings"
)

const exitCodesIntro = `# Exit codes

Every command of stager ends with one of these codes, so that scripts and schedulers can decide whether to try again.

| code | meaning | does it help to run it again? |
|---|---|---|
`

const exitCodesOutro = `
` + "`stager run -- COMMAND` and `stager wrap`" + ` end with the exit code of the command, or with 75 if it succeeded and its outputs are not saved.

A Kubernetes ` + "`podFailurePolicy`" + ` can fail the Job immediately for the codes that do not pass:

<!-- illustration -->
` + "```yaml" + `
podFailurePolicy:
  rules:
  - action: FailJob
    onExitCodes: {operator: In, values: [%s]}
` + "```" + `
`

// exitCodesPage returns the page of the exit codes.
func exitCodesPage(c *CLI) string {
	var b strings.Builder
	b.WriteString(generated + exitCodesIntro)
	var final []string
	for _, e := range c.ExitCodes {
		fmt.Fprintf(&b, "| %d | %s | %s |\n", e.Code, strings.ReplaceAll(e.Meaning, "|", `\|`), e.Retry)
		if e.Retry == "no" {
			final = append(final, fmt.Sprint(e.Code))
		}
	}
	fmt.Fprintf(&b, exitCodesOutro, strings.Join(final, ", "))
	return b.String()
}
