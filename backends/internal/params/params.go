// Package params reads the parameters of a URL by a table of fields, one per parameter. The Registry
// has already rejected parameters that the protocol does not list.
//
//	err := params.Read(t.Params,
//		params.Bool("anonymous", &c.anonymous),
//		params.Choice("list", &c.list, "auto", "directories"))
package params

import (
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/stager-dev/stager/backends"
)

// Field reads one parameter into a variable.
type Field struct {
	name string
	want string                 // what a value must be, for the error
	set  func(text string) bool // sets the variable; false: the text is invalid
}

// Read sets the variables of the fields whose parameters the URL has. The others keep their values,
// which are the defaults. It returns an error of kind Invalid for the first invalid value.
func Read(values url.Values, fields ...Field) error {
	for _, f := range fields {
		if text := values.Get(f.name); text != "" && !f.set(text) {
			return backends.Errorf(backends.Invalid, "open", "", "parameter %q must be %s, not %q", f.name, f.want, text)
		}
	}
	return nil
}

// Bool reads true or false, in the forms of strconv.ParseBool.
func Bool(name string, to *bool) Field {
	return Field{name, "true or false", func(text string) bool {
		v, err := strconv.ParseBool(text)
		if err == nil {
			*to = v
		}
		return err == nil
	}}
}

// Switch reads on or off.
func Switch(name string, to *bool) Field {
	return Field{name, "on or off", func(text string) bool {
		*to = text == "on"
		return *to || text == "off"
	}}
}

// Choice reads one of the words.
func Choice(name string, to *string, words ...string) Field {
	last := len(words) - 1
	return Field{name, strings.Join(words[:last], ", ") + " or " + words[last], func(text string) bool {
		*to = text
		return slices.Contains(words, text)
	}}
}

// Int reads a number from least to most.
func Int(name string, to *int, least, most int) Field {
	return Field{name, "a number from " + strconv.Itoa(least) + " to " + strconv.Itoa(most), func(text string) bool {
		n, err := strconv.Atoi(text)
		*to = n
		return err == nil && n >= least && n <= most
	}}
}

// Text reads anything.
func Text(name string, to *string) Field {
	return Field{name, "", func(text string) bool {
		*to = text
		return true
	}}
}

// Func reads a parameter by set, which reports whether the text is valid. want describes valid
// values, as in "a size from 4KiB to 16MiB".
func Func(name, want string, set func(text string) bool) Field { return Field{name, want, set} }
