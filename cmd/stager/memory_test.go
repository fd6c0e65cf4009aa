package main

import (
	"os"
	"path/filepath"
	"testing"
)

func TestMemoryLimitIsThatOfTheControlGroup(t *testing.T) {
	defer func(dir string) { controlGroup = dir }(controlGroup)
	for _, tt := range []struct {
		name, text string
		want       int64
	}{
		{"memory.max", "67108864\n", 64 << 20},
		{"memory.max", "max\n", 0},
		{"memory/memory.limit_in_bytes", "134217728\n", 128 << 20},
		{"memory/memory.limit_in_bytes", "9223372036854771712\n", 0},
		{"other", "1", 0},
	} {
		controlGroup = t.TempDir()
		name := filepath.Join(controlGroup, tt.name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(tt.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := memoryLimit(); got != tt.want {
			t.Errorf("%s with %q: %d, want %d", tt.name, tt.text, got, tt.want)
		}
	}
}
