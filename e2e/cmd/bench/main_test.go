package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stager-dev/stager/e2e/bench"
)

// TestMain runs the command itself in a process that asks for it.
func TestMain(m *testing.M) {
	if os.Getenv("TEST_AS_BENCH") != "" {
		main()
	}
	os.Exit(m.Run())
}

func TestCompareExits(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, ratio float64) string {
		var lines bytes.Buffer
		for _, e := range []bench.Entry{{Start: &bench.Start{}}, {Result: &bench.Result{Store: "s3", Ratios: bench.Ratios{ratio, ratio, ratio, ratio}}}} {
			if err := e.Write(&lines); err != nil {
				t.Fatal(err)
			}
		}
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, lines.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	fast, slow, missing := write("fast", 2), write("slow", 1), filepath.Join(dir, "missing")
	for _, tt := range []struct {
		args []string
		code int
		out  string // a part of stdout
		err  string
	}{
		{[]string{fast, slow}, 0, "| slower |", ""},
		{[]string{slow, missing}, 2, "", "bench: open " + missing + ": no such file or directory\n"},
		{[]string{os.Args[0], slow}, 2, "", "bench: " + os.Args[0] + ": line 1 is not what bench -json writes; it writes one JSON object a line, the first with the machine\n"},
		{[]string{slow}, 2, "", "bench: compare needs two files that bench -json wrote: bench compare A.json B.json\n"},
	} {
		cmd := exec.CommandContext(t.Context(), os.Args[0], append([]string{"compare"}, tt.args...)...)
		cmd.Env = append(os.Environ(), "TEST_AS_BENCH=1")
		var stderr strings.Builder
		cmd.Stderr = &stderr
		stdout, err := cmd.Output()
		if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
			t.Fatal(err)
		}
		if got := cmd.ProcessState.ExitCode(); got != tt.code || !strings.Contains(string(stdout), tt.out) || stderr.String() != tt.err {
			t.Errorf("compare %q: got code %d, %q and %q, want code %d, %q in the first and %q", tt.args, got, stdout, stderr.String(), tt.code, tt.out, tt.err)
		}
	}
}
