package reference

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"

	"github.com/stager-dev/stager/stager/plan"
)

// Pages returns the generated files, by their paths below the product's module, which is in source.
func Pages(source string) (map[string][]byte, error) {
	root, err := Plan(filepath.Join(source, "stager", "plan"))
	if err != nil {
		return nil, err
	}
	schema, err := Schema(root)
	if err != nil {
		return nil, err
	}
	line, err := ReadCLI(source)
	if err != nil {
		return nil, err
	}
	metrics, err := metricsPage()
	if err != nil {
		return nil, err
	}
	types, err := readProgram(source)
	if err != nil {
		return nil, err
	}
	if err := checkRoutes(filepath.Join(source, "stager", "api")); err != nil {
		return nil, err
	}
	description, err := openAPI(types)
	if err != nil {
		return nil, err
	}
	logs, err := logsPage(source)
	if err != nil {
		return nil, err
	}
	output, err := outputPage(types)
	if err != nil {
		return nil, err
	}
	api, err := apiPage(types)
	if err != nil {
		return nil, err
	}
	return map[string][]byte{
		"docs/schema/stageplan.json":     schema,
		"docs/reference/plan.md":         []byte(planPage(root)),
		"docs/reference/cli.md":          []byte(cliPage(line)),
		"docs/reference/exit-codes.md":   []byte(exitCodesPage(line)),
		"docs/reference/environment.md":  []byte(environmentPage(line)),
		"docs/reference/urls.md":         []byte(urlsPage(line.Schemes)),
		"docs/reference/metrics.md":      []byte(metrics),
		"docs/reference/annotations.md":  []byte(annotationsPage()),
		"docs/reference/output.md":       []byte(output),
		"docs/reference/api.md":          []byte(api),
		"docs/schema/openapi.json":       description,
		"docs/reference/log-messages.md": []byte(logs),
	}, nil
}

// Write writes all pages.
func Write(source string) error {
	pages, err := Pages(source)
	if err != nil {
		return err
	}
	return write(source, pages)
}

// WriteMan writes the man pages of the module in source into a directory.
func WriteMan(source, dir, version string) error {
	line, err := ReadCLI(source)
	if err != nil {
		return err
	}
	return write(dir, ManPages(line, version))
}

// write writes files by their paths below dir.
func write(dir string, files map[string][]byte) error {
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// generated is the first line of a page.
const generated = "<!-- Generated from the code by make reference; do not edit. -->\n\n"

const planIntro = `# Fields of a plan

A plan is one YAML or JSON document. ` + "`stager run --dry-run -f plan.yaml`" + ` checks it, and reports all errors at once. Editors that support JSON Schema
complete and check it with [stageplan.json](../schema/stageplan.json): put this line at its top, with the path or URL of that file.

` + "```yaml\n# yaml-language-server: $schema=docs/schema/stageplan.json\n```" + `

Unknown fields are refused. Fields in **bold** are required. A field without a default is off or empty unless it is set. All fields exist since version 0.1.0.

| notation | meaning |
|---|---|
| size | bytes: a whole number, ` + "`500M` or `500MB` (10^6), `60Gi` or `60GiB` (2^30), `1.5G`" + ` |
| duration | ` + "`90s`, `10m`, `1h30m`" + ` |
| placeholders | ` + "`{job}`, `{namespace}`, `{pod}`, `{attempt}`, `{index}`, `{count}`, `{role}`, `{user}` and `{date}`" + ` in paths and URLs |
`

// planPage returns the page of the fields of a plan, with a section for each group.
func planPage(root *Field) string {
	var b strings.Builder
	b.WriteString(generated + planIntro)
	var section func(f *Field)
	section = func(f *Field) {
		title := "Top level"
		if f.Path != "" {
			title = "`" + f.Path + "`"
		}
		fmt.Fprintf(&b, "\n## %s\n\n| field | type | default | meaning |\n|---|---|---|---|\n", title)
		for _, sub := range f.Fields {
			name := "`" + sub.Name + "`"
			if sub.Required {
				name = "**" + name + "**"
			}
			fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", name, sub.notation(), sub.usual(), strings.ReplaceAll(sub.Doc, "|", `\|`))
		}
		for _, sub := range f.Fields {
			if len(sub.Fields) > 0 {
				section(sub)
			}
		}
	}
	section(root)
	return b.String()
}

// notation describes the type of a field.
func (f *Field) notation() string {
	switch kind := f.Type.Kind(); {
	case f.Path == "apiVersion":
		return "`" + plan.APIVersion + "`"
	case f.Path == "kind":
		return "`" + plan.Kind + "`"
	case f.Type == reflect.TypeFor[plan.Bytes]():
		return "size"
	case f.Type == reflect.TypeFor[plan.Duration]():
		return "duration"
	case kind == reflect.Slice && f.Enum != nil:
		return "list of `" + strings.Join(f.Enum, "`, `") + "`"
	case kind == reflect.Slice && f.Type.Elem().Kind() == reflect.String:
		return "list of text"
	case kind == reflect.Slice:
		return "list"
	case kind == reflect.Map:
		return "labels"
	case kind == reflect.Bool:
		return "`true`, `false`"
	case kind == reflect.Int, kind == reflect.Int64:
		return "number" + f.bounds()
	case kind == reflect.String && f.Enum != nil:
		return "`" + strings.Join(f.Enum, "`, `") + "`"
	case kind == reflect.String:
		return "text"
	}
	return "group"
}

func (f *Field) bounds() string {
	switch {
	case f.Min != nil && f.Max != nil:
		return fmt.Sprintf(" from %d to %d", *f.Min, *f.Max)
	case f.Min != nil:
		return fmt.Sprintf(" from %d", *f.Min)
	}
	return ""
}

// usual returns the default of a field as in YAML.
func (f *Field) usual() string {
	if f.Default == nil {
		return ""
	}
	if text, ok := f.Default.(string); ok {
		return "`" + text + "`"
	}
	if entries, ok := f.Default.([]any); ok {
		return "`" + strings.ReplaceAll(fmt.Sprint(entries), " ", ", ") + "`"
	}
	text, err := json.Marshal(f.Default)
	if err != nil {
		return ""
	}
	return "`" + string(text) + "`"
}
