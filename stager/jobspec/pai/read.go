package pai

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/tailscale/hujson"

	"github.com/stager-dev/stager/stager/jobspec"
)

// fileMax is the largest file that is read, in bytes. It is far above any job and limits memory.
const fileMax = 3 << 20

// Formats of names, and their descriptions for messages.
var (
	jobName  = format{regexp.MustCompile(`^[A-Za-z0-9\-._~]+$`), "letters, digits, - . _ and ~"}
	roleName = format{regexp.MustCompile(`^[A-Za-z0-9\-._~]+$`), "letters, digits, - . _ and ~"}
	envName  = format{regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`), "letters, digits and _, and do not begin with a digit"}
)

type format struct {
	*regexp.Regexp
	reported string
}

// reader parses a file and collects faults.
type reader struct {
	text     []byte
	faults   jobspec.Faults
	warnings []string
}

func (r *reader) fault(offset int, form string, args ...any) {
	line, column := position(r.text, offset)
	f := jobspec.Fault{Line: line, Column: column, Text: fmt.Sprintf(form, args...)}
	if !slices.Contains(r.faults, f) {
		r.faults = append(r.faults, f)
	}
}

// faultInFile adds a fault that has no position.
func (r *reader) faultInFile(form string, args ...any) {
	r.faults = append(r.faults, jobspec.Fault{Text: fmt.Sprintf(form, args...)})
}

func (r *reader) warn(form string, args ...any) {
	if text := fmt.Sprintf(form, args...); !slices.Contains(r.warnings, text) {
		r.warnings = append(r.warnings, text)
	}
}

// position returns the line and column of an offset, from 1, in bytes.
func position(text []byte, offset int) (line, column int) {
	before := text[:min(offset, len(text))]
	return 1 + bytes.Count(before, []byte("\n")), len(before) - bytes.LastIndexByte(before, '\n')
}

var syntax = regexp.MustCompile(`^hujson: line (\d+), column (\d+): (.*)$`)

// read parses a job of either format. Faults are added to the reader. The first format is JSON; the
// second is YAML, which includes JSON.
func (r *reader) read() *job {
	root := r.parse()
	switch {
	case root == nil && secondFormat.Match(r.text):
		r.faults = nil
		return r.job2()
	case root == nil:
		return nil
	}
	if o, ok := root.Value.(*hujson.Object); ok {
		for i := range o.Members {
			if name, ok := o.Members[i].Name.Value.(hujson.Literal); ok && name.String() == "protocolVersion" {
				root.Standardize() // replaces comments by spaces, so that all offsets stay valid
				r.text = root.Pack()
				return r.job2()
			}
		}
	}
	return r.job(root)
}

// parse parses JSON with trailing commas, and with // and /* */ comments outside of strings.
func (r *reader) parse() *hujson.Value {
	if len(r.text) > fileMax {
		r.faults = jobspec.Faults{{Text: fmt.Sprintf("the file has %d bytes, and the limit is %d; move long scripts and data out of the job", len(r.text), fileMax)}}
		return nil
	}
	text := bytes.TrimPrefix(r.text, []byte("\ufeff"))
	r.text = text
	root, err := hujson.Parse(text)
	if err != nil {
		f := jobspec.Fault{Text: "this is not JSON: " + strings.TrimPrefix(err.Error(), "hujson: ")}
		if m := syntax.FindStringSubmatch(err.Error()); m != nil {
			f.Line, _ = strconv.Atoi(m[1])
			f.Column, _ = strconv.Atoi(m[2])
			f.Text = "this is not JSON: " + m[3]
		}
		r.faults = append(r.faults, r.explained(f))
		return nil
	}
	return &root
}

// explained adds a remedy to a JSON syntax error if the cause is known.
func (r *reader) explained(f jobspec.Fault) jobspec.Fault {
	lines := bytes.Split(r.text, []byte("\n"))
	if f.Line < 1 || f.Line > len(lines) {
		return f
	}
	line := lines[f.Line-1]
	switch end := min(max(f.Column-1, 0), len(line)); {
	case bytes.HasSuffix(bytes.TrimRight(line[:end], " "), []byte("{{")):
		f.Column = bytes.LastIndex(line[:end], []byte("{{")) + 1
		f.Text = ofTemplate
	case bytes.IndexByte(line[end:], '\t') > 0 && line[end] == '"':
		f.Column += bytes.IndexByte(line[end:], '\t')
		f.Text = `a string contains a tab, which JSON does not allow; write \t`
	}
	return f
}

// ofTemplate is the fault of a file that another program has yet to fill in.
const ofTemplate = "this is a template of another program; render {{…}} with that program first"

// fields is a JSON object that is being read.
type fields struct {
	*reader
	what   string // for messages
	start  int
	names  []string // in order
	fields map[string]*hujson.Value
	at     map[string]int
	read   map[string]bool
}

// object returns the fields of an object, or nil after adding a fault.
func (r *reader) object(v *hujson.Value, what string) *fields {
	o, ok := v.Value.(*hujson.Object)
	if !ok {
		r.fault(v.StartOffset, "%s is %s; write an object, {…}", what, kind(v))
		return nil
	}
	f := &fields{r, what, v.StartOffset, nil, map[string]*hujson.Value{}, map[string]int{}, map[string]bool{}}
	for i := range o.Members {
		m := &o.Members[i]
		name := m.Name.Value.(hujson.Literal).String()
		if _, twice := f.fields[name]; twice {
			r.fault(m.Name.StartOffset, "duplicate %s; write it once", name)
		}
		f.names = append(f.names, name)
		f.fields[name], f.at[name] = &m.Value, m.Value.StartOffset
	}
	return f
}

func kind(v *hujson.Value) string {
	switch v.Value.Kind() {
	case '{':
		return "an object"
	case '[':
		return "a list"
	case '"':
		return "a text"
	case '0':
		return "a number"
	case 'n':
		return "null"
	}
	return "true or false"
}

// get returns a field, or nil if it is missing. A missing field is a fault if it is needed.
func (f *fields) get(name string, needed bool) *hujson.Value {
	f.read[name] = true
	v := f.fields[name]
	if v != nil && v.Value.Kind() == 'n' && !needed {
		return nil
	}
	if v == nil && needed {
		f.fault(f.start, "%s has no %s, which OpenPAI requires; add it", f.what, name)
	}
	return v
}

// text returns a string field, or "" if it is missing.
func (f *fields) text(name string, needed bool) string {
	v := f.get(name, needed)
	if v == nil {
		return ""
	}
	if v.Value.Kind() != '"' {
		f.fault(v.StartOffset, "%s is %s; write a string in quotes", name, kind(v))
		return ""
	}
	s := v.Value.(hujson.Literal).String()
	switch {
	case needed && strings.TrimSpace(s) == "":
		f.fault(v.StartOffset, "%s is empty; write a value", name)
	case strings.ContainsRune(s, 0):
		f.fault(v.StartOffset, "%s contains a NUL character; remove it", name)
	}
	return s
}

// named returns a string field that must have a format.
func (f *fields) named(name string, form format) string {
	s := f.text(name, true)
	if v := f.fields[name]; v != nil && strings.TrimSpace(s) != "" && !form.MatchString(s) {
		f.fault(v.StartOffset, "%s is %q; use only %s", name, s, form.reported)
	}
	return s
}

// required is the fallback of a number that must be present.
const required = -1 << 31

// number returns an integer field. It must be at least least or, if check is set, pass check.
func (f *fields) number(name string, fallback, least int, check func(int) string) int {
	v := f.get(name, fallback == required)
	if v == nil {
		return max(fallback, 0)
	}
	lit, _ := v.Value.(hujson.Literal)
	n, err := strconv.ParseInt(string(lit), 10, 32)
	if err != nil {
		f.fault(v.StartOffset, "%s: %s is %s; write a whole number", f.what, name, quoted(v))
		return 0
	}
	if check != nil {
		if wrong := check(int(n)); wrong != "" {
			f.fault(v.StartOffset, "%s: %s is %d: %s", f.what, name, n, wrong)
			return 0
		}
	}
	if check == nil && int(n) < least {
		f.fault(v.StartOffset, "%s: %s is %d, which is too small; write %d or more", f.what, name, n, least)
		return 0
	}
	return int(n)
}

// quoted returns a value for messages, or its kind if it is long.
func quoted(v *hujson.Value) string {
	if lit, ok := v.Value.(hujson.Literal); ok && len(lit) < 40 {
		return string(lit)
	}
	return kind(v)
}

// numberOrNull returns a count of tasks; null is never.
func (f *fields) numberOrNull(name string, fallback int, check func(int) string) int {
	if f.fields[name] != nil && f.fields[name].Value.Kind() == 'n' {
		f.read[name] = true
		return never
	}
	return f.number(name, fallback, 1, func(n int) string {
		if n < 1 {
			return "write 1 or more, or null for never"
		}
		return check(n)
	})
}

func (f *fields) list(name string, needed bool) (all []*hujson.Value) {
	v := f.get(name, needed)
	if v == nil {
		return nil
	}
	a, ok := v.Value.(*hujson.Array)
	if !ok {
		f.fault(v.StartOffset, "%s is %s; write a list, […]", name, kind(v))
		return nil
	}
	for i := range a.Elements {
		all = append(all, &a.Elements[i])
	}
	return all
}

// variables returns the fields of an object of scalars, in order.
func (f *fields) variables(name string) (all []variable) {
	v := f.get(name, false)
	if v == nil {
		return nil
	}
	o := f.object(v, name)
	if o == nil {
		return nil
	}
	for _, n := range o.names {
		v := o.fields[n]
		switch {
		case !envName.MatchString(n):
			f.fault(v.StartOffset, "%s: %q is not a valid variable name; use only %s", name, n, envName.reported)
		case strings.HasPrefix(n, "PAI_"), strings.HasPrefix(n, "STAGER_"):
			f.fault(v.StartOffset, "%s: %s is reserved; use a name that does not begin with PAI_ or STAGER_", name, n)
		case n == "isDebug" || n == "paiAzRDMA":
			f.warn("%s: %s has no special meaning here; it is set as an ordinary variable", name, n)
		}
		value := compact(v)
		if lit, ok := v.Value.(hujson.Literal); ok && lit.Kind() == '"' {
			value = lit.String()
		}
		if strings.ContainsRune(value, 0) {
			f.fault(v.StartOffset, "%s: %s contains a NUL character; remove it", name, n)
		}
		all = append(all, variable{name: n, value: value})
	}
	return all
}

// json returns a field as JSON without comments, or "" if it is missing.
func (f *fields) json(name string) string {
	v := f.get(name, false)
	if v == nil {
		return ""
	}
	text := compact(v)
	if text == "{}" {
		return ""
	}
	return text
}

func compact(v *hujson.Value) string {
	c := v.Clone()
	c.Standardize()
	var b bytes.Buffer
	_ = json.Compact(&b, c.Pack()) // has been parsed
	return b.String()
}

// rest warns about fields that were not read.
func (f *fields) rest() {
	for _, name := range f.names {
		if !f.read[name] {
			line, _ := position(f.reader.text, f.at[name])
			f.warn("line %d: %s: unknown field %s is ignored", line, f.what, name)
		}
	}
}
