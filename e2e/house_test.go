package e2e

import (
	"bufio"
	"encoding/json"
	"errors"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
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
	{"backends", "github.com/jcmturner/...", "users of a store pay for the protocols they use"},
	{"backends", "github.com/cloudsoda/...", "users of a store pay for the protocols they use"},
	{"backends", "github.com/buildbarn/...", "users of a store pay for the protocols they use"},
	{"backends", "github.com/colinmarc/...", "users of a store pay for the protocols they use"},
	{"backends", module + "window/...", "stores know nothing of what their bytes are for"},
	{"backends", module + "stager/...", "stores know nothing of what their bytes are for"},
	{"backends/nfs/internal/rpc", module + "backends/nfs/...", "remote calls know no protocol above them"},
	{"backends/nfs/internal/nfs3", module + "backends/nfs/internal/nfs4", "the versions of NFS share what remote and rpc have"},
	{"backends/nfs/internal/nfs4", module + "backends/nfs/internal/nfs3", "the versions of NFS share what remote and rpc have"},
	{"backends/hdfs/internal/rpc", module + "...", "remote calls know no store"},
	{"stager/checkpoint", module + "window", "feeding and saving meet in the daemon only"},
	{"stager/download", module + "stager/checkpoint", "feeding and saving meet in the daemon only"},
	{"stager/transfer", module + "window/...", "a copy passes through memory and touches no disk"},
	{"stager/pack", module + "window/...", "archives are made of what passes through memory"},
	{"stager/check", module + "window/...", "what a store keeps has nothing to do with what its bytes are for"},
	{"stager/admission/...", module + "window/...", "a webhook changes pods; what they do is the daemon's business"},
	{"stager/sample", module + "backends", "a sampler reads what a window brought"},
	{"stager/sample", module + "stager/api", "a sampler asks a Source, which may be a window of its own process"},
	{"stager/preemption", module + "...", "it waits for a word, and what to do then is the daemon's business"},
	{"stager/...", module + "backends/all", "the registry is handed in, so that tests bring their own"},
	{"stager/...", module + "cmd/stager", "the command is the outermost shell"},
	{"cmd/...", module + "backends/mem", "a store for tests has no place in the product"},
	{"cmd/...", "testing", "tests have no place in the product"},
	{"backends/conformance", "testing", "operators run the contract by the product's own command"},
	{"backends/conformance", "os/exec", "operators run the contract by the product's own command"},
}

// direct says which packages alone may import something.
var direct = []struct {
	never  string
	except []string
	reason string
}{
	{"net/http", []string{"backends/az", "backends/conformance/hub", "backends/conformance/live", "backends/conformance/rotation", "backends/git", "backends/gs", "backends/hf", "backends/http", "backends/internal/objectstore", "backends/oss", "backends/s3", "cmd/stager", "stager", "stager/admission", "stager/admission/kube", "stager/preemption", "stager/api"}, "the API is the daemon's and the webhook's, and a notice is asked for; the rest knows no protocol"},
	{"os/signal", []string{"cmd/stager"}, "signals are the command's"},
	{"flag", []string{"stager/internal/golden"}, "flags are the command's, which has kong, and go test's"},
	{"log", nil, "log/slog is the log"},
}

// pure are packages of functions that depend on their arguments alone, so that a
// webhook, a scheduler and a test call the very same.
var pure = []string{"stager/plan", "stager/internal/shuffle", "stager/jobspec", "stager/jobspec/pai", "stager/jobspec/yamledit"}

// impure is what they never import themselves.
var impure = []string{"net", "net/http", "os", "os/exec", "syscall"}

// longFiles are those over 500 lines, each with its reason.
var longFiles = map[string]string{}

type pkg struct {
	ImportPath, Dir           string
	GoFiles, IgnoredGoFiles   []string // the latter are for other systems
	Imports, Deps             []string
	TestGoFiles, XTestGoFiles []string
}

func (p pkg) name() string { return strings.TrimPrefix(p.ImportPath, module) }

// sources are its files without tests, by path, also those of other systems.
func (p pkg) sources(t *testing.T) map[string]string {
	t.Helper()
	texts := make(map[string]string)
	for _, file := range slices.Concat(p.GoFiles, p.IgnoredGoFiles) {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		text, err := os.ReadFile(filepath.Join(p.Dir, file))
		if err != nil {
			t.Fatal(err)
		}
		texts[p.name()+"/"+file] = string(text)
	}
	return texts
}

