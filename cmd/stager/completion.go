package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"github.com/stager-dev/stager/backends/all"
	"github.com/stager-dev/stager/stager/api"
)

// completionCmd prints a script for a shell. The script runs the hidden command "complete" for
// each word, so that it need not know any command or flag.
type completionCmd struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"Shell: bash, zsh or fish."`
}

// Help returns the detailed help.
func (completionCmd) Help() string {
	return `Completes commands, flags and their values, URL schemes, the names of inputs and outputs of the running stager, and objects in a store, one directory at a time. Stores are asked for two seconds at most.

    source <(stager completion bash)                                        # add to ~/.bashrc
    stager completion zsh > "${fpath[1]}/_stager"                           # then start a new shell
    stager completion fish > ~/.config/fish/completions/stager.fish`
}

func (c completionCmd) Run() error {
	_, err := os.Stdout.WriteString(completionScripts[c.Shell])
	return err
}

// completionScripts run "stager complete WORDS…", whose last word is the one to complete. It
// prints a candidate per line, with a tab and a description where there is one. It prints nothing
// where names of files are wanted.
var completionScripts = map[string]string{
	"bash": `# bash completion of stager
_stager() {
    local cur words=("${COMP_WORDS[@]:1:COMP_CWORD}") line
    # bash splits words at : and =, which are part of URLs and flags
    cur=${COMP_LINE:0:COMP_POINT}
    read -ra words <<<"$cur"
    [[ $cur == *[[:space:]] ]] && words+=("")
    cur=${words[-1]}
    COMPREPLY=()
    while IFS=$'\t' read -r line _; do
        # what precedes the last : or = is on the command line already
        [[ $cur == *[:=]* && $COMP_WORDBREAKS == *:* ]] && line=${line#"${cur%"${cur##*[:=]}"}"}
        COMPREPLY+=("$line")
    done < <("${words[0]}" complete -- "${words[@]:1}" 2>/dev/null)
    [[ ${COMPREPLY[0]-} == *[/=] ]] && compopt -o nospace
}
complete -o default -F _stager stager
`,
	"zsh": `#compdef stager
_stager() {
    local -a plain described
    local line
    while IFS= read -r line; do
        if [[ $line == *$'\t'* ]]; then
            described+=("${${line%%$'\t'*}//:/\\:}:${line#*$'\t'}")
        else
            plain+=("$line")
        fi
    done < <("${words[1]}" complete -- "${(@)words[2,CURRENT]}" 2>/dev/null)
    if (( ${#plain} + ${#described} == 0 )); then
        _files
        return
    fi
    (( ${#described} )) && _describe stager described
    (( ${#plain} )) && compadd -S '' -- $plain
}
if [[ $zsh_eval_context[-1] == loadautofunc ]]; then _stager "$@"; else compdef _stager stager; fi
`,
	"fish": `# fish completion of stager
function __stager_complete
    set -l words (commandline -opc) (commandline -ct)
    $words[1] complete -- $words[2..] 2>/dev/null
end
complete -c stager -n 'count (__stager_complete) >/dev/null' -f -a '(__stager_complete)'
`,
}

// completeCmd prints the candidates for the last of Words.
type completeCmd struct {
	Cobra bool     `help:"End with a directive, as kubectl expects of its plugins."`
	Words []string `arg:"" optional:"" passthrough:"" help:"The command line without its first word."`
}

// What completion asks a store for.
const (
	completeWithin = 2 * time.Second
	completeMost   = 1000
)

// Run prints nothing instead of an error: a shell has no place for it.
func (c completeCmd) Run(ctx context.Context, parser *kong.Kong) error {
	words := c.Words
	if len(words) > 0 && words[0] == "--" {
		words = words[1:]
	}
	if len(words) == 0 {
		words = []string{""}
	}
	ctx, cancel := context.WithTimeout(ctx, completeWithin)
	defer cancel()
	place := completionPlace(parser.Model.Node, words[:len(words)-1])
	candidates := place.candidates(ctx, words[len(words)-1])
	for _, candidate := range candidates {
		fmt.Println(candidate)
	}
	switch {
	case c.Cobra && len(candidates) > 0:
		fmt.Println(":4") // no names of files
	case c.Cobra:
		fmt.Println(":0")
	}
	return nil
}

// placeToComplete is where a command line ends.
type placeToComplete struct {
	node    *kong.Node // of the command
	flag    *kong.Flag // whose value follows; nil: none
	given   int        // arguments of the command so far
	command bool       // the words are those of another program
	cluster inCluster  // by the flags so far
}

// completionPlace follows the words of a command line.
func completionPlace(root *kong.Node, words []string) placeToComplete {
	at := placeToComplete{node: root}
	for _, word := range words {
		name, value, hasValue := strings.Cut(word, "=")
		switch child := childOf(at.node, word); {
		case at.command:
		case at.flag != nil:
			at.cluster.set(at.flag.Name, word)
			at.flag = nil
		case word == "--":
			at.command = true
		case strings.HasPrefix(word, "-"):
			switch f := flagOf(at.node, name); {
			case f == nil || f.IsBool():
			case hasValue:
				at.cluster.set(f.Name, value)
			default:
				at.flag = f
			}
		case child != nil && child.Name == "help": // commands follow
		case child != nil:
			at.node = child
		default:
			at.given++
		}
	}
	return at
}

func childOf(node *kong.Node, name string) *kong.Node {
	for _, c := range node.Children {
		if c.Name == name || slices.Contains(c.Aliases, name) {
			return c
		}
	}
	return nil
}

// flagOf finds a flag of a command or of one above it, by --name or -n.
func flagOf(node *kong.Node, word string) *kong.Flag {
	for ; node != nil; node = node.Parent {
		for _, f := range node.Flags {
			if word == "--"+f.Name || f.Short != 0 && word == "-"+string(f.Short) {
				return f
			}
		}
	}
	return nil
}

// candidates returns what word may become. None means that it may be the name of a file.
func (at placeToComplete) candidates(ctx context.Context, word string) []string {
	switch {
	case at.command:
		return nil
	case at.flag != nil:
		return beginning(word, enumOf(at.flag.Value))
	case strings.HasPrefix(word, "-"):
		return at.flags(word)
	case len(at.node.Children) > 0:
		var names []string
		for _, c := range at.node.Children {
			if !c.Hidden {
				names = append(names, c.Name+"\t"+c.Help)
			}
		}
		return beginning(word, names)
	case at.given >= len(at.node.Positional):
		return nil
	}
	arg := at.node.Positional[at.given]
	switch {
	case strings.Contains(word, "://"):
		return remote(ctx, word)
	case arg.Enum != "":
		return beginning(word, enumOf(arg))
	case arg.Name == "input" || arg.Name == "output":
		return beginning(word, running(ctx, arg.Name))
	case arg.Name == "pod":
		return beginning(word, at.cluster.podNames(ctx))
	case arg.Tag.Type != "" || arg.Passthrough || word == "" || strings.ContainsAny(word[:1], "./~"):
		return nil
	}
	return beginning(word, schemes())
}

// beginning returns the candidates that begin with word.
func beginning(word string, from []string) []string {
	return slices.DeleteFunc(from, func(c string) bool { return !strings.HasPrefix(c, word) })
}

func enumOf(v *kong.Value) []string {
	if v.Enum == "" {
		return nil
	}
	return strings.Split(v.Enum, ",")
}

// flags returns the flags of a command, or the values of one.
func (at placeToComplete) flags(word string) []string {
	if name, value, ok := strings.Cut(word, "="); ok {
		f := flagOf(at.node, name)
		if f == nil {
			return nil
		}
		values := beginning(value, enumOf(f.Value))
		for i, v := range values {
			values[i] = name + "=" + v
		}
		return values
	}
	var names []string
	for node := at.node; node != nil; node = node.Parent {
		for _, f := range node.Flags {
			if !f.Hidden {
				names = append(names, "--"+f.Name+"\t"+f.Help)
			}
		}
	}
	return beginning(word, names)
}

func schemes() (names []string) {
	for _, s := range all.Registry().Schemes() {
		names = append(names, s.Name+"://")
	}
	return names
}

// running returns the names of the inputs or outputs of the running stager.
func running(ctx context.Context, what string) (names []string) {
	var snap api.Snapshot
	if _, _, err := (socket{Socket: os.Getenv("STAGER_SOCKET")}).call(ctx, "GET", "/v1/status", nil, nil, &snap); err != nil {
		return nil
	}
	if what == "output" {
		for _, o := range snap.Outputs {
			names = append(names, o.Output)
		}
		return names
	}
	for _, in := range snap.Inputs {
		names = append(names, in.Name+"\t"+in.Source)
	}
	return names
}

// remote lists one level of a store: the objects and directories whose URLs begin with word.
func remote(ctx context.Context, word string) (urls []string) {
	dir := word[:strings.LastIndexByte(word, '/')+1]
	s := storing{reaching: reaching{RetryFor: time.Second, StallAfter: completeWithin}}
	store, err := s.open(ctx, dir, slog.New(slog.NewTextHandler(io.Discard, nil)))
	if err != nil {
		return nil
	}
	defer store.Close() // only read from
	left := completeMost
	for obj, err := range store.ListLevel(ctx, word[len(dir):]) {
		if left--; err != nil || left < 0 {
			break
		}
		if printable(obj.Key) == obj.Key {
			urls = append(urls, dir+obj.Key)
		}
	}
	return urls
}
