package yamledit

import (
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
	buffer []byte
	br     string // line break
	dashIn int
	json   bool   // quote all strings as JSON does
	prefix string // indentation of entries in multi-line flow style; "": one line
	step   string
}

func (w *writer) writeString(s string) { w.buffer = append(w.buffer, s...) }

func (w *writer) writeByte(c byte) { w.buffer = append(w.buffer, c) }

func (w *writer) line(indent int) {
	w.writeString(w.br)
	for ; indent > len(spaces); indent -= len(spaces) {
		w.writeString(spaces)
	}
	w.writeString(spaces[:indent])
}

const spaces = "                                "

// entry writes an entry of a block mapping or sequence at the position of its key or dash.
func (w *writer) entry(e Entry, indent int, item bool) {
	if !item {
		w.text(e.Key, false)
		w.writeByte(':')
		w.value(e.Value, indent)
		return
	}
	w.writeByte('-')
	m, ok := e.Value.(Map)
	if !ok || w.short(e.Value, indent+2) {
		w.value(e.Value, indent)
		return
	}
	for i, field := range m {
		if i == 0 {
			w.writeByte(' ')
		} else {
			w.line(indent + 2)
		}
		w.entry(field, indent+2, false)
	}
}

// value writes a value after a colon or dash. indent is the column of the key or dash.
func (w *writer) value(v any, indent int) {
	if s, ok := v.(string); ok && literal(s) {
		w.writeString(" |")
		for line := range strings.SplitSeq(strings.TrimSuffix(s, "\n"), "\n") {
			if line == "" {
				w.writeString(w.br)
				continue
			}
			w.line(indent + 2)
			w.writeString(line)
		}
		return
	}
	if w.short(v, indent) {
		w.writeByte(' ')
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
		w.scalar(v, true)
		return
	}
	w.writeString(open)
	inner := prefix + w.step
	for i, e := range entries {
		switch {
		case i > 0 && w.step == "":
			w.writeString(", ")
		case i > 0:
			w.writeString(",")
			fallthrough
		case w.step != "":
			w.writeString(w.br + inner)
		}
		w.flowEntry(e, open == "[", inner)
	}
	if w.step != "" && len(entries) > 0 {
		w.writeString(w.br + prefix)
	}
	w.writeString(shut)
}

func (w *writer) flowEntry(e Entry, item bool, prefix string) {
	if !item {
		w.text(e.Key, true)
		w.writeString(": ")
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
		switch class := classes[s[i]]; {
		case class == anywhere:
		case class == beforeWords, class == blockOnly && !flow:
			if i+1 == len(s) || !letter(s[i+1]) && (s[i+1] < '0' || s[i+1] > '9') && s[i+1] != '/' {
				return false
			}
		default:
			return false
		}
	}
	return len(s) > len("false") || !slices.ContainsFunc(words, func(word string) bool {
		return len(s) == len(word) && s[0]|0x20 == word[0] && strings.EqualFold(s, word)
	})
}

// class is where a character may stand in a text without quotes, after the first character.
type class uint8

const (
	nowhere     class = iota
	anywhere          // in every position
	beforeWords       // before a letter, a digit or a slash
	blockOnly         // the same, in block style
)

var classes = func() (all [256]class) {
	for c := range all {
		if letter(byte(c)) || c >= '0' && c <= '9' {
			all[c] = anywhere
		}
	}
	for list, class := range map[string]class{"_./+=$()-": anywhere, " :;~": beforeWords, ",{}": blockOnly} {
		for _, c := range []byte(list) {
			all[c] = class
		}
	}
	return all
}()

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

func (w *writer) scalar(v any, flow bool) {
	switch v := v.(type) {
	case string:
		w.text(v, flow)
	case nil:
		w.writeString("null")
	case int64:
		w.buffer = strconv.AppendInt(w.buffer, v, 10)
	default:
		w.buffer = fmt.Append(w.buffer, v)
	}
}

func (w *writer) text(s string, flow bool) {
	switch {
	case !w.json && Plain(s, flow):
		w.writeString(s)
	case !w.json && strings.Contains(s, `"`) && !strings.ContainsAny(s, `'\`) && allPrintable(s, false):
		w.writeByte('\'')
		w.writeString(s)
		w.writeByte('\'')
	default:
		w.buffer = appendQuoted(w.buffer, s)
	}
}

// literal reports whether a text is written as a literal block.
func literal(s string) bool {
	body, ended := strings.CutSuffix(s, "\n")
	if !ended || body == "" || strings.HasSuffix(body, "\n") || strings.ContainsAny(s[:1], " \n") {
		return false
	}
	return strings.Contains(body, "\n") && allPrintable(s, true)
}

// allPrintable reports whether no character of a text needs an escape. Line feeds need none if lines
// is true.
func allPrintable(s string, lines bool) bool {
	for _, r := range s {
		if !printable(r) && !(lines && r == '\n') {
			return false
		}
	}
	return true
}

// printable reports whether a character needs no escape.
func printable(r rune) bool {
	return r >= ' ' && r < 0x7f || r >= 0xa0 && r < 0xd800 && r != 0x2028 && r != 0x2029 || r >= 0xe000 && r < 0xfeff || r > 0xfeff && r < 0xfffe || r >= 0x10000
}

// appendQuoted appends a text in double quotes, valid in JSON and YAML.
func appendQuoted(b []byte, s string) []byte {
	b = append(b, '"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b = append(b, '\\', byte(r))
		case r == '\n':
			b = append(b, `\n`...)
		case r == '\t':
			b = append(b, `\t`...)
		case printable(r) && r != utf8.RuneError:
			b = utf8.AppendRune(b, r)
		default:
			b = append(append(b, `\u`...), strconv.FormatInt(int64(r)+0x10000, 16)[1:]...)
		}
	}
	return append(b, '"')
}

// Marshal returns a document in block style.
func Marshal(m Map) string {
	w := writer{buffer: make([]byte, 0, 512), br: "\n", dashIn: 0}
	for _, e := range m {
		w.entry(e, 0, false)
		w.writeString("\n")
	}
	return string(w.buffer)
}
