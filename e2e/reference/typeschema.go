package reference

import (
	"fmt"
	"go/types"
	"strings"
)

// schemas are the JSON Schemas of types, by their names. Structs refer to others by name.
type schemas struct {
	*program
	prefix string // of the references
	all    object
}

// of returns the schema of a type, and adds those of the structs that it contains.
func (s *schemas) of(t types.Type) (object, error) {
	switch t := types.Unalias(t).(type) {
	case *types.Pointer:
		return s.of(t.Elem())
	case *types.Slice:
		return s.list(t.Elem(), -1)
	case *types.Array:
		return s.list(t.Elem(), int(t.Len()))
	case *types.Map:
		return s.dictionary(t)
	case *types.Named:
		return s.named(t)
	case *types.Basic:
		return basic(t)
	}
	return nil, fmt.Errorf("a value of type %s has no schema", t)
}

func (s *schemas) list(of types.Type, length int) (object, error) {
	items, err := s.of(of)
	list := object{"type": "array", "items": items}
	if length >= 0 {
		list["minItems"], list["maxItems"] = length, length
	}
	return list, err
}

func (s *schemas) dictionary(t *types.Map) (object, error) {
	values, err := s.of(t.Elem())
	out := object{"type": "object", "additionalProperties": values}
	if keys := constants(t.Key()); keys != nil {
		out["propertyNames"] = object{"enum": keys}
	}
	return out, err
}

// named returns the schema of a type with a name.
func (s *schemas) named(t *types.Named) (object, error) {
	switch typeName(t) {
	case "time.Time":
		return object{"type": "string", "format": "date-time"}, nil
	case "plan.Bytes", "plan.Duration": // as in a plan
		return object{"type": "string"}, nil
	}
	named, ok := describedStruct(t)
	if !ok {
		out, err := s.of(t.Underlying())
		if values := constants(t); values != nil {
			out = object{"enum": values}
		}
		return out, err
	}
	if err := s.add(named); err != nil {
		return nil, err
	}
	return object{"$ref": s.prefix + typeName(named)}, nil
}

// add adds the schema of a struct.
func (s *schemas) add(named *types.Named) error {
	name := typeName(named)
	if s.all[name] != nil {
		return nil
	}
	properties, required := object{}, []string{}
	out := object{"type": "object", "properties": properties}
	s.all[name] = out
	members, err := s.members(named)
	if err != nil {
		return err
	}
	for _, m := range members {
		schema, err := s.of(m.of)
		if err != nil {
			return fmt.Errorf("%s of %s: %w", m.name, name, err)
		}
		if _, list := m.of.Underlying().(*types.Slice); list && !m.optional {
			schema["type"] = []string{"array", "null"} // null: empty
		}
		if m.doc != "" {
			schema["description"] = capital(m.doc)
		}
		properties[m.name] = schema
		if !m.optional {
			required = append(required, m.name)
		}
	}
	if len(required) > 0 {
		out["required"] = required
	}
	about, err := s.about(named)
	if about != "" {
		out["description"] = about
	}
	return err
}

// basic returns the schema of a type without a name.
func basic(t *types.Basic) (object, error) {
	switch info := t.Info(); {
	case info&types.IsBoolean != 0:
		return object{"type": "boolean"}, nil
	case info&types.IsInteger != 0:
		return object{"type": "integer"}, nil
	case info&types.IsFloat != 0:
		return object{"type": "number"}, nil
	case info&types.IsString != 0:
		return object{"type": "string"}, nil
	}
	return nil, fmt.Errorf("a value of type %s has no schema", t)
}

// typeName returns the package and the name of a type, such as window.Status.
func typeName(t *types.Named) string {
	if t.Obj().Pkg() == nil {
		return t.Obj().Name()
	}
	path := t.Obj().Pkg().Path()
	return path[strings.LastIndex(path, "/")+1:] + "." + t.Obj().Name()
}
