package main

import (
	"regexp"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
)

// pluginParser is the parser of "kubectl stager".
func pluginParser(t *testing.T, out *strings.Builder) *kong.Kong {
	t.Helper()
	return kong.Must(new(plugin), kong.Name(pluginName), kong.Description(pluginAbout), kong.DefaultEnvars("STAGER"),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true}), kong.Writers(out, out), kong.Exit(func(int) {}))
}

// pluginCommand finds the commands of "kubectl stager" in a line, up to what follows them.
var pluginCommand = regexp.MustCompile("kubectl stager ([a-z](?:'[^']*'|\"[^\"]*\"|[^'\"|&;>#`])*)")

// Each command of "kubectl stager" in a help or in the manual is understood.
func TestPluginCommandsAreUnderstood(t *testing.T) {
	lines := manualLines(t)
	for _, node := range parser(t, new(cli)).Model.Leaves(true) {
		for line := range strings.Lines(node.Detail) {
			lines = append(lines, manualLine{place: node.Path(), text: line, block: strings.HasPrefix(line, "    ")})
		}
	}
	seen := 0
	for _, line := range lines {
		if !line.block && !strings.Contains(line.text, "`kubectl stager ") {
			continue
		}
		for _, found := range pluginCommand.FindAllStringSubmatch(line.text, -1) {
			seen++
			words := shellWord.FindAllString(placeholders.Replace(found[1]), -1)
			if _, err := pluginParser(t, new(strings.Builder)).Parse(words); err != nil {
				t.Errorf("%s: kubectl stager %s: %v", line.place, found[1], err)
			}
		}
	}
	if seen < 9 {
		t.Errorf("got %d commands, want those of the helps", seen)
	}
}

func TestPluginHelpFitsAScreen(t *testing.T) {
	var out strings.Builder
	_, _ = pluginParser(t, &out).Parse([]string{"--help"}) // it needs a command
	if got := strings.Count(out.String(), "\n"); got > screen || !strings.HasPrefix(out.String(), "Usage: kubectl stager <command>") {
		t.Errorf("got %d lines, want at most %d of kubectl stager:\n%s", got, screen, out.String())
	}
}

// The name of the file decides, wherever it is.
func TestPluginIsChosenByFile(t *testing.T) {
	for file, want := range map[string]bool{
		"/usr/bin/kubectl-stager": true, "kubectl-stager": true, "/b/kubectl_complete-stager": true,
		"stager": false, "/kubectl-stager/stager": false, "stager-krm": false, "": false,
	} {
		if got := isPlugin(file); got != want {
			t.Errorf("%q: got %v, want %v", file, got, want)
		}
	}
	for topic, want := range map[string]string{
		"statsu":          `there is no command "statsu", did you mean "kubectl stager help status"?`,
		"nothing-like-it": `there is no command "nothing-like-it", did you mean "kubectl stager help"?`,
	} {
		if err := unknownTopic(pluginParser(t, new(strings.Builder)).Model.Node, []string{topic}); err == nil || err.Error() != want {
			t.Errorf("help %s: got %v, want %s", topic, err, want)
		}
	}
}

func TestPodsAreSelected(t *testing.T) {
	for _, c := range []struct {
		pod, labels, want string
	}{
		{"train-0", "", "pod train-0"},
		{"pod/train-0", "", "pod train-0"},
		{"po/train-0", "", "pod train-0"},
		{"job/train", "", "pods --selector=batch.kubernetes.io/job-name=train"},
		{"jobs.batch/train", "", "pods --selector=batch.kubernetes.io/job-name=train"},
		{"", "app=a,tier in (b, c)", "pods --selector=app=a,tier in (b, c)"},
		{"", "", "name a pod or job/NAME, or select pods with -l"},
		{"train-0", "app=a", "use a name or -l, not both"},
		{"sts/train", "", `"sts/train" is neither a pod nor job/NAME; select the pods of other kinds with -l`},
		{"pod/", "", `"pod/" is neither a pod nor job/NAME; select the pods of other kinds with -l`},
		{"/", "", `"/" is neither a pod nor job/NAME; select the pods of other kinds with -l`},
		{"pod/a/b", "", `"pod/a/b" is neither a pod nor job/NAME; select the pods of other kinds with -l`},
	} {
		query, err := ofPods{Pod: c.pod, Selector: c.labels}.query()
		got := strings.Join(query, " ")
		if err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%q and %q: got %q, want %q", c.pod, c.labels, got, c.want)
		}
	}
}

func TestKubectlMessagesHaveCodes(t *testing.T) {
	for message, want := range map[string]int{
		`Error from server (NotFound): pods "x" not found`:                                     exitNoInput,
		`Error from server (Forbidden): pods is forbidden: User "x" cannot list`:               exitPermission,
		`error: You must be logged in to the server (Unauthorized)`:                            exitPermission,
		`Error in configuration: context was not found for specified context: lost`:            exitConfig,
		`error: context "lost" does not exist`:                                                 exitConfig,
		`The connection to the server localhost:8080 was refused - did you specify the right`:  exitUnavailable,
		`Unable to connect to the server: dial tcp: lookup k on 10.0.0.2:53: no such host`:     exitUnavailable,
		`Error from server (ServiceUnavailable): the server is currently unable to handle the`: exitUnavailable,
	} {
		if got := codeForKubectl(message); got != want {
			t.Errorf("%s: got %d, want %d", message, got, want)
		}
	}
}
