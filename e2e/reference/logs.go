package reference

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// logMessage is a message of the log at warn or error.
type logMessage struct{ text, level string }

// logCalls are the methods that log a message, with the level and the place of the message among
// their arguments. Log has a level of its own.
var logCalls = map[string]struct {
	level string
	at    int
}{
	"Warn": {"warn", 0}, "Error": {"error", 0}, "WarnContext": {"warn", 1}, "ErrorContext": {"error", 1},
	"Log": {"", 2}, "troubleLocked": {"warn", 0},
}

// variableLogs are the files with calls whose message is a variable, and how they log.
var variableLogs = map[string][]logMessage{
	"cmd/stager/explain.go":         {{sentences, "warn"}},
	"cmd/stager/inject.go":          {{sentences, "warn"}},
	"cmd/stager/manifests.go":       {{sentences, "warn"}},
	"cmd/stager/pai.go":             {{sentences, "warn"}},
	"stager/checkpoint/forecast.go": {{"the newest checkpoint would be lost: use a longer grace period", "error"}},
	"window/window.go":              nil, // troubleLocked itself
}

// sentences are warnings about a job specification.
const sentences = "(a sentence about the job)"

// readLogs returns the messages that the module in source logs at warn and error, without
// duplicates. Parts of a message that vary are "…".
func readLogs(source string) (map[string]logMessage, error) {
	found := make(map[string]logMessage)
	variable := make(map[string]bool)
	set := token.NewFileSet()
	for _, dir := range []string{"cmd", "stager", "backends", "window"} {
		err := filepath.WalkDir(filepath.Join(source, dir), func(path string, d fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(set, path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			name, err := filepath.Rel(source, path)
			if err != nil {
				return err
			}
			for _, m := range messagesIn(file) {
				if m.text == "" || strings.Trim(m.text, "…") == "" {
					variable[filepath.ToSlash(name)] = true
					continue
				}
				found[m.text] = m
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	var errs []error
	for name := range variable {
		if _, listed := variableLogs[name]; !listed {
			errs = append(errs, fmt.Errorf("%s logs a message that is a variable; list it in variableLogs of package reference", name))
		}
	}
	for name, messages := range variableLogs {
		if !variable[name] {
			errs = append(errs, fmt.Errorf("%s logs no message that is a variable; remove it from variableLogs of package reference", name))
		}
		for _, m := range messages {
			found[m.text] = m
		}
	}
	return found, errors.Join(errs...)
}

// messagesIn returns the messages that a file logs. The text of a variable is "…".
func messagesIn(file *ast.File) (messages []logMessage) {
	ast.Inspect(file, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		method, ok := call.Fun.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		how, logs := logCalls[method.Sel.Name]
		if on, ok := method.X.(*ast.Ident); !logs || len(call.Args) <= how.at || ok && (on.Name == "http" || on.Name == "math") {
			return true
		}
		m := logMessage{textOf(call.Args[how.at]), how.level}
		if m.level == "" {
			m.level = levelOf(call.Args[1])
		}
		messages = append(messages, m)
		return true
	})
	return messages
}

// levelOf returns the highest level of a call of Log, which a variable may lower.
func levelOf(e ast.Expr) string {
	if sel, ok := e.(*ast.SelectorExpr); ok {
		return strings.ToLower(strings.TrimPrefix(sel.Sel.Name, "Level"))
	}
	return "warn"
}

// textOf returns a message. Parts that are not literals are "…".
func textOf(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.BasicLit:
		if text, err := strconv.Unquote(e.Value); err == nil {
			return text
		}
	case *ast.BinaryExpr:
		return textOf(e.X) + textOf(e.Y)
	}
	return "…"
}

const logsIntro = `# Log messages

Every message that stager logs at warn and error, with its cause and what to do. Parts that vary are "…". The data, such as names and the error, are in the
fields of the line; the error says what failed and often what to do. ` + "`--log-format json`" + ` writes lines of JSON with the message in ` + "`msg`" + `.

Messages at warn describe what stager handles, or what weakens a promise. Messages at error describe what is lost or ends with an exit code that is not 0.
`

// logsPage returns the page of the log messages. It returns an error for a message that logTopics do
// not explain, and for one that stager does not log.
func logsPage(source string) (string, error) {
	found, err := readLogs(source)
	if err != nil {
		return "", err
	}
	return explainedPage(found)
}

func explainedPage(found map[string]logMessage) (string, error) {
	var b strings.Builder
	b.WriteString(generated + logsIntro)
	var errs []error
	for _, topic := range logTopics {
		entries := slices.SortedFunc(slices.Values(topic.messages), func(a, b explained) int { return strings.Compare(a.message, b.message) })
		fmt.Fprintf(&b, "\n## %s\n\n| message | level | cause, and what to do |\n|---|---|---|\n", topic.title)
		for _, e := range entries {
			m, known := found[e.message]
			if !known {
				errs = append(errs, fmt.Errorf("stager does not log %q, or logTopics of package reference explain it twice", e.message))
			}
			delete(found, e.message)
			fmt.Fprintf(&b, "| %s | %s | %s |\n", markdown(e.message), m.level, markdown(e.meaning))
		}
	}
	for text := range found {
		errs = append(errs, fmt.Errorf("explain the log message %q in logTopics of package reference", text))
	}
	return b.String(), errors.Join(errs...)
}
