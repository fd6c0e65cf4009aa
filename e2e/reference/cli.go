package reference

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
)

// CLI is the command line of stager, with the URLs that it accepts, as its hidden command "reference" prints it.
type CLI struct {
	About     string
	Flags     []Flag // of all commands
	Commands  []Command
	ExitCodes []ExitCode
	Schemes   []Scheme
}

// Command is one of its commands.
type Command struct {
	Name, Group, Usage, Help string
	Long                     string // paragraphs, and examples that are indented by four spaces
	Args                     []struct{ Name, Help string }
	Flags                    []Flag
}

// Flag is a flag of a command.
type Flag struct {
	Name, Short, Type, Value, Default, Env, Help string
	Enum                                         []string
	Required, Repeatable, Negatable              bool
}

// ExitCode is an exit code of any command.
type ExitCode struct {
	Code           int
	Meaning, Retry string
}

// ReadCLI builds and runs the binary of the module in source.
func ReadCLI(source string) (*CLI, error) {
	cmd := exec.Command("go", "run", "./cmd/stager", "reference")
	cmd.Dir, cmd.Stderr = source, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("asking stager for its command line: %w", err)
	}
	return ParseCLI(out)
}

// ParseCLI reads what "stager reference" prints.
func ParseCLI(text []byte) (*CLI, error) {
	c := new(CLI)
	in := json.NewDecoder(bytes.NewReader(text))
	if err := in.Decode(c); err != nil {
		return nil, fmt.Errorf("reading the command line of stager: %w", err)
	}
	return c, nil
}

const cliIntro = `# Commands and flags

This page lists every command of stager with its flags; ` + "`stager help COMMAND`" + ` prints the same. [Exit codes](exit-codes.md) and
[environment variables](environment.md) have pages of their own. Arguments in ` + "`<angle brackets>`" + ` are required, those in ` + "`[square brackets]`" + ` are not.

| type | values |
|---|---|
| switch | ` + "`--flag`, or `--flag=false`; `--[no-]flag` can also be written as `--no-flag`" + ` |
| size | bytes: a whole number, ` + "`500M` or `500MB` (10^6), `60Gi` or `60GiB` (2^30), `1.5G`" + ` |
| duration | ` + "`90s`, `10m`, `1h30m`" + ` |
| rate | ` + "`10Gbit/s`, `1.2GB/s`, `300MiB/s`" + ` |

A repeatable flag is written once per value.
`

// cliPage returns the page of all commands.
func cliPage(c *CLI) string {
	var b strings.Builder
	b.WriteString(generated + cliIntro)
	for _, group := range c.groups() {
		fmt.Fprintf(&b, "\n## %s\n\n| command | does |\n|---|---|\n", group)
		for _, cmd := range c.in(group) {
			fmt.Fprintf(&b, "| [%s](#%s) | %s |\n", cmd.Name, anchor("stager "+cmd.Name), markdown(cmd.Help))
		}
	}
	b.WriteString("\n## Flags of all commands\n\n")
	flagTable(&b, c.Flags)
	for _, cmd := range c.Commands {
		fmt.Fprintf(&b, "\n## stager %s\n\n%s\n\n```text\n%s\n```\n", cmd.Name, markdown(cmd.Help), cmd.Usage)
		if cmd.Long != "" {
			b.WriteString("\n" + paragraphs(cmd.Long) + "\n")
		}
		if len(cmd.Args) > 0 {
			b.WriteString("\n| argument | meaning |\n|---|---|\n")
			for _, arg := range cmd.Args {
				fmt.Fprintf(&b, "| `%s` | %s |\n", arg.Name, markdown(arg.Help))
			}
		}
		if len(cmd.Flags) > 0 {
			b.WriteString("\n")
			flagTable(&b, cmd.Flags)
		}
	}
	return b.String()
}

// groups returns the groups of the commands, in their order.
func (c *CLI) groups() (names []string) {
	for _, cmd := range c.Commands {
		names = append(names, cmd.Group)
	}
	return slices.Compact(names)
}

// in returns the commands of a group.
func (c *CLI) in(group string) (commands []Command) {
	for _, cmd := range c.Commands {
		if cmd.Group == group {
			commands = append(commands, cmd)
		}
	}
	return commands
}

func flagTable(b *strings.Builder, flags []Flag) {
	b.WriteString("| flag | type | default | variable | meaning |\n|---|---|---|---|---|\n")
	for _, f := range flags {
		help := markdown(strings.TrimSuffix(f.Help, " Repeatable."))
		if f.Required {
			help += " Required."
		}
		fmt.Fprintf(b, "| `%s` | %s | %s | %s | %s |\n", f.spelled(), f.kind(), code(f.Default), code(f.Env), help)
	}
}

// spelled returns a flag as it is typed.
func (f Flag) spelled() string {
	name := "--" + f.Name
	if f.Negatable {
		name = "--[no-]" + f.Name
	}
	if f.Short != "" {
		name = "-" + f.Short + ", " + name
	}
	if f.Value != "" {
		name += "=" + f.Value
	}
	return name
}

// kind returns the type of a flag, with its values if they are few.
func (f Flag) kind() string {
	kind := f.Type
	if f.Type == "choice" {
		var values []string
		for _, v := range f.Enum {
			if v != "" { // not set
				values = append(values, code(v))
			}
		}
		kind = strings.Join(values, ", ")
	}
	if f.Repeatable {
		kind += ", repeatable"
	}
	return kind
}

// code returns text in a code span; "" stays empty.
func code(text string) string {
	if text == "" {
		return ""
	}
	return "`" + strings.ReplaceAll(text, "|", `\|`) + "`"
}

// markdown escapes a sentence, also for a cell of a table.
func markdown(text string) string {
	return strings.NewReplacer("|", `\|`, "*", `\*`, "<", "&lt;", "[", `\[`).Replace(text)
}

// paragraphs escapes the paragraphs of a help text. Those that are indented by four spaces are
// examples, which become blocks.
func paragraphs(text string) string {
	parts := strings.Split(strings.TrimRight(text, "\n"), "\n\n")
	for i, part := range parts {
		if strings.HasPrefix(part, example) {
			parts[i] = "```sh\n" + strings.ReplaceAll(strings.TrimPrefix(part, example), "\n"+example, "\n") + "\n```"
		} else {
			parts[i] = markdown(part)
		}
	}
	return strings.Join(parts, "\n\n")
}

// example is how an example begins in a help text.
const example = "    "

// anchor returns the anchor of a heading, as forges and MkDocs make it.
func anchor(heading string) string {
	return strings.ReplaceAll(strings.ToLower(heading), " ", "-")
}
