package e2e

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"
)

// bannedWords are words that identifiers and file names must not contain, each with the standard
// term to use instead.
var bannedWords = map[string]string{
	"arbiter": "upload throttle", "arrival": "received, staged", "bury": "remove", "buried": "removed", "cargo": "upload job, block cache",
	"climb": "ramp up", "crew": "worker pool", "despair": "canceled", "dice": "random", "dog": "watchdog", "doomed": "pending deletion",
	"facts": "capabilities", "folder": "directory", "folders": "directories", "getter": "client", "heir": "carry-over", "hungry": "starved",
	"landed": "verified", "lender": "BufferedReader", "leftovers": "orphans", "shelf": "snapshot directory", "shown": "published",
	"summer": "ChecksumReader", "tells": "returns, reports", "told": "reported", "trickle": "minimum rate", "vain": "canceled",
}

// bannedPhrases are phrases that messages must not contain, each with what to write instead.
var bannedPhrases = []struct{ phrase, instead string }{
	{`anew`, "again"},
	{`answers? again`, "responds again"},
	{`as good as`, "almost"},
	{`asked? of`, "request from"},
	{`begins anew`, "restarts"},
	{`beside(s)? it`, "next to it"},
	{`brings?|brought`, "fetches, reads"},
	{`comes? to (stand|an end|be)`, "is, ends"},
	{`does not take`, "rejects, does not support"},
	{`folders?`, "directory"},
	{`goes on`, "continues, resumes"},
	{`gone wrong`, "failed"},
	{`is none of`, "is not one of"},
	{`it is how (many|much)`, "set the number"},
	{`lea(d|ve)s? (it )?(out|away)\b`, "remove, omit, skip"},
	{`lies? in each other`, "contain each other"},
	{`leftovers`, "orphans"},
	{`mostly`, "usually"},
	{`nobody`, "no reader, no process"},
	{`say (it|that|which|where|how|so|who|them)\b`, "set, write"},
	{`somebody`, "another client"},
	{`speaks?`, "supports, uses"},
	{`stands? (already|behind|there|in line)`, "duplicate, follows"},
	{`the end begins`, "draining"},
	{`told|tells`, "reports, returns"},
	{`verbs`, "file protocol"},
	{`will have none`, "rejects"},
}

// subjectless are the words with which a test's name must not begin: a name begins with its subject,
// so that -run finds all tests about it.
var subjectless = regexp.MustCompile(`^(Test|Fuzz|Benchmark)(An?|The|What|Whatever|When|Where|Wherever|Who|How|Nothing|Nobody|No|Each|Every|It|That|This|There|If|Both|Only|Same|Without|While|Not|Any|Anybody|Another|Other|Somebody|Something|From|After|Before|Until|Several|Many|Few|Some|One|Two|All|Is|Still)([A-Z0-9]|$)`)

// wordsOf splits an identifier or a file's name into words in lower case.
func wordsOf(name string) (words []string) {
	r, from := []rune(name), 0
	for i := 1; i <= len(r); i++ {
		if i == len(r) || !unicode.IsLetter(r[i]) || unicode.IsUpper(r[i]) && (unicode.IsLower(r[i-1]) || i+1 < len(r) && unicode.IsLower(r[i+1])) {
			words = append(words, strings.ToLower(strings.TrimFunc(string(r[from:i]), func(c rune) bool { return !unicode.IsLetter(c) })))
			from = i
		}
	}
	return words
}

// wordFaults returns the banned words of a file, each with its line.
func wordFaults(name string, source any) (faults []string, err error) {
	fset := token.NewFileSet()
	tree, err := parser.ParseFile(fset, name, source, 0)
	if err != nil {
		return nil, err
	}
	add := func(pos token.Pos, format string, args ...any) {
		faults = append(faults, fmt.Sprintf("%s:%d: %s", name, fset.Position(pos).Line, fmt.Sprintf(format, args...)))
	}
	checkName := func(pos token.Pos, kind, name string) {
		for _, word := range wordsOf(name) {
			if instead, banned := bannedWords[word]; banned {
				add(pos, "%s %s: %q is not a standard term; use %s", kind, name, word, instead)
			}
		}
	}
	test := strings.HasSuffix(name, "_test.go")
	checkName(tree.Package, "file", strings.TrimSuffix(filepath.Base(name), ".go"))
	var path []ast.Node
	ast.Inspect(tree, func(n ast.Node) bool {
		if n == nil {
			path = path[:len(path)-1]
			return true
		}
		path = append(path, n)
		switch n := n.(type) {
		case *ast.Ident:
			if n.Obj == nil || n.Obj.Pos() == n.Pos() {
				checkDeclared(path, n, func() { checkName(n.Pos(), "identifier", n.Name) })
			}
		case *ast.FuncDecl:
			if test && n.Recv == nil && subjectless.MatchString(n.Name.Name) {
				add(n.Pos(), "%s: the name does not begin with its subject", n.Name.Name)
			}
		case *ast.BasicLit:
			if test || n.Kind != token.STRING || !strings.Contains(n.Value, " ") {
				break
			}
			text, err := strconv.Unquote(n.Value)
			if err != nil {
				break
			}
			for _, b := range bannedPatterns {
				if found := b.pattern.FindString(text); found != "" {
					add(n.Pos(), "message %s: %q is not plain English; use %s", n.Value, found, b.instead)
				}
			}
		}
		return true
	})
	return faults, nil
}

