package yamledit

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Map is a mapping that preserves its order. Values are Map, []any, string, int64, int, uint64,
// float64, bool and nil.
type Map []Entry

// Entry is a key with its value.
type Entry struct {
	Key   string
	Value any
}

// inlineMax is the maximum length of a mapping or sequence on one line.
const inlineMax = 76

// writer serializes values.
type writer struct {
	bytes.Buffer
	br     string // line break
	dashIn int
	json   bool   // quote all strings as JSON does
	prefix string // indentation of entries in multi-line flow style; "": one line
	step   string
}

func (w *writer) line(indent int) {
	w.WriteString(w.br)
	for ; indent > len(spaces); indent -= len(spaces) {
		w.WriteString(spaces)
	}
	w.WriteString(spaces[:indent])
}

const spaces = "                                "

// entry writes an entry of a block mapping or sequence at the position of its key or dash.
func (w *writer) entry(e Entry, indent int, item bool) {
	if !item {
		w.WriteString(w.text(e.Key, false))
		w.WriteByte(':')
		w.value(e.Value, indent)
		return
	}
	w.WriteByte('-')
	m, ok := e.Value.(Map)
	if !ok || w.short(e.Value, indent+2) {
		w.value(e.Value, indent)
		return
	}
	for i, field := range m {
		if i == 0 {
			w.WriteByte(' ')
		} else {
			w.line(indent + 2)
		}
		w.entry(field, indent+2, false)
	}
}

// value writes a value after a colon or dash. indent is the column of the key or dash.
func (w *writer) value(v any, indent int) {
	if s, ok := v.(string); ok && literal(s) {
		w.WriteString(" |")
		for line := range strings.SplitSeq(strings.TrimSuffix(s, "\n"), "\n") {
			if line == "" {
				w.WriteString(w.br)
				continue
			}
			w.line(indent + 2)
			w.WriteString(line)
		}
		return
	}
	if w.short(v, indent) {
		w.WriteByte(' ')
		w.flow(v, "")
		return
	}
	switch v := v.(type) {
	case Map:
		for _, field := range v {
			w.line(indent + 2)
			w.entry(field, indent+2, false)
		}
	case []any:
		for _, item := range v {
			w.line(indent + w.dashIn)
			w.entry(Entry{Value: item}, indent+w.dashIn, true)
		}
	}
}

// short reports whether a value is written on one line. A list of mappings never is, so that
// additions add lines.
func (w *writer) short(v any, indent int) bool {
	switch v := v.(type) {
	case Map:
		for _, e := range v {
			if s, ok := e.Value.(string); ok && strings.Contains(s, "\n") {
				return false
			}
		}
	case []any:
		for _, item := range v {
			if _, group := item.(Map); group {
				return false
			}
		}
	default:
		return true
	}
	return width(v, inlineMax-min(indent, inlineMax/2)) >= 0
}

// width returns what remains of room after a value on one line, in characters. A negative result
// means that it does not fit. Quotes are not counted.
func width(v any, room int) int {
	switch v := v.(type) {
	case Map:
		room -= 2
		for _, e := range v {
			if room -= len(e.Key) + len(": , "); room < 0 {
				return room
			}
			room = width(e.Value, room)
		}
		return room
	case []any:
		room -= 2
		for _, item := range v {
			if room = width(item, room-2); room < 0 {
				return room
			}
		}
		return room
	case string:
		return room - len(v)
	}
	return room - 4 // a number, true or false
}

// flow writes a value in flow style. prefix is its indentation if it may span several lines.
func (w *writer) flow(v any, prefix string) {
	open, shut := "{", "}"
	var entries Map
	switch v := v.(type) {
	case Map:
		entries = v
	case []any:
		open, shut = "[", "]"
		for _, item := range v {
			entries = append(entries, Entry{Value: item})
		}
	default:
		w.WriteString(w.scalar(v, true))
		return
	}
	w.WriteString(open)
	inner := prefix + w.step
	for i, e := range entries {
		switch {
		case i > 0 && w.step == "":
			w.WriteString(", ")
		case i > 0:
			w.WriteString(",")
			fallthrough
		case w.step != "":
			w.WriteString(w.br + inner)
		}
		w.flowEntry(e, open == "[", inner)
	}
	if w.step != "" && len(entries) > 0 {
		w.WriteString(w.br + prefix)
	}
	w.WriteString(shut)
}

