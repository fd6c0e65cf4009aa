package reference

import (
	"encoding/json"
	"reflect"

	"github.com/stager-dev/stager/stager/plan"
)

// Notations of package plan as regular expressions.
const (
	sizeForm     = `^(\+?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]{1,2}|[kKMGTPE]|[KMGTPE]i)?B?)?$`
	durationForm = `^\+?(0|(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+)$`
	labelForm    = `[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?`
	objectForm   = labelForm + `(\.` + labelForm + `)*`
	pathForm     = `^(/([^/.][^/]*|\.[^/.][^/]*|\.\.[^/]+))+/?$` // no empty part, "." or ".."
	urlForm      = `^[A-Za-z][A-Za-z0-9+.-]*://`
)

// object is a part of a schema. Keys are written in alphabetical order.
type object = map[string]any

// forms are the notations of fields that are no plain text, by their names or paths.
var forms = map[string]object{
	"name":                      {"type": "string", "pattern": "^" + labelForm + "$"},
	"path":                      {"type": "string", "pattern": pathForm},
	"source":                    {"type": "string", "pattern": urlForm},
	"destination":               {"type": "string", "pattern": urlForm},
	"secret":                    {"type": "string", "pattern": "^(" + objectForm + ")?$"},
	"medium":                    {"type": "string", "pattern": "^(disk|memory|(claim|existing):" + objectForm + "|host:/.*)$"},
	"apiVersion":                {"const": plan.APIVersion},
	"kind":                      {"const": plan.Kind},
	"spec.shard.index":          {"type": []string{"string", "integer"}, "pattern": `^([0-9]+|\$[A-Za-z_][A-Za-z0-9_]*)?$`},
	"spec.shard.count":          {"type": []string{"string", "integer"}, "pattern": `^([0-9]+|\$[A-Za-z_][A-Za-z0-9_]*)?$`},
	"spec.inputs[].window.size": {"type": []string{"string", "integer"}, "minimum": 1, "pattern": sizeForm, "minLength": 1},
	"spec.outputs[].deadline":   {"type": "string", "pattern": durationForm, "not": object{"pattern": "^0"}},
	"spec.outputs[].when[]":     {"minItems": 1, "uniqueItems": true},
}

// Schema returns the JSON Schema of plans. It accepts every plan that Parse accepts, with three
// exceptions: numbers in quotes, text without quotes that YAML reads as a number, and empty keys.
// It cannot refuse what needs a comparison of two fields, as of names and paths.
func Schema(root *Field) ([]byte, error) {
	s := root.schema()
	s["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	s["title"] = plan.Kind
	s["description"] = "What a job of stager needs and produces."
	text, err := json.MarshalIndent(s, "", "  ")
	return append(text, '\n'), err
}

// schema returns the schema of a field.
func (f *Field) schema() object {
	s := f.value()
	for key, value := range forms[f.Name] {
		s[key] = value
	}
	for key, value := range forms[f.Path] {
		s[key] = value
	}
	if _, fixed := s["const"]; fixed {
		delete(s, "type")
	}
	s["description"] = f.Doc
	if f.Default != nil {
		s["default"] = f.Default
	}
	for key, value := range conditions[f.Path] {
		if entries, ok := s["items"].(object); ok {
			entries[key] = value
			continue
		}
		s[key] = value
	}
	return s
}

// value returns the schema of the type of a field.
func (f *Field) value() object {
	switch kind := f.Type.Kind(); {
	case f.Type == reflect.TypeFor[plan.Bytes]():
		return object{"type": []string{"string", "integer"}, "minimum": 0, "pattern": sizeForm}
	case f.Type == reflect.TypeFor[plan.Duration]():
		return object{"type": []string{"string", "integer"}, "minimum": 0, "maximum": 0, "pattern": durationForm}
	case kind == reflect.Slice && f.Type.Elem().Kind() == reflect.String:
		entry := object{"type": "string", "minLength": 1}
		if f.Enum != nil {
			entry = object{"enum": f.Enum}
		}
		return object{"type": "array", "items": entry}
	case kind == reflect.Slice:
		return object{"type": "array", "items": f.fields()}
	case kind == reflect.Map:
		return object{"type": "object", "additionalProperties": object{"type": []string{"string", "number", "boolean"}}}
	case kind == reflect.Bool:
		return object{"type": "boolean"}
	case kind == reflect.Int, kind == reflect.Int64:
		s := object{"type": "integer"}
		if f.Min != nil {
			s["minimum"] = *f.Min
		}
		if f.Max != nil {
			s["maximum"] = *f.Max
		}
		return s
	case kind == reflect.String && f.Enum != nil:
		if f.Default == nil {
			return object{"enum": append([]string{""}, f.Enum...)}
		}
		return object{"enum": f.Enum}
	case kind == reflect.String:
		return object{"type": "string"}
	}
	return f.fields()
}

// fields returns the schema of a group of keys.
func (f *Field) fields() object {
	properties, required := object{}, []string{}
	for _, sub := range f.Fields {
		properties[sub.Name] = sub.schema()
		if sub.Required {
			required = append(required, sub.Name)
		}
	}
	s := object{"type": "object", "additionalProperties": false, "properties": properties}
	if len(required) > 0 {
		s["required"] = required
	}
	return s
}
