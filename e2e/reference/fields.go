package reference

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/stager-dev/stager/stager/plan"
)

// Field is a key of a plan.
type Field struct {
	Path     string // such as spec.inputs[].window.size
	Name     string // its last part
	Type     reflect.Type
	Doc      string // what it means
	Default  any    // as in JSON; nil: none
	Enum     []string
	Required bool
	Min, Max *int64 // nil: unbounded
	Fields   []*Field
}

// Plan returns the fields of a plan. source is the directory of package plan.
func Plan(source string) (*Field, error) {
	docs, err := comments(source)
	if err != nil {
		return nil, err
	}
	root := &Field{Type: reflect.TypeFor[plan.StagePlan](), Doc: docs["StagePlan"]}
	return root, root.fill(docs)
}

// fill finds the fields below f.
func (f *Field) fill(docs map[string]string) error {
	owner := elem(f.Type)
	for i := range owner.NumField() {
		member := owner.Field(i)
		name, _, _ := strings.Cut(member.Tag.Get("json"), ",")
		sub := &Field{Path: strings.TrimPrefix(f.Path+"."+name, "."), Name: name, Type: member.Type, Doc: docs[owner.Name()+"."+member.Name]}
		if sub.Doc == "" {
			return fmt.Errorf("field %s of %s has no comment", member.Name, owner)
		}
		if err := sub.probe(); err != nil {
			return err
		}
		if sub.Type.Kind() == reflect.Slice {
			sub.Path += "[]"
		}
		if elem(sub.Type).Kind() == reflect.Struct {
			if err := sub.fill(docs); err != nil {
				return err
			}
		}
		if sub.Type.Kind() == reflect.Struct { // its parent has one if it needs one
			sub.Required = sub.Required || slices.ContainsFunc(sub.Fields, func(f *Field) bool { return f.Required })
		}
		f.Fields = append(f.Fields, sub)
	}
	return nil
}

// elem returns what a pointer or a list is of.
func elem(t reflect.Type) reflect.Type {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	return t
}

// comments returns the comments of the types and fields of a package, by "Type" and "Type.Field".
// Names of constants are replaced by their values.
func comments(source string) (map[string]string, error) {
	packages, err := parser.ParseDir(token.NewFileSet(), source, func(f fs.FileInfo) bool { return !strings.HasSuffix(f.Name(), "_test.go") }, parser.ParseComments) //nolint:staticcheck // types are not needed
	if err != nil {
		return nil, err
	}
	docs, constants := make(map[string]string), make(map[string]string)
	for _, p := range packages {
		ast.Inspect(p, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GenDecl:
				for _, spec := range n.Specs {
					collect(spec, n.Doc, docs, constants)
				}
			case *ast.FuncDecl:
				return false
			}
			return true
		})
	}
	for at, text := range docs {
		docs[at] = identifier.ReplaceAllStringFunc(strings.Join(strings.Fields(text), " "), func(word string) string {
			if value, ok := constants[word]; ok {
				return value
			}
			return word
		})
	}
	return docs, nil
}

var identifier = regexp.MustCompile(`\b[A-Z][A-Za-z]+\b`)

// collect adds the comments of a declaration.
func collect(spec ast.Spec, doc *ast.CommentGroup, docs, constants map[string]string) {
	switch spec := spec.(type) {
	case *ast.ValueSpec:
		for i, name := range spec.Names {
			if i >= len(spec.Values) {
				continue
			}
			if lit, ok := spec.Values[i].(*ast.BasicLit); ok && lit.Kind == token.STRING {
				constants[name.Name], _ = strconv.Unquote(lit.Value) // a literal of the parser's
			}
		}
	case *ast.TypeSpec:
		docs[spec.Name.Name] = doc.Text()
		fields, ok := spec.Type.(*ast.StructType)
		if !ok {
			return
		}
		for _, f := range fields.Fields.List {
			for _, name := range f.Names {
				docs[spec.Name.Name+"."+name.Name] = strings.TrimPrefix(f.Doc.Text()+f.Comment.Text(), name.Name+" is ")
			}
		}
	}
}
