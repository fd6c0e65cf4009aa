package reference

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/constant"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
)

// module is the product's.
const module = "github.com/stager-dev/stager"

// program has the types of the command and of all packages that it imports, with their comments.
type program struct {
	types.Importer
	source  string
	command *types.Package
	files   []*ast.File // of the command
	info    types.Info
	docs    map[string]map[string]string // by package: what comments returns
	meant   map[string]bool              // names of meanings that were needed
}

// readProgram reads the types of the module in source.
func readProgram(source string) (*program, error) {
	cmd := exec.Command("go", "list", "-deps", "-export", "-json=ImportPath,Dir,Export,GoFiles", "./cmd/stager")
	cmd.Dir, cmd.Stderr = source, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("listing the packages of stager: %w", err)
	}
	exports := make(map[string]string)
	var command struct {
		ImportPath, Dir, Export string
		GoFiles                 []string
	}
	for in := json.NewDecoder(bytes.NewReader(out)); ; {
		err := in.Decode(&command) // the last one stays: a package is listed after those that it imports
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		exports[command.ImportPath] = command.Export
	}
	set := token.NewFileSet()
	p := &program{
		Importer: importer.ForCompiler(set, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) }),
		source:   source,
		info:     types.Info{Types: make(map[ast.Expr]types.TypeAndValue), Selections: make(map[*ast.SelectorExpr]*types.Selection)},
		docs:     make(map[string]map[string]string),
		meant:    make(map[string]bool),
	}
	for _, name := range command.GoFiles {
		file, err := parser.ParseFile(set, filepath.Join(command.Dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		p.files = append(p.files, file)
	}
	p.command, err = (&types.Config{Importer: p}).Check(command.ImportPath, set, p.files, &p.info)
	return p, err
}

// named returns a type by its package and name, such as api.Snapshot.
func (p *program) named(name string) (types.Type, error) {
	path, base, _ := strings.Cut(name, ".")
	if path != "window" {
		path = "stager/" + path
	}
	pkg, err := p.Import(module + "/" + path)
	if err != nil {
		return nil, err
	}
	object := pkg.Scope().Lookup(base)
	if object == nil {
		return nil, fmt.Errorf("there is no type %s", name)
	}
	return object.Type(), nil
}

// member is a field of a type as it is in JSON.
type member struct {
	name, doc string
	of        types.Type
	optional  bool // absent when empty
}

// members returns the fields of a struct, with those of embedded ones.
func (p *program) members(named *types.Named) ([]member, error) {
	docs, err := p.comments(named.Obj().Pkg())
	if err != nil {
		return nil, err
	}
	var all []member
	owner := named.Underlying().(*types.Struct)
	for i := range owner.NumFields() {
		field := owner.Field(i)
		name, options, _ := strings.Cut(reflect.StructTag(owner.Tag(i)).Get("json"), ",")
		switch {
		case name == "-", !field.Exported() && !field.Embedded():
		case name == "" && field.Embedded():
			below, err := p.members(deref(field.Type()).(*types.Named))
			if err != nil {
				return nil, err
			}
			all = append(all, below...)
		case name == "":
			return nil, fmt.Errorf("field %s of %s has no name for JSON", field.Name(), named)
		case field.Type().String() == "time.Duration":
			return nil, fmt.Errorf("field %s of %s is a number of nanoseconds in JSON; use seconds", field.Name(), named)
		default:
			doc := strings.TrimPrefix(docs[named.Obj().Name()+"."+field.Name()], field.Name()+" ")
			if doc = strings.TrimPrefix(doc, "are "); doc == "" {
				doc = p.meaning(typeName(named), name)
			}
			if doc == "" {
				return nil, fmt.Errorf("field %s of %s has no meaning: give it a comment", field.Name(), named)
			}
			all = append(all, member{name, doc, field.Type(), strings.Contains(options, "omit")})
		}
	}
	return all, nil
}

// meaning returns that of a field without a comment, or "".
func (p *program) meaning(of, field string) string {
	for _, name := range []string{of + "." + field, field} {
		if text, ok := meanings[name]; ok {
			p.meant[name] = true
			return text
		}
	}
	return ""
}

// comments returns the comments of a package of the module.
func (p *program) comments(pkg *types.Package) (map[string]string, error) {
	if p.docs[pkg.Path()] == nil {
		docs, err := comments(filepath.Join(p.source, strings.TrimPrefix(pkg.Path(), module)))
		if err != nil {
			return nil, err
		}
		p.docs[pkg.Path()] = docs
	}
	return p.docs[pkg.Path()], nil
}

// about returns the comment of a type, without its name.
func (p *program) about(named *types.Named) (string, error) {
	docs, err := p.comments(named.Obj().Pkg())
	text := strings.TrimPrefix(docs[named.Obj().Name()], named.Obj().Name()+" ")
	return capital(strings.TrimPrefix(text, "is ")), err
}

func deref(t types.Type) types.Type {
	if pointer, ok := t.(*types.Pointer); ok {
		return pointer.Elem()
	}
	return t
}

// describedStruct returns t if it is a struct of the module, whose fields have comments.
func describedStruct(t types.Type) (*types.Named, bool) {
	named, ok := types.Unalias(t).(*types.Named)
	if !ok || named.Obj().Pkg() == nil || !strings.HasPrefix(named.Obj().Pkg().Path(), module) {
		return nil, false
	}
	_, ok = named.Underlying().(*types.Struct)
	return named, ok
}

// constants returns the values of a type of strings, in alphabetical order.
func constants(t types.Type) (values []string) {
	named, ok := types.Unalias(t).(*types.Named)
	if !ok || named.Obj().Pkg() == nil {
		return nil
	}
	scope := named.Obj().Pkg().Scope()
	for _, name := range scope.Names() {
		if c, ok := scope.Lookup(name).(*types.Const); ok && types.Identical(c.Type(), t) && c.Val().Kind() == constant.String {
			values = append(values, constant.StringVal(c.Val()))
		}
	}
	slices.Sort(values)
	return values
}

func capital(text string) string {
	if text == "" {
		return ""
	}
	return strings.ToUpper(text[:1]) + text[1:]
}
