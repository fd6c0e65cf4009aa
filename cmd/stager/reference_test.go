package main

import (
	"strings"
	"testing"
)

func TestReferenceDescribesCommands(t *testing.T) {
	r := referenceOf(parser(t, new(cli)).Model.Node)
	commands := map[string]referenceCommand{}
	for _, c := range r.Commands {
		if commands[c.Name] = c; c.Group == "" || c.Help == "" || !strings.HasPrefix(c.Usage, "stager "+c.Name) {
			t.Errorf("%s: got group %q, help %q and usage %q", c.Name, c.Group, c.Help, c.Usage)
		}
	}
	if commands["complete"].Name != "" {
		t.Error("got the hidden command complete, want it to be left out")
	}
	flags := map[string]referenceFlag{}
	for _, f := range append(commands["run"].Flags, commands["manifests webhook"].Flags...) {
		flags[f.Name] = f
	}
	for name, want := range map[string]referenceFlag{
		"bandwidth":   {Type: "size", Default: "0", Env: "STAGER_BANDWIDTH"},
		"retry-for":   {Type: "duration", Value: "DURATION", Env: "STAGER_RETRY_FOR"},
		"file":        {Short: "f", Type: "text", Value: "PLAN", Env: "STAGER_PLAN"},
		"prefetch":    {Type: "choice", Default: "all", Env: "STAGER_PREFETCH", Enum: []string{"all", "only", "skip"}},
		"config-maps": {Type: "switch", Default: "true", Env: "STAGER_CONFIG_MAPS", Negatable: true},
	} {
		got := flags[name]
		if got.Short != want.Short || got.Type != want.Type || got.Value != want.Value || got.Default != want.Default || got.Env != want.Env ||
			got.Negatable != want.Negatable || strings.Join(got.Enum, " ") != strings.Join(want.Enum, " ") {
			t.Errorf("--%s: got %+v, want %+v", name, got, want)
		}
	}
	if got, want := flags["file"].Help, "Required, unless --plan-yaml is set."; !strings.HasSuffix(got, want) {
		t.Errorf("--file: got the help %q, want it to end in %q", got, want)
	}
}
