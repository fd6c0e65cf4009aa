package main

import (
	"bytes"
	"encoding/json"
	"io"
	"os"

	"sigs.k8s.io/yaml"
)

// shape selects the output format of a command. JSON and YAML have the same field names, which are
// stable, bytes and seconds as plain numbers, and times in RFC 3339.
type shape struct {
	Output string `short:"o" help:"Output format: table (for people), json or yaml." enum:"table,json,yaml" default:"table"`
}

// structured reports whether the output is for programs.
func (s shape) structured() bool { return s.Output == "json" || s.Output == "yaml" }

// value prints the result of a command.
func (s shape) value(v any) error { return s.encode(os.Stdout, v, "  ") }

// line prints the result of a command; JSON is one line.
func (s shape) line(v any) error { return s.encode(os.Stdout, v, "") }

// item prints one of several results: a line of JSON, or an element of a YAML sequence. Printed one
// by one, they need no memory.
func (s shape) item(w io.Writer, v any) error {
	if s.Output != "yaml" {
		return s.encode(w, v, "")
	}
	var text bytes.Buffer
	if err := s.encode(&text, v, ""); err != nil {
		return err
	}
	lines := bytes.ReplaceAll(bytes.TrimSuffix(text.Bytes(), []byte("\n")), []byte("\n"), []byte("\n  "))
	_, err := w.Write(append(append([]byte("- "), lines...), '\n'))
	return err
}

// documents prints a stream of YAML documents. JSON is a line for each.
func (s shape) documents(out []byte) error {
	if s.Output != "json" {
		_, err := os.Stdout.Write(out)
		return err
	}
	for _, text := range bytes.Split(out, []byte("\n---\n")) {
		line, err := yaml.YAMLToJSON(text)
		if err != nil {
			return err
		}
		if string(line) == "null" { // nothing but comments
			continue
		}
		if err := s.line(json.RawMessage(line)); err != nil {
			return err
		}
	}
	return nil
}

func (s shape) encode(w io.Writer, v any, indent string) error {
	var text bytes.Buffer
	out := json.NewEncoder(&text)
	out.SetEscapeHTML(false)
	out.SetIndent("", indent)
	err := out.Encode(v)
	if err != nil {
		return err
	}
	printed := text.Bytes()
	if s.Output == "yaml" {
		if printed, err = yaml.JSONToYAML(printed); err != nil {
			return err
		}
	}
	_, err = w.Write(printed)
	return err
}
