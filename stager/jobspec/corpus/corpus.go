// Package corpus provides Kubernetes manifests for tests. It covers the kinds that run training
// jobs and some others, each in several YAML and JSON styles. The manifests follow the public APIs
// of the projects.
package corpus

import (
	"bytes"
	"embed"
	"encoding/json"
	"fmt"
	"io/fs"
	"path"
	"strings"

	"github.com/rogpeppe/go-internal/txtar"
	yamlnode "go.yaml.in/yaml/v3"
	"sigs.k8s.io/yaml"

	"github.com/stager-dev/stager/stager/jobspec/yamledit"
)

//go:embed manifests/*.txtar
var manifests embed.FS

// File is a manifest. Its name contains its origin and its style.
type File struct {
	Name string
	Text []byte
}

// Style returns the style of the file, or "" for the handwritten one.
func (f File) Style() string {
	_, style, _ := strings.Cut(f.Name, " ")
	return style
}

// Manifests returns the handwritten manifests.
func Manifests() ([]File, error) {
	names, err := fs.Glob(manifests, "manifests/*.txtar")
	if err != nil {
		return nil, err
	}
	var all []File
	for _, name := range names {
		text, err := manifests.ReadFile(name)
		if err != nil {
			return nil, err
		}
		for _, f := range txtar.Parse(text).Files {
			all = append(all, File{strings.TrimSuffix(path.Base(name), ".txtar") + "/" + f.Name, f.Data})
		}
	}
	return all, nil
}

// Files returns every manifest in every style.
func Files() ([]File, error) {
	written, err := Manifests()
	if err != nil {
		return nil, err
	}
	var all []File
	for _, f := range written {
		styled := []File{
			f,
			{f.Name + " CRLF", bytes.ReplaceAll(f.Text, []byte("\n"), []byte("\r\n"))},
			{f.Name + " open", bytes.TrimRight(f.Text, "\n")},
		}
		for _, w := range Writers {
			text, err := w.Rewrite(f.Text)
			if err != nil {
				return nil, fmt.Errorf("%s, %s: %w", f.Name, w.Name, err)
			}
			styled = append(styled, File{f.Name + " " + w.Name, text})
		}
		all = append(all, styled...)
	}
	return all, nil
}

// Writer rewrites manifests as a program does that parses and serializes them.
type Writer struct {
	Name  string
	write func(documents [][]byte) ([]byte, error)
}

// Rewrite returns a file with the same objects and the text that the writer produces.
func (w Writer) Rewrite(file []byte) ([]byte, error) {
	var documents [][]byte
	for _, d := range yamledit.Split(file) {
		asJSON, err := yaml.YAMLToJSON(d.Text)
		if err != nil {
			return nil, err
		}
		if string(asJSON) != "null" {
			documents = append(documents, d.Text)
		}
	}
	return w.write(documents)
}

// Writers are the YAML and JSON libraries, in the styles of common tools.
var Writers = []Writer{
	{"kubectl", each(func(d []byte) ([]byte, error) { // sorted keys, block style
		var v any
		if err := yaml.Unmarshal(d, &v); err != nil {
			return nil, err
		}
		return yaml.Marshal(v)
	})},
	{"kustomize", each(func(d []byte) ([]byte, error) { return nodes(d, 2, 0) })}, // preserves order and comments
	{"wide", each(func(d []byte) ([]byte, error) { return nodes(d, 8, 0) })},
	{"flow", each(func(d []byte) ([]byte, error) { return nodes(d, 2, yamlnode.FlowStyle) })},
	{"json", list(func(v any) ([]byte, error) { return json.Marshal(v) })},
	{"json lines", list(func(v any) ([]byte, error) { return json.MarshalIndent(v, "", "\t") })},
}

// each rewrites every document separately.
func each(write func([]byte) ([]byte, error)) func([][]byte) ([]byte, error) {
	return func(documents [][]byte) ([]byte, error) {
		var all [][]byte
		for _, d := range documents {
			text, err := write(d)
			if err != nil {
				return nil, err
			}
			all = append(all, text)
		}
		return bytes.Join(all, []byte("---\n")), nil
	}
}

// nodes writes a document from its tree, which preserves order, comments and quotes.
func nodes(document []byte, indent int, style yamlnode.Style) ([]byte, error) {
	var n yamlnode.Node
	if err := yamlnode.Unmarshal(document, &n); err != nil {
		return nil, err
	}
	if style != 0 {
		n.Content[0].Style = style
		plain(&n)
	}
	var out bytes.Buffer
	enc := yamlnode.NewEncoder(&out)
	enc.SetIndent(indent)
	if err := enc.Encode(&n); err != nil {
		return nil, err
	}
	return out.Bytes(), enc.Close()
}

// plain removes what the library cannot write in flow style: comments, and nulls written as
// nothing.
func plain(n *yamlnode.Node) {
	n.HeadComment, n.LineComment, n.FootComment = "", "", ""
	if n.Tag == "!!null" {
		n.Value = "null"
	}
	for _, child := range n.Content {
		plain(child)
	}
}

// list writes one object as JSON, and several as a List.
func list(write func(any) ([]byte, error)) func([][]byte) ([]byte, error) {
	return func(documents [][]byte) ([]byte, error) {
		var items []any
		for _, d := range documents {
			var v any
			if err := yaml.Unmarshal(d, &v); err != nil {
				return nil, err
			}
			items = append(items, v)
		}
		if len(items) == 1 {
			return write(items[0])
		}
		return write(map[string]any{"apiVersion": "v1", "kind": "List", "items": items})
	}
}
