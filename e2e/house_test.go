package e2e

import (
	"bufio"
	"encoding/json"
	"errors"
	"go/parser"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/stager-dev/stager/"

// walls says who must not import whom, also not through others. A package that ends
// in /... is all below it.
var walls = []struct{ pkg, never, reason string }{
	{"window/...", module + "backends", "the window asks a Fetcher, so that it is tested without any store"},
	{"window/...", module + "stager/...", "the window serves the daemon, not the other way round"},
	{"backends", "github.com/aws/...", "users of a store pay for the protocols they use"},
	{"backends", "github.com/aliyun/...", "users of a store pay for the protocols they use"},
	{"backends", module + "window/...", "stores know nothing of what their bytes are for"},
	{"backends", module + "stager/...", "stores know nothing of what their bytes are for"},
	{"backends/s3", module + "backends/file", "one protocol never leans on another"},
	{"backends/file", module + "backends/s3", "one protocol never leans on another"},
	{"backends/oss", module + "backends/s3", "one protocol never leans on another"},
	{"backends/mem", module + "backends/file", "one protocol never leans on another"},
	{"stager/checkpoint", module + "window", "feeding and saving meet in the daemon only"},
	{"stager/fetch", module + "stager/checkpoint", "feeding and saving meet in the daemon only"},
	{"stager/...", module + "backends/all", "the registry is handed in, so that tests bring their own"},
	{"stager/...", module + "cmd/stager", "the command is the outermost shell"},
	{"cmd/...", module + "backends/mem", "a store for tests has no place in the product"},
	{"cmd/...", "testing", "tests have no place in the product"},
}

// direct says which packages alone may import something.
var direct = []struct {
	never  string
	except []string
	reason string
}{
	{module + "backends/s3", []string{"backends/all"}, "the registry is the only importer of protocols"},
	{module + "backends/oss", []string{"backends/all"}, "the registry is the only importer of protocols"},
	{module + "backends/file", []string{"backends/all"}, "the registry is the only importer of protocols"},
	{"net/http", []string{"backends/oss", "backends/s3", "cmd/stager", "stager", "stager/status"}, "the API is the daemon's; the rest knows no protocol"},
	{"os/signal", []string{"cmd/stager"}, "signals are the command's"},
	{"flag", nil, "flags are the command's, which has kong"},
	{"log", nil, "log/slog is the log"},
}

// longFiles are those over 500 lines, each with its reason.
var longFiles = map[string]string{}

type pkg struct {
	ImportPath, Dir           string
	GoFiles, Imports, Deps    []string
	TestGoFiles, XTestGoFiles []string
}

func (p pkg) name() string { return strings.TrimPrefix(p.ImportPath, module) }

// packages are the product's.
func packages(t *testing.T) []pkg {
	t.Helper()
	cmd := exec.Command("go", "list", "-json=ImportPath,Dir,GoFiles,Imports,Deps", "./...")
	cmd.Dir, cmd.Stderr = "..", os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var all []pkg
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p pkg
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
}

// matches tells whether name is pattern, or below it when that ends in /....
func matches(pattern, name string) bool {
	base, below := strings.CutSuffix(pattern, "/...")
	return name == base || below && strings.HasPrefix(name, base+"/")
}

func TestWallsStand(t *testing.T) {
	all := packages(t)
	for _, w := range walls {
		known := false
		for _, p := range all {
			if matches(w.pkg, p.name()) {
				known = true
				for _, dep := range p.Deps {
					if matches(w.never, dep) {
						t.Errorf("%s imports %s, and must not: %s", p.name(), dep, w.reason)
					}
				}
			}
		}
		exists := !strings.HasPrefix(w.never, module) || slices.ContainsFunc(all, func(p pkg) bool { return matches(w.never, p.ImportPath) })
		if !known || !exists {
			t.Errorf("the rule {%s, %s} names a package that does not exist", w.pkg, w.never)
		}
	}
	for _, d := range direct {
		for _, p := range all {
			if slices.Contains(p.Imports, d.never) && !slices.Contains(d.except, p.name()) {
				t.Errorf("%s imports %s, and must not: %s", p.name(), d.never, d.reason)
			}
		}
	}
}

// Only the command reads the process's surroundings and ends it.
func TestOnlyTheCommandTouchesTheProcess(t *testing.T) {
	touching := regexp.MustCompile(`\b(os\.(Args|Getenv|LookupEnv|Environ|Exit)|slog\.SetDefault|prometheus\.(DefaultRegisterer|DefaultGatherer|MustRegister)|promauto\.New)\b`)
	for _, p := range packages(t) {
		if matches("cmd/...", p.name()) || p.name() == "backends/backendtest" {
			continue
		}
		for _, file := range p.GoFiles {
			text, err := os.ReadFile(filepath.Join(p.Dir, file))
			if err != nil {
				t.Fatal(err)
			}
			if found := touching.Find(text); found != nil {
				t.Errorf("%s/%s uses %s, which is the command's alone", p.name(), file, found)
			}
		}
	}
}

func TestEachPackageHasOneComment(t *testing.T) {
	for _, p := range packages(t) {
		var with []string
		for _, file := range p.GoFiles {
			tree, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, file), nil, parser.PackageClauseOnly|parser.ParseComments)
			if err != nil {
				t.Fatal(err)
			}
			if tree.Doc != nil {
				with = append(with, file)
			}
		}
		if len(with) != 1 {
			t.Errorf("%s: %d package comments %v, want exactly one", p.name(), len(with), with)
		}
	}
}

func TestFilesHoldOneConcept(t *testing.T) {
	for _, p := range packages(t) {
		for _, file := range p.GoFiles {
			text, err := os.ReadFile(filepath.Join(p.Dir, file))
			if err != nil {
				t.Fatal(err)
			}
			name := p.name() + "/" + file
			if lines := strings.Count(string(text), "\n"); lines > 500 && longFiles[name] == "" {
				t.Errorf("%s has %d lines; split it, or say in longFiles why not", name, lines)
			}
		}
	}
}

// Every metric stands in the handbook, and the handbook names no other.
func TestTheHandbookKnowsTheMetrics(t *testing.T) {
	const handbook = "../stager/HANDBOOK.md"
	text, err := os.ReadFile(handbook)
	if err != nil {
		t.Fatal(err)
	}
	metric := regexp.MustCompile(`\bstager_[a-z_]+\b`)
	told := make(map[string]bool)
	for _, name := range metric.FindAllString(string(text), -1) {
		told[name] = true
	}
	defined := make(map[string]bool)
	quoted := regexp.MustCompile(`"(stager_[a-z_]+)"`)
	for _, p := range packages(t) {
		for _, file := range p.GoFiles {
			source, err := os.ReadFile(filepath.Join(p.Dir, file))
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range quoted.FindAllStringSubmatch(string(source), -1) {
				defined[m[1]] = true
			}
		}
	}
	for name := range defined {
		if !told[name] {
			t.Errorf("%s is not in %s", name, handbook)
		}
	}
	for name := range told {
		if !defined[name] {
			t.Errorf("%s is in %s and nowhere else", name, handbook)
		}
	}
}

func TestTheProductReplacesNoModule(t *testing.T) {
	file, err := os.Open("../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if strings.HasPrefix(strings.TrimSpace(lines.Text()), "replace") {
			t.Errorf("go.mod: %s", lines.Text())
		}
	}
}
