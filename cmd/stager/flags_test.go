package main

import (
	"bytes"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
)

// parser returns the parser of run.
func parser(t *testing.T, c *cli, more ...kong.Option) *kong.Kong {
	t.Helper()
	k, err := kong.New(c, append(more, kong.Name("stager"), kong.Description(about), kong.DefaultEnvars("STAGER"), kong.Exit(func(int) {}),
		kong.Writers(new(bytes.Buffer), new(bytes.Buffer)))...)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// An environment variable applies to every command, so it must mean the same to all of them.
func TestFlagsHaveOneVariableEach(t *testing.T) {
	// Flags that differ only in their help.
	same := map[string]bool{"STAGER_STEP": true, "STAGER_SAMPLES_SEEN": true}
	type flag struct {
		command, help string
		kind          reflect.Type
	}
	known := map[string]flag{}
	k := parser(t, new(cli))
	for _, node := range append([]*kong.Node{k.Model.Node}, k.Model.Children...) {
		for _, f := range node.Flags {
			if f.Name == "help" || f.Name == "version" {
				continue
			}
			if len(f.Envs) != 1 || !strings.HasPrefix(f.Envs[0], "STAGER_") {
				t.Errorf("%s --%s has the twins %v, want one that begins with STAGER_", node.Name, f.Name, f.Envs)
				continue
			}
			if f.Help == "" {
				t.Errorf("%s --%s tells nothing", node.Name, f.Name)
			}
			kind := f.Target.Type()
			if kind.Kind() == reflect.Pointer {
				kind = kind.Elem()
			}
			now, before := flag{node.Name, f.Help, kind}, known[f.Envs[0]]
			switch {
			case before.kind == nil:
				known[f.Envs[0]] = now
			case before.kind != now.kind, before.help != now.help && !same[f.Envs[0]]:
				t.Errorf("%s means %q to %s and %q to %s", f.Envs[0], before.help, before.command, now.help, now.command)
			}
		}
	}
	for name := range same {
		if known[name].kind == nil {
			t.Errorf("no flag has the twin %s", name)
		}
	}
}

func TestTwinsAreRead(t *testing.T) {
	t.Setenv("STAGER_CONNECTIONS", "7")
	t.Setenv("STAGER_BANDWIDTH", "10Mi")
	t.Setenv("STAGER_INCLUDE", "*.{tar,zst}")
	var c cli
	if _, err := parser(t, &c).Parse([]string{"prefetch", "mem://b/", "/data", "--connections", "9"}); err != nil {
		t.Fatal(err)
	}
	p := c.Prefetch
	if p.Connections != 9 || p.Bandwidth != 10<<20 || len(p.Include) != 1 || p.Include[0] != "*.{tar,zst}" {
		t.Errorf("got %+v; a flag stands before its twin", p)
	}
}

func TestHelpOfCommands(t *testing.T) {
	for _, node := range parser(t, new(cli)).Model.Children {
		if node.Help == "" {
			t.Errorf("%s tells nothing", node.Name)
		}
		for _, arg := range node.Positional {
			if arg.Help == "" {
				t.Errorf("%s %s tells nothing", node.Name, arg.Name)
			}
		}
	}
}

func TestMainIsShort(t *testing.T) {
	text, err := os.ReadFile("main.go")
	if err != nil {
		t.Fatal(err)
	}
	if lines := bytes.Count(text, []byte("\n")); lines > 60 {
		t.Errorf("main.go has %d lines, want 60 at most", lines)
	}
}

func TestWrongCommandLines(t *testing.T) {
	for _, line := range []string{
		"", "nonsense", "prefetch", "prefetch a", "prefetch a b c", "ls --nonsense x", "prefetch a b --bandwidth fast",
		"prefetch a b --verify never", "push a b --conflict maybe", "run", "next", "next train --wait soon", "ls x --log-level loud",
	} {
		if _, err := parser(t, new(cli)).Parse(strings.Fields(line)); err == nil {
			t.Errorf("stager %s is understood", line)
		}
	}
}

func TestQuantity(t *testing.T) {
	for text, want := range map[string]int64{
		"0": 0, "1048576": 1 << 20, "200Mi": 200 << 20, "1G": 1e9, "1Gi": 1 << 30, "0.5Ki": 512, "1e3": 1000, "2Ti": 2 << 40,
		"200MB": 200e6, "200MiB": 200 << 20, "1.5GB": 1.5e9, "3KB": 3000, "3K": 3000, "3kB": 3000, "3KiB": 3072,
	} {
		var q quantity
		if err := q.UnmarshalText([]byte(text)); err != nil || int64(q) != want {
			t.Errorf("%s: got %d, %v; want %d", text, q, err, want)
		}
	}
	for _, text := range []string{"-1", "-1Gi", "fast", "1 Gi", "1GX", "Gi", "0x10", "200m", "0.1", "9Ei", "1e9999999"} {
		var q quantity
		if err := q.UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q is read as %d", text, q)
		}
	}
}

func TestAsURL(t *testing.T) {
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for location, want := range map[string]string{
		"s3://b/p/":          "s3://b/p/",
		"file:///x":          "file:///x",
		"/mnt/data":          "file:///mnt/data",
		"/mnt/data/":         "file:///mnt/data/",
		"/mnt/a b%c?d#e":     "file:///mnt/a%20b%25c%3Fd%23e",
		"/mnt/../etc":        "file:///etc",
		"data":               "file://" + here + "/data",
		"./data/":            "file://" + here + "/data/",
		"/":                  "file://" + "/",
		"s3:/one-slash/only": "file://" + here + "/s3:/one-slash/only",
	} {
		if got, err := asURL(location); err != nil || got != want && got != want+"/" {
			t.Errorf("%s: got %s, %v; want %s", location, got, err, want)
		}
	}
}

func FuzzAsURL(f *testing.F) {
	f.Add("/mnt/a b%c?d#e")
	f.Add("a//b/../c/")
	f.Fuzz(func(t *testing.T, location string) {
		if strings.ContainsRune(location, 0) {
			return
		}
		at, err := asURL(location)
		if err == nil && !strings.Contains(at, "://") {
			t.Errorf("%q became %q", location, at)
		}
	})
}
