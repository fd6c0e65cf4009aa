package main

import (
	"strings"
	"testing"
)

func TestMisplacedFlags(t *testing.T) {
	for line, want := range map[string]string{
		"run --fil p.yaml":               `unknown flag --fil, did you mean "--file"?; put the command after --, and see stager run --help`,
		"run -f p.yaml --dry-rum":        `unknown flag --dry-rum, did you mean "--dry-run"?; put the command after --, and see stager run --help`,
		"run -f p.yaml --log-leve=debug": `unknown flag --log-leve, did you mean "--log-level"?; put the command after --, and see stager run --help`,
		"run -f p.yaml -x":               `unknown flag -x; put the command after --, and see stager run --help`,
		"wrap --save-wat 3m -- a":        `unknown flag --save-wat, did you mean "--save-wait"?; put the command after --, and see stager wrap --help`,
		"run -f p.yaml -- -x":            "",
		"run -f p.yaml train.sh --fil x": "",
		"wrap -- train.sh":               "",
	} {
		var c cli
		k := parser(t, &c)
		_, _ = k.Parse(strings.Fields(line)) // what it lacks is another error
		got := ""
		if err := c.misplacedFlag(k.Model.Node); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("stager %s: got %q, want %q", line, got, want)
		}
	}
}

func TestDistance(t *testing.T) {
	for _, tt := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"a", "", 1}, {"ls", "lss", 1}, {"total", "toatl", 2}, {"kitten", "sitting", 3}} {
		if got := distance(tt.a, tt.b); got != tt.want {
			t.Errorf("%q and %q: got %d, want %d", tt.a, tt.b, got, tt.want)
		}
	}
}
