package reference

import (
	"fmt"
	"strings"
)

// ManPages returns the man pages of section 1 by their names: stager.1, and one for each command.
// version is that of the binary.
func ManPages(c *CLI, version string) map[string][]byte {
	pages := map[string][]byte{"stager.1": []byte(overviewManPage(c, version))}
	for _, cmd := range c.Commands {
		name := manName(cmd)
		pages[name+".1"] = []byte(commandManPage(name, cmd, version))
	}
	return pages
}

// manName returns the name of a command's page, such as stager-pai-convert.
func manName(cmd Command) string { return "stager-" + strings.ReplaceAll(cmd.Name, " ", "-") }

func overviewManPage(c *CLI, version string) string {
	var b strings.Builder
	about, _, _ := strings.Cut(c.About, "\n")
	manHeader(&b, "stager", "stages data for GPU jobs, and saves their results", version)
	b.WriteString(".SH SYNOPSIS\n.B stager\n.I command\n[flags]\n.SH DESCRIPTION\n" + roff(about) + "\n")
	for _, group := range c.groups() {
		fmt.Fprintf(&b, ".SS %s\n", roff(group))
		for _, cmd := range c.in(group) {
			fmt.Fprintf(&b, ".TP\n.BR %s (1)\n%s\n", roff(manName(cmd)), roff(cmd.Help))
		}
	}
	b.WriteString(".SH OPTIONS\nAll commands have these flags.\n")
	manFlags(&b, c.Flags)
	b.WriteString(".SH ENVIRONMENT\nEvery flag can also be set by a variable, which its description names.\n.SH EXIT STATUS\n")
	for _, e := range c.ExitCodes {
		fmt.Fprintf(&b, ".TP\n.B %d\n%s\n", e.Code, roff(strings.ReplaceAll(e.Meaning, "`", "")))
	}
	return b.String()
}

func commandManPage(name string, cmd Command, version string) string {
	var b strings.Builder
	manHeader(&b, name, strings.ToLower(cmd.Help[:1])+strings.TrimSuffix(cmd.Help[1:], "."), version)
	b.WriteString(".SH SYNOPSIS\n" + roff(cmd.Usage) + "\n")
	if cmd.Long != "" {
		b.WriteString(".SH DESCRIPTION\n")
		for _, part := range strings.Split(strings.TrimRight(cmd.Long, "\n"), "\n\n") {
			if strings.HasPrefix(part, example) {
				b.WriteString(".PP\n.RS 4\n.nf\n" + roff(strings.ReplaceAll(strings.TrimPrefix(part, example), "\n"+example, "\n")) + "\n.fi\n.RE\n")
			} else {
				b.WriteString(".PP\n" + roff(part) + "\n")
			}
		}
	}
	if len(cmd.Args) > 0 {
		b.WriteString(".SH ARGUMENTS\n")
		for _, arg := range cmd.Args {
			fmt.Fprintf(&b, ".TP\n.I %s\n%s\n", roff(arg.Name), roff(arg.Help))
		}
	}
	if len(cmd.Flags) > 0 {
		b.WriteString(".SH OPTIONS\n")
		manFlags(&b, cmd.Flags)
	}
	b.WriteString(".SH SEE ALSO\n.BR stager (1),\nfor the flags of all commands and the exit codes\n")
	return b.String()
}

func manHeader(b *strings.Builder, name, summary, version string) {
	fmt.Fprintf(b, ".\\\" Generated from the code by make man.\n.TH %s 1 \"\" \"stager %s\" \"stager manual\"\n.nh\n.ad l\n.SH NAME\n%s \\- %s\n",
		strings.ToUpper(name), version, roff(name), roff(summary))
}

func manFlags(b *strings.Builder, flags []Flag) {
	for _, f := range flags {
		help := f.Help
		if f.Default != "" && f.Type != "switch" {
			help += fmt.Sprintf(" Default: %s.", f.Default)
		}
		if f.Required {
			help += " Required."
		}
		if f.Env != "" {
			help += fmt.Sprintf(" ($%s)", f.Env)
		}
		fmt.Fprintf(b, ".TP\n.B %s\n%s\n", roff(f.spelled()), roff(help))
	}
}

// roff escapes text for roff: backslashes, hyphens that are typed, and what would begin a request.
func roff(text string) string {
	lines := strings.Split(strings.NewReplacer(`\`, `\e`, `-`, `\-`, `…`, `...`).Replace(text), "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
			lines[i] = `\&` + line
		}
	}
	return strings.Join(lines, "\n")
}
