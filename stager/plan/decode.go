package plan

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Parse parses a plan from YAML or JSON, sets defaults and checks it. Its error has type [Faults]
// and lists everything that is wrong.
//
// checkURL returns what is wrong with a URL, as backends.Registry.Check does; nil accepts all. It
// sees "0" in place of placeholders.
func Parse(data []byte, checkURL func(string) error) (*StagePlan, error) {
	return ParseWith(data, checkURL, checkURL)
}

// ParseWith is Parse with a function of its own for destinations, as
// backends.Registry.CheckDestination is.
func ParseWith(data []byte, checkURL, checkDestination func(string) error) (*StagePlan, error) {
	r := newReport()
	root := document(data, r)
	if root == nil {
		return nil, r.err()
	}
	p := new(StagePlan)
	p.setDefaults()
	d := &decoder{r}
	d.value("", root, reflect.ValueOf(p).Elem())
	c := &checker{report: r, checkURL: checkURL, checkDestination: checkDestination}
	c.minBandwidths(&p.Spec)
	p.Spec.setDeadlines()
	c.plan(p)
	if err := r.err(); err != nil {
		return nil, err
	}
	p.Spec.boundPrefetches()
	return p, nil
}

// document returns the only document of a file, as a tree with line numbers. sigs.k8s.io/yaml is
// not used because it converts to JSON and loses them.
func document(data []byte, r *report) *yaml.Node {
	dec := yaml.NewDecoder(bytes.NewReader(data))
	var doc, next yaml.Node
	switch err := dec.Decode(&doc); {
	case errors.Is(err, io.EOF):
		r.add("", "the file is empty; a plan starts with apiVersion: %s", APIVersion)
		return nil
	case err != nil:
		text := strings.TrimPrefix(err.Error(), "yaml: ")
		var line int
		if n, _ := fmt.Sscanf(text, "line %d:", &line); n == 1 { // n is checked
			_, text, _ = strings.Cut(text, ": ")
			r.lines[""] = line
		}
		r.add("", "not valid YAML or JSON: %s", text)
		return nil
	}
	if err := dec.Decode(&next); !errors.Is(err, io.EOF) {
		r.add("", "the file has several documents; a plan must be one document")
		return nil
	}
	return doc.Content[0]
}

// scalar is a type with its own notation.
type scalar interface{ set(text string) error }

// decoder copies a tree into a value of a fixed type and reports each mismatch. The type bounds the
// depth, the file the size. Aliases are refused, because they let a small file mean an endless one.
type decoder struct{ *report }

// value copies n into v. null leaves v unchanged, so that its default stays.
func (d *decoder) value(path string, n *yaml.Node, v reflect.Value) {
	d.lines[path] = n.Line
	if n.Kind == yaml.AliasNode {
		d.add(path, "*%s is an alias, which is not supported: write the value out", n.Value)
		return
	}
	if n.Kind == yaml.ScalarNode && n.Tag == "!!null" {
		return
	}
	if s, ok := v.Addr().Interface().(scalar); ok {
		d.scalar(path, n, s.set)
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		fresh := reflect.New(v.Type().Elem())
		setDefaults(fresh)
		d.value(path, n, fresh.Elem())
		v.Set(fresh)
	case reflect.Struct:
		d.fields(path, n, v)
	case reflect.Map:
		d.labels(path, n, v)
	case reflect.Slice:
		d.list(path, n, v)
	case reflect.String:
		// Accept any scalar: a name may be 8 or true.
		d.scalar(path, n, func(text string) error { v.SetString(text); return nil })
	case reflect.Bool:
		d.scalar(path, n, func(text string) error {
			if text != "true" && text != "false" {
				return fmt.Errorf("%q is not true or false", text)
			}
			v.SetBool(text == "true")
			return nil
		})
	case reflect.Int, reflect.Int64:
		d.scalar(path, n, func(text string) error {
			i, err := strconv.ParseInt(text, 10, v.Type().Bits())
			if err != nil {
				return fmt.Errorf("%q is not a whole number", text)
			}
			v.SetInt(i)
			return nil
		})
	default:
		panic("plan: no notation for " + v.Type().String())
	}
}

func (d *decoder) scalar(path string, n *yaml.Node, set func(string) error) {
	if n.Kind != yaml.ScalarNode {
		d.add(path, "got a %s, want a single value", kindName(n))
	} else if err := set(n.Value); err != nil {
		d.add(path, "%v", err)
	}
}

func (d *decoder) list(path string, n *yaml.Node, v reflect.Value) {
	if n.Kind != yaml.SequenceNode {
		d.add(path, "got a %s, want a list: start each entry with -", kindName(n))
		return
	}
	v.Set(reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content)))
	for i, item := range n.Content {
		setDefaults(v.Index(i).Addr())
		d.value(fmt.Sprintf("%s[%d]", path, i), item, v.Index(i))
	}
}

func (d *decoder) labels(path string, n *yaml.Node, v reflect.Value) {
	out := make(map[string]string)
	d.pairs(path, n, func(key string, value *yaml.Node) {
		var text string
		d.value(join(path, key), value, reflect.ValueOf(&text).Elem())
		out[key] = text
	})
	if len(out) > 0 {
		v.Set(reflect.ValueOf(out))
	}
}

func (d *decoder) fields(path string, n *yaml.Node, v reflect.Value) {
	known := make([]string, v.NumField())
	index := make(map[string]int)
	for i := range known {
		name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
		known[i], index[name] = name, i
	}
	d.pairs(path, n, func(key string, value *yaml.Node) {
		at := join(path, key)
		if i, ok := index[key]; ok {
			d.value(at, value, v.Field(i))
			return
		}
		d.lines[at] = value.Line
		if meant := nearest(key, known); meant != "" {
			d.add(at, "unknown key; did you mean %s?", meant)
			d.reported[join(path, meant)] = true // do not also report it as missing
			return
		}
		d.add(at, "unknown key; valid keys are %s", strings.Join(known, ", "))
	})
}

// pairs visits the keys of a mapping, each once.
func (d *decoder) pairs(path string, n *yaml.Node, visit func(key string, value *yaml.Node)) {
	if n.Kind != yaml.MappingNode {
		d.add(path, "got a %s, want keys and values", kindName(n))
		return
	}
	seen := make(map[string]int)
	for i := 0; i < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if key.Kind != yaml.ScalarNode {
			d.add(path, "got a %s, want a single word as key", kindName(key))
			continue
		}
		if first, again := seen[key.Value]; again {
			at := join(path, key.Value)
			d.lines[at] = key.Line
			d.add(at, "duplicate key, see line %d; write it once", first)
			continue
		}
		seen[key.Value] = key.Line
		visit(key.Value, value)
	}
}

func setDefaults(pointer reflect.Value) {
	if part, ok := pointer.Interface().(defaulter); ok {
		part.setDefaults()
	}
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

func kindName(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "group of keys"
	case yaml.SequenceNode:
		return "list"
	case yaml.AliasNode:
		return "alias"
	}
	return "single value"
}