// packages are the product's.
func packages(t *testing.T) []pkg {
	t.Helper()
	cmd := exec.Command("go", "list", "-json=ImportPath,Dir,GoFiles,IgnoredGoFiles,Imports,Deps", "./...")
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
		if !known || !exists(all, w.never) {
			t.Errorf("the rule {%s, %s} names a package that does not exist", w.pkg, w.never)
		}
	}
	for _, name := range pure {
		i := slices.IndexFunc(all, func(p pkg) bool { return p.name() == name })
		if i < 0 {
			t.Errorf("the list of pure packages names %s, which does not exist", name)
			continue
		}
		for _, never := range impure {
			if slices.Contains(all[i].Imports, never) {
				t.Errorf("%s imports %s, and must not: it is a pure function of bytes", name, never)
			}
		}
	}
	for _, d := range direct {
		unused := slices.Clone(d.except)
		for _, p := range all {
			if !slices.Contains(p.Imports, d.never) {
				continue
			}
			if i := slices.Index(unused, p.name()); i >= 0 {
				unused = slices.Delete(unused, i, i+1)
			} else {
				t.Errorf("%s imports %s, and must not: %s", p.name(), d.never, d.reason)
			}
		}
		if len(unused) > 0 || !exists(all, d.never) {
			t.Errorf("the rule for %s: %q need no exception, or nobody could import it", d.never, unused)
		}
	}
}

// exists tells whether something of the product is what pattern means, or stands on it.
func exists(all []pkg, pattern string) bool {
	return slices.ContainsFunc(all, func(p pkg) bool {
		return matches(pattern, p.ImportPath) || slices.ContainsFunc(p.Deps, func(dep string) bool { return matches(pattern, dep) })
	})
}

// A protocol is what the registry knows. One never leans on another, and nobody else
// leans on any.
func TestProtocolsAreImportedByTheRegistryAlone(t *testing.T) {
	all := packages(t)
	var protocols []string
	for _, p := range all {
		if p.name() == "backends/all" {
			protocols = slices.DeleteFunc(p.Imports, func(path string) bool { return !strings.HasPrefix(path, module+"backends/") })
		}
	}
	for _, name := range []string{"az", "file", "ftp", "git", "gs", "hdfs", "hf", "http", "nfs", "oss", "s3", "sftp", "smb"} {
		if !slices.Contains(protocols, module+"backends/"+name) {
			t.Errorf("the registry does not import backends/%s", name)
		}
	}
	for _, p := range all {
		for _, protocol := range protocols {
			if p.name() == "backends/all" || matches(protocol+"/...", p.ImportPath) {
				continue
			}
			for _, path := range p.Imports {
				if matches(protocol+"/...", path) {
					t.Errorf("%s imports %s, and must not: the registry is the only importer of protocols", p.name(), path)
				}
			}
		}
	}
}

// Only the command reads the process's surroundings, ends it, and decides its exit code.
func TestProcessStateIsTouchedByTheCommandOnly(t *testing.T) {
	touching := regexp.MustCompile(`\b(os\.(Args|Getenv|LookupEnv|Environ|Exit)|slog\.SetDefault|prometheus\.(DefaultRegisterer|DefaultGatherer|MustRegister)|promauto\.New)\b|func \([^)]*\) ExitCode\(`)
	for _, p := range packages(t) {
		if matches("cmd/...", p.name()) || p.name() == "backends/conformance/live" {
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

func TestPackagesHaveOneComment(t *testing.T) {
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

// A test that is skipped says so at the end of "make test", by live.Require.
func TestSkipsAreReported(t *testing.T) {
	skips := regexp.MustCompile(`\b(t|tb|b)\.Skip(f|Now)?\(`)
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && d.Name() == ".cache" {
			return fs.SkipDir
		}
		if err != nil || !strings.HasSuffix(path, "_test.go") || strings.Contains(path, "conformance/live/") || path == "../e2e/house_test.go" {
			return err
		}
		text, err := os.ReadFile(path)
		if found := skips.Find(text); found != nil {
			t.Errorf("%s has %s, want live.Require", path, found)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// The page of metrics lists every metric that the code names, and no other.
func TestMetricsPageIsComplete(t *testing.T) {
	const page = "../docs/reference/metrics.md"
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	metric := regexp.MustCompile(`\bstager_[a-z_]+\b`)
	listed := make(map[string]bool)
	for _, name := range metric.FindAllString(string(text), -1) {
		listed[name] = true
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
		if !listed[name] {
			t.Errorf("%s is not in %s", name, page)
		}
	}
	for name := range listed {
		if !defined[name] {
			t.Errorf("%s is in %s and nowhere else", name, page)
		}
	}
}

func TestModulesAreNotReplaced(t *testing.T) {
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

// A module that only tests need is in go.mod because it is needed beside the code that it tests.
// The line says what for.
func TestModulesOfTestsHaveAReason(t *testing.T) {
	cmd := exec.Command("go", "list", "-deps", "-f", "{{with .Module}}{{.Path}}{{end}}", "./cmd/...")
	cmd.Dir, cmd.Stderr = "..", os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	product := strings.Fields(string(out))
	text, err := os.ReadFile("../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(product, "golang.org/x/sys") {
		t.Fatalf("the modules of the product are %q, want golang.org/x/sys among them", product)
	}
	for _, m := range regexp.MustCompile(`(?m)^(?:require |\t)(\S+) v\S+(.*)$`).FindAllStringSubmatch(string(text), -1) {
		if !slices.Contains(product, m[1]) && strings.TrimSpace(m[2]) == "" {
			t.Errorf("go.mod: %s is only for tests and has no reason beside it", m[1])
		}
	}
}