// checkDeclared calls check if the identifier at the end of path is declared there.
func checkDeclared(path []ast.Node, id *ast.Ident, check func()) {
	if len(path) < 2 {
		return
	}
	declared := false
	switch parent := path[len(path)-2].(type) {
	case *ast.FuncDecl:
		declared = parent.Name == id
	case *ast.TypeSpec:
		declared = parent.Name == id
	case *ast.Field:
		declared = slices.Contains(parent.Names, id)
	case *ast.ValueSpec:
		declared = slices.Contains(parent.Names, id)
	case *ast.AssignStmt:
		declared = parent.Tok == token.DEFINE && slices.Contains(parent.Lhs, ast.Expr(id))
	case *ast.RangeStmt:
		declared = parent.Tok == token.DEFINE && (parent.Key == ast.Expr(id) || parent.Value == ast.Expr(id))
	}
	if declared {
		check()
	}
}

var bannedPatterns = func() (patterns []struct {
	pattern *regexp.Regexp
	instead string
},
) {
	for _, b := range bannedPhrases {
		patterns = append(patterns, struct {
			pattern *regexp.Regexp
			instead string
		}{regexp.MustCompile(`(?i)\b(` + b.phrase + `)\b`), b.instead})
	}
	return patterns
}()

func TestWordsArePlain(t *testing.T) {
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && (d.Name() == ".cache" || d.Name() == ".git" || d.Name() == "testdata") {
			return fs.SkipDir
		}
		if err != nil || !strings.HasSuffix(path, ".go") || path == "house_words_test.go" || strings.HasSuffix(path, "/house_words_test.go") {
			return err
		}
		faults, err := wordFaults(path, nil)
		for _, fault := range faults {
			t.Error(strings.TrimPrefix(fault, "../"))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestWordsAreFoundWhenPutBack(t *testing.T) {
	for source, want := range map[string]string{
		"package x\n\nfunc newGetter() {}":                                            `a.go:3: identifier newGetter: "getter" is not a standard term; use client`,
		"package x\n\ntype s struct {\n\tdoomed int\n}":                               `a.go:4: identifier doomed: "doomed" is not a standard term; use pending deletion`,
		"package x\n\nfunc f() {\n\ttold := 1\n\t_ = told\n}":                         `a.go:4: identifier told: "told" is not a standard term; use reported`,
		"package x\n\nvar s = \"the end begins: bye\"":                                `a.go:3: message "the end begins: bye": "the end begins" is not plain English; use draining`,
		"package x\n\nvar s = fail(\n\t\"a file\",\n\t\"somebody has it open\",\n)\n": `a.go:5: message "somebody has it open": "somebody" is not plain English; use another client`,
	} {
		if faults, err := wordFaults("a.go", source); err != nil || len(faults) != 1 || faults[0] != want {
			t.Errorf("%q: got %q, %v, want %s", source, faults, err, want)
		}
	}
	if faults, err := wordFaults("a_test.go", "package x\n\nfunc TestItWorks() {}"); err != nil || len(faults) != 1 || !strings.HasPrefix(faults[0], "a_test.go:3: TestItWorks: ") {
		t.Errorf("a test without subject: got %q, %v, want one fault in line 3", faults, err)
	}
	if faults, err := wordFaults("arbiter.go", "package x\n\n// told\nfunc f(s struct{ Used int }) { s.Used = 1 }"); err != nil || len(faults) != 1 || !strings.HasPrefix(faults[0], "arbiter.go:1: file arbiter: ") {
		t.Errorf("a file's name: got %q, %v, want one fault in line 1", faults, err)
	}
}

// commentVerbs follow the name in a doc comment.
var commentVerbs = strings.Fields("adds calls closes describes encodes has holds implements is lists publishes reads records removes reports requests returns runs sends sets starts waits writes yields")

// misnamed returns the first word of a function's doc comment if it is another name than the
// function's, as after a renaming.
func misnamed(f *ast.FuncDecl) string {
	words := strings.Fields(f.Doc.Text())
	if len(words) < 2 || words[0] == f.Name.Name || words[0] == "A" || words[0] == "An" || words[0] == "The" {
		return ""
	}
	if lower := unicode.IsLower(rune(words[0][0])); lower && slices.Contains(commentVerbs, words[1]) {
		return words[0]
	}
	return ""
}

func TestDocCommentsNameTheirFunction(t *testing.T) {
	for _, p := range packages(t) {
		for _, file := range p.GoFiles {
			name := filepath.Join(p.Dir, file)
			tree, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range tree.Decls {
				if f, ok := d.(*ast.FuncDecl); ok {
					if word := misnamed(f); word != "" {
						t.Errorf("%s/%s: the comment of %s begins with %s", p.name(), file, f.Name.Name, word)
					}
				}
			}
		}
	}
	tree, err := parser.ParseFile(token.NewFileSet(), "a.go", "package a\n\n// landed returns it.\nfunc verified() {}", parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	if got := misnamed(tree.Decls[0].(*ast.FuncDecl)); got != "landed" {
		t.Errorf("a comment that was not renamed: got %q, want landed", got)
	}
}
