package reference

import (
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const logsSource = `package x

func f() {
	log.Warn("a plain one", "key", "a value")
	u.log.ErrorContext(ctx, "of "+"parts")
	w.troubleLocked("cannot fetch "+name, err)
	log.Log(ctx, slog.LevelError, "with a level")
	log.Log(ctx, level, "with a variable level")
	log.Warn(text)
	log.Info("not listed")
	http.Error(w, "not a log", 500)
	_ = err.Error()
}
`

func TestMessagesAreFound(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "x.go", logsSource, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	want := []logMessage{
		{"a plain one", "warn"},
		{"of parts", "error"},
		{"cannot fetch …", "warn"},
		{"with a level", "error"},
		{"with a variable level", "warn"},
		{"…", "warn"},
	}
	if got := messagesIn(file); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// A message that no topic explains, one that is logged no longer and a variable are errors.
func TestMessagesAreAllExplained(t *testing.T) {
	source := t.TempDir()
	for _, dir := range []string{"cmd", "stager", "backends", "window"} {
		if err := os.Mkdir(filepath.Join(source, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(source, "window", "x.go"), []byte(logsSource), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := readLogs(source)
	if err == nil || !strings.Contains(err.Error(), "window/x.go logs a message that is a variable") || !strings.Contains(err.Error(), "stager/checkpoint/forecast.go logs no message that is a variable") {
		t.Errorf("got %v, want an error that names both files", err)
	}
	_, errs := explainedPage(map[string]logMessage{"a plain one": {"a plain one", "warn"}})
	if text := errs.Error(); !strings.Contains(text, `explain the log message "a plain one"`) || !strings.Contains(text, `stager does not log "moved"`) {
		t.Errorf("got %v, want an error that names both messages", errs)
	}
}