func (w *writer) flowEntry(e Entry, item bool, prefix string) {
	if !item {
		w.WriteString(w.text(e.Key, true))
		w.WriteString(": ")
	}
	w.flow(e.Value, prefix)
}

// Plain reports whether a text can be written without quotes. It must be the same string to every
// reader of YAML 1.1 and 1.2, in block and flow style.
func Plain(s string, flow bool) bool {
	if s == "" || len(s) > 200 {
		return false
	}
	if c := s[0]; c >= '0' && c <= '9' {
		return quantity(s)
	} else if !letter(c) && c != '_' && c != '/' {
		return false
	}
	for i := 1; i < len(s); i++ {
		switch c := s[i]; {
		case letter(c), c >= '0' && c <= '9', strings.IndexByte("_./+=$()-", c) >= 0:
		case strings.IndexByte(" :;~", c) >= 0, !flow && strings.IndexByte(",{}", c) >= 0:
			if i+1 == len(s) || !letter(s[i+1]) && (s[i+1] < '0' || s[i+1] > '9') && s[i+1] != '/' {
				return false
			}
		default:
			return false
		}
	}
	return len(s) > len("false") || !slices.ContainsFunc(words, func(word string) bool { return strings.EqualFold(s, word) })
}

// words are plain scalars that some reader does not parse as strings.
var words = []string{"y", "n", "yes", "no", "on", "off", "true", "false", "null", "nan", "inf"}

func letter(c byte) bool { return c|0x20 >= 'a' && c|0x20 <= 'z' }

// quantity reports whether a text is a number with a unit, such as 100m or 60Gi.
func quantity(s string) bool {
	unit := strings.TrimLeft(s, "0123456789")
	switch unit {
	case "m", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei":
		return true
	}
	return false
}

func (w *writer) scalar(v any, flow bool) string {
	switch v := v.(type) {
	case string:
		return w.text(v, flow)
	case nil:
		return "null"
	}
	return fmt.Sprint(v)
}

func (w *writer) text(s string, flow bool) string {
	if !w.json && Plain(s, flow) {
		return s
	}
	if !w.json && strings.Contains(s, `"`) && !strings.ContainsAny(s, `'\`) && strings.IndexFunc(s, func(r rune) bool { return !printable(r) }) < 0 {
		return "'" + s + "'"
	}
	return Quote(s)
}

// literal reports whether a text is written as a literal block.
func literal(s string) bool {
	body, ended := strings.CutSuffix(s, "\n")
	if !ended || body == "" || strings.HasSuffix(body, "\n") || strings.ContainsAny(s[:1], " \n") {
		return false
	}
	return strings.Contains(body, "\n") && strings.IndexFunc(s, func(r rune) bool { return r != '\n' && !printable(r) }) < 0
}

// printable reports whether a character needs no escape.
func printable(r rune) bool {
	return r >= ' ' && r < 0x7f || r >= 0xa0 && r < 0xd800 && r != 0x2028 && r != 0x2029 || r >= 0xe000 && r < 0xfeff || r > 0xfeff && r < 0xfffe || r >= 0x10000
}

// Quote returns a text in double quotes, valid in JSON and YAML.
func Quote(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		case printable(r) && r != utf8.RuneError:
			b.WriteRune(r)
		default:
			b.WriteString(`\u` + strconv.FormatInt(int64(r)+0x10000, 16)[1:])
		}
	}
	b.WriteByte('"')
	return b.String()
}

// Marshal returns a document in block style.
func Marshal(m Map) string {
	w := writer{br: "\n", dashIn: 0}
	for _, e := range m {
		w.entry(e, 0, false)
		w.WriteString("\n")
	}
	return w.String()
}
