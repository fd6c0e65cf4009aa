package main

import (
	"encoding/json"
	"log/slog"
	"os"
	"reflect"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/all"
)

// referenceCmd prints what the manual and the man pages generate from the command line.
type referenceCmd struct{}

// reference describes the command line and its URLs.
type reference struct {
	About     string             `json:"about"`
	Flags     []referenceFlag    `json:"flags"` // of all commands
	Commands  []referenceCommand `json:"commands"`
	ExitCodes []exitCode         `json:"exitCodes"`
	Schemes   []referenceScheme  `json:"schemes"`
}

// referenceScheme describes the URLs of a protocol.
type referenceScheme struct {
	Name        string           `json:"name"`
	Summary     string           `json:"summary"`
	Example     string           `json:"example"`
	Credentials string           `json:"credentials"`
	Params      []backends.Param `json:"params"`
	Lists       bool             `json:"lists"`  // "stager ls" of a URL without a bucket lists the buckets
	Server      bool             `json:"server"` // URLs begin with a server, and the path with a bucket
}

// referenceCommand describes a command.
type referenceCommand struct {
	Name  string          `json:"name"` // such as "pai convert"
	Group string          `json:"group"`
	Usage string          `json:"usage"`
	Help  string          `json:"help"`
	Long  string          `json:"long,omitempty"` // paragraphs, and examples that are indented by four spaces
	Args  []referenceArg  `json:"args,omitempty"`
	Flags []referenceFlag `json:"flags,omitempty"`
}

// referenceArg describes an argument.
type referenceArg struct {
	Name string `json:"name"` // as in the usage
	Help string `json:"help"`
}

// referenceFlag describes a flag.
type referenceFlag struct {
	Name       string   `json:"name"`
	Short      string   `json:"short,omitempty"`
	Type       string   `json:"type"`
	Value      string   `json:"value,omitempty"` // what stands for its value in the usage
	Enum       []string `json:"enum,omitempty"`
	Default    string   `json:"default,omitempty"`
	Env        string   `json:"env,omitempty"`
	Required   bool     `json:"required,omitempty"`
	Repeatable bool     `json:"repeatable,omitempty"`
	Negatable  bool     `json:"negatable,omitempty"` // --no-NAME exists
	Help       string   `json:"help"`
}

func (referenceCmd) Run(parser *kong.Kong) error {
	out := json.NewEncoder(os.Stdout)
	out.SetEscapeHTML(false)
	return out.Encode(referenceOf(parser.Model.Node))
}

func referenceOf(root *kong.Node) reference {
	r := reference{About: about, Flags: referenceFlags(root), ExitCodes: exitCodes}
	for _, node := range root.Leaves(true) {
		c := referenceCommand{
			Name: strings.TrimPrefix(node.FullPath(), root.Name+" "), Usage: root.Name + " " + node.Summary(),
			Help: node.Help, Long: node.Detail, Flags: referenceFlags(node),
		}
		if group := node.ClosestGroup(); group != nil {
			c.Group = group.Title
		}
		for _, arg := range node.Positional {
			c.Args = append(c.Args, referenceArg{arg.Summary(), arg.Help})
		}
		r.Commands = append(r.Commands, c)
	}
	for _, s := range all.Registry().Schemes() {
		r.Schemes = append(r.Schemes, referenceScheme{s.Name, s.Summary, s.Example, s.Credentials, s.Params, s.Buckets != nil, s.Server})
	}
	return r
}

func referenceFlags(node *kong.Node) (flags []referenceFlag) {
	for _, f := range node.Flags {
		if f.Hidden || f.Name == "help" {
			continue
		}
		described := referenceFlag{
			Name: f.Name, Type: typeOfFlag(f), Enum: enumOf(f.Value), Default: f.Default, Env: strings.Join(f.Envs, ", "),
			Required: f.Required && len(f.Xor) == 0, Repeatable: f.IsCumulative(), Negatable: f.Tag.Negatable != "", Help: f.Help,
		}
		if others := alternatives(node, f); f.Required && others != "" {
			described.Help += " Required, unless " + others + " is set."
		}
		if !f.IsBool() {
			described.Value = f.PlaceHolder
		}
		if f.Short != 0 {
			described.Short = string(f.Short)
		}
		flags = append(flags, described)
	}
	return flags
}

// alternatives returns the flags of which only one can be set with f.
func alternatives(node *kong.Node, f *kong.Flag) string {
	var names []string
	for _, other := range node.Flags {
		if other != f && slices.ContainsFunc(other.Xor, func(x string) bool { return slices.Contains(f.Xor, x) }) {
			names = append(names, "--"+other.Name)
		}
	}
	return strings.Join(names, " or ")
}

// typeOfFlag returns the type of a flag's value, in one word.
func typeOfFlag(f *kong.Flag) string {
	t := f.Target.Type()
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	switch {
	case f.IsBool():
		return "switch"
	case f.Enum != "":
		return "choice"
	case t == reflect.TypeFor[slog.Level]():
		return "level"
	case t == reflect.TypeFor[quantity](), t == reflect.TypeFor[sizeFlag]():
		return "size"
	case t == reflect.TypeFor[rateFlag]():
		return "rate"
	case t.Name() == "Duration":
		return "duration"
	case t.Kind() == reflect.Map:
		return "pair"
	case t.Kind() == reflect.Int64, t.Kind() == reflect.Int, t.Kind() == reflect.Uint64:
		return "number"
	case t.Kind() == reflect.Float64:
		return "decimal"
	}
	return "text"
}
