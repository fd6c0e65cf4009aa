package reference

import (
	"fmt"
	"go/types"
	"strings"
)

// tables returns a section with the fields of each of these types, and of those that they contain.
func (p *program) tables(all ...*types.Named) (string, error) {
	var b strings.Builder
	var queue []*types.Named
	queued := make(map[string]bool)
	add := func(t *types.Named) {
		if name := typeName(t); !queued[name] {
			queued[name] = true
			queue = append(queue, t)
		}
	}
	for _, t := range all {
		add(t)
	}
	for ; len(queue) > 0; queue = queue[1:] {
		members, err := p.table(&b, queue[0])
		if err != nil {
			return "", err
		}
		for _, m := range members {
			if t := structIn(m.of); t != nil {
				add(t)
			}
		}
	}
	return b.String(), nil
}

// table writes the section of a type, and returns its fields.
func (p *program) table(b *strings.Builder, t *types.Named) ([]member, error) {
	about, err := p.about(t)
	if err != nil {
		return nil, err
	}
	members, err := p.members(t)
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(b, "\n### %s\n\n", typeName(t))
	if about != "" {
		fmt.Fprintf(b, "%s\n\n", markdown(about))
	}
	b.WriteString("| field | type | meaning |\n|---|---|---|\n")
	for _, m := range members {
		kind := notationOf(m.of)
		if m.optional {
			kind += ", optional"
		}
		meaning := capital(markdown(m.doc))
		if values := constants(deref(m.of)); values != nil {
			if meaning != "" {
				meaning = strings.TrimSuffix(meaning, ".") + "."
			}
			meaning = strings.TrimSpace(meaning + " One of `" + strings.Join(values, "`, `") + "`.")
		}
		fmt.Fprintf(b, "| `%s` | %s | %s |\n", m.name, kind, meaning)
	}
	return members, nil
}

// structIn returns the struct that a type is or contains, or nil.
func structIn(t types.Type) *types.Named {
	switch t := types.Unalias(t).(type) {
	case *types.Pointer:
		return structIn(t.Elem())
	case *types.Slice:
		return structIn(t.Elem())
	case *types.Map:
		return structIn(t.Elem())
	}
	if named, ok := describedStruct(t); ok {
		return named
	}
	return nil
}

// notationOf describes a type for people.
func notationOf(t types.Type) string {
	switch t := types.Unalias(t).(type) {
	case *types.Pointer:
		return notationOf(t.Elem())
	case *types.Slice:
		return "list of " + notationOf(t.Elem())
	case *types.Array:
		return fmt.Sprintf("list of %d, %s", t.Len(), notationOf(t.Elem()))
	case *types.Map:
		return notationOf(t.Elem()) + " by name"
	case *types.Named:
		if typeName(t) == "time.Time" {
			return "time"
		}
		if named, ok := describedStruct(t); ok {
			return fmt.Sprintf("[%s](#%s)", typeName(named), typeAnchor(typeName(named)))
		}
	}
	basic, ok := t.Underlying().(*types.Basic)
	switch {
	case !ok:
		return "any"
	case basic.Info()&types.IsBoolean != 0:
		return "`true`, `false`"
	case basic.Info()&types.IsString != 0:
		return "text"
	case basic.Info()&types.IsInteger != 0:
		return "whole number"
	}
	return "number"
}
