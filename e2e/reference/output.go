package reference

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/types"
	"regexp"
	"slices"
	"strings"
)

// output is what a command prints with -o json.
type output struct {
	command string     // such as "manifests webhook"
	of      types.Type // nil: null
	how     string     // the method that prints it: value, line, item or documents
}

// outputs returns what the commands print, found in their calls of shape's methods.
func (p *program) outputs() ([]output, error) {
	var all []output
	for _, file := range p.files {
		for _, decl := range file.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if !ok || f.Recv == nil || f.Body == nil {
				continue
			}
			command, isCommand := strings.CutSuffix(typeWord(f.Recv.List[0].Type), "Cmd")
			ast.Inspect(f.Body, func(n ast.Node) bool {
				if o := p.printed(n); o != nil && isCommand {
					o.command = wordsOf(command)
					all = append(all, *o)
				}
				return true
			})
		}
	}
	for _, name := range p.command.Scope().Names() {
		all = append(all, p.inherited(name, all)...)
	}
	slices.SortStableFunc(all, func(a, b output) int {
		return cmp.Or(cmp.Compare(a.command, b.command), cmp.Compare(fmt.Sprint(a.of), fmt.Sprint(b.of)))
	})
	return all, nil
}

// inherited returns what a command prints by the methods of another one, which it embeds.
func (p *program) inherited(name string, all []output) (more []output) {
	command, isCommand := strings.CutSuffix(name, "Cmd")
	owner, isStruct := p.command.Scope().Lookup(name).Type().Underlying().(*types.Struct)
	if !isCommand || !isStruct {
		return nil
	}
	for i := range owner.NumFields() {
		other, _ := strings.CutSuffix(owner.Field(i).Name(), "Cmd")
		for _, o := range all {
			if owner.Field(i).Embedded() && o.command == other {
				o.command = command
				more = append(more, o)
			}
		}
	}
	return more
}

// wordsOf returns the words of a command by the name of its type: paiConvert is "pai convert".
func wordsOf(name string) string {
	return strings.ToLower(upper.ReplaceAllString(name, " $0"))
}

var upper = regexp.MustCompile(`[A-Z]`)

// typeWord returns the name of a type in the syntax tree.
func typeWord(e ast.Expr) string {
	if star, ok := e.(*ast.StarExpr); ok {
		e = star.X
	}
	if id, ok := e.(*ast.Ident); ok {
		return id.Name
	}
	return ""
}

// printed returns what a call prints if it is one of a method of shape.
func (p *program) printed(n ast.Node) *output {
	call, ok := n.(*ast.CallExpr)
	if !ok {
		return nil
	}
	method, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || !slices.Contains([]string{"value", "line", "item", "documents", "printed"}, method.Sel.Name) {
		return nil
	}
	selected := p.info.Selections[method]
	if selected == nil {
		return nil
	}
	recv := selected.Obj().(*types.Func).Signature().Recv()
	if recv == nil || recv.Type().(*types.Named).Obj().Name() != "shape" {
		return nil
	}
	of := p.info.Types[call.Args[len(call.Args)-1]].Type
	if basic, ok := of.(*types.Basic); ok && basic.Kind() == types.UntypedNil {
		of = nil
	}
	return &output{of: of, how: method.Sel.Name}
}

const outputIntro = `# Output for programs

These commands have ` + "`-o table|json|yaml`" + `. JSON and YAML have the same field names. They are stable: within a major version a field keeps its name, its type and its
meaning. New fields may come at any time, so ignore those that you do not know. Bytes and seconds are plain numbers, times are in RFC 3339. Fields marked
*optional* are absent when they are empty. With ` + "`--dry-run`" + `, commands print what they would do in the same form; prefetch prints only the sum.

Commands without ` + "`-o`" + ` print a document in its own format (inject, uninject and krm keep that of their input, cat prints the object and completion a script), a sentence for people,
or nothing.

` + "```sh\nstager ls -R -o json s3://datasets/train/ | jq -r .key\n```" + `

| command | prints |
|---|---|
`

// outputPage returns the page of what commands print with -o json.
func outputPage(p *program) (string, error) {
	all, err := p.outputs()
	if err != nil {
		return "", err
	}
	var b strings.Builder
	b.WriteString(generated + outputIntro)
	var described []*types.Named
	var before string
	for _, o := range all {
		what := "`null`, if there is nothing"
		switch {
		case o.how == "documents" || o.how == "printed":
			what = "its documents, as YAML also with `-o table`, as a line of JSON for each with `-o json`"
		case o.of != nil:
			named := structIn(o.of)
			if named == nil {
				return "", fmt.Errorf("stager %s prints a %s with -o json, whose fields have no description; use a struct", o.command, o.of)
			}
			described, what = append(described, named), outputWords(o)
		}
		line := fmt.Sprintf("| [%s](cli.md#stager-%s) | %s |\n", o.command, strings.ReplaceAll(o.command, " ", "-"), what)
		if line != before { // a command may print a type in several places
			b.WriteString(line)
		}
		before = line
	}
	tables, err := p.tables(described...)
	b.WriteString("\n## Types\n" + tables)
	return b.String(), err
}

// outputWords says what is printed, with a link to the fields.
func outputWords(o output) string {
	link := notationOf(structIn(o.of))
	_, list := o.of.Underlying().(*types.Slice)
	switch {
	case o.how == "item":
		return "a line for each " + link
	case list:
		return "a list of " + link
	}
	return "one " + link
}
