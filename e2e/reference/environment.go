package reference

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

const environmentIntro = `# Environment variables

Every flag of stager can also be set by an environment variable: ` + "`STAGER_`" + ` and the flag's name in capitals, with ` + "`_` for `-`" + `. It has the same
meaning for every command that has the flag; a variable for a flag that a command does not have is ignored.

| given | used |
|---|---|
| the flag and its variable | the flag |
| the variable, even if the plan sets the same | the variable |
| neither | the plan, where it has such a field, else the default |

A switch is set by ` + "`true` or `false`. A repeatable flag has one value in its variable" + `. Variables that are not flags, such as those of stores, their credentials
and the index of a node, are listed in the page about [credentials](../guides/credentials.md).

Variables in **bold** do not follow the rule, because flags of the same name mean something else.

| variable | flag | commands |
|---|---|---|
`

// variable is an environment variable, with the flags that it sets and the commands that have them.
type variable struct{ flags, commands []string }

// environmentPage returns the page of the environment variables.
func environmentPage(c *CLI) string {
	variables := map[string]*variable{}
	add := func(f Flag, command string) {
		if f.Env == "" {
			return
		}
		v := variables[f.Env]
		if v == nil {
			v = new(variable)
			variables[f.Env] = v
		}
		if !slices.Contains(v.flags, f.Name) {
			v.flags = append(v.flags, f.Name)
		}
		v.commands = append(v.commands, command)
	}
	for _, f := range c.Flags {
		add(f, "all")
	}
	for _, cmd := range c.Commands {
		for _, f := range cmd.Flags {
			add(f, fmt.Sprintf("[%s](cli.md#%s)", cmd.Name, anchor("stager "+cmd.Name)))
		}
	}
	var b strings.Builder
	b.WriteString(generated + environmentIntro)
	for _, name := range slices.Sorted(maps.Keys(variables)) {
		v := variables[name]
		cell := code(name)
		if !slices.ContainsFunc(v.flags, func(flag string) bool { return name == "STAGER_"+strings.ToUpper(strings.ReplaceAll(flag, "-", "_")) }) {
			cell = "**" + cell + "**"
		}
		fmt.Fprintf(&b, "| %s | `--%s` | %s |\n", cell, strings.Join(v.flags, "`, `--"), strings.Join(v.commands, ", "))
	}
	return b.String()
}
