package e2e

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The page names the functions that a shard, a checkpoint and a plan pass. A renamed function
// must be renamed there.
func TestArchitecturePageNamesExistingFunctions(t *testing.T) {
	page, err := os.ReadFile("../docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	known := functions(t, "../stager", "../window", "../backends")
	methods := regexp.MustCompile(`\(\*(\w+)\)\.(\w+)`).FindAllStringSubmatch(string(page), -1)
	plain := regexp.MustCompile("`([a-z]+)\\.([A-Z]\\w*)`").FindAllStringSubmatch(string(page), -1)
	if len(methods) < 15 || len(plain) < 4 {
		t.Fatalf("the page names %d methods and %d functions, want its tables", len(methods), len(plain))
	}
	for _, m := range append(methods, plain...) {
		if !known[m[1]+"."+m[2]] {
			t.Errorf("docs/architecture.md names %s, which does not exist", m[0])
		}
	}
}

// functions returns the functions below directories as package.Name, and the methods as Type.Name.
func functions(t *testing.T, dirs ...string) map[string]bool {
	t.Helper()
	known := make(map[string]bool)
	for _, dir := range dirs {
		err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || filepath.Ext(p) != ".go" || strings.HasSuffix(p, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), p, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			for _, decl := range file.Decls {
				f, ok := decl.(*ast.FuncDecl)
				if !ok {
					continue
				}
				of := file.Name.Name
				if f.Recv != nil {
					typ := f.Recv.List[0].Type
					if star, ok := typ.(*ast.StarExpr); ok {
						typ = star.X
					}
					name, ok := typ.(*ast.Ident)
					if !ok {
						continue
					}
					of = name.Name
				}
				known[of+"."+f.Name.Name] = true
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return known
}
