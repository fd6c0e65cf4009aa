package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// The names that the code defines: environment variables, annotations and labels, and metrics.
var (
	variableName   = regexp.MustCompile(`\bSTAGER_[A-Z0-9_]+`)
	annotationName = regexp.MustCompile(`\bstager\.dev/[a-z0-9-]+`)
	metricName     = regexp.MustCompile(`\bstager_[a-z]+_[a-z_]+`)
	quotedName     = regexp.MustCompile("[\"'`]((?:STAGER_|stager\\.dev/|stager_)[A-Za-z0-9_-]+)")
)

// definedNames returns the names in the code, without that of tests, the variables of flags, and the
// annotations of their page, which is generated from the code.
func definedNames(t *testing.T) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	for _, dir := range []string{"backends", "cmd", "python", "stager", "window"} {
		if err := filepath.WalkDir(filepath.Join("../..", dir), func(path string, e fs.DirEntry, err error) error {
			code := filepath.Ext(path) == ".go" && !strings.HasSuffix(path, "_test.go") || filepath.Ext(path) == ".py" && !strings.Contains(path, "/tests/")
			if err != nil || !e.Type().IsRegular() || !code {
				return err
			}
			text, err := os.ReadFile(path)
			for _, found := range quotedName.FindAllSubmatch(text, -1) {
				names[string(found[1])] = true
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	for _, node := range parser(t, new(cli)).Model.Leaves(false) {
		for ; node != nil; node = node.Parent {
			for _, f := range node.Flags {
				for _, name := range f.Envs {
					names[name] = true
				}
			}
		}
	}
	page, err := os.ReadFile("../../docs/reference/annotations.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range annotationName.FindAllString(string(page), -1) {
		names[name] = true
	}
	return names
}

// series are the suffixes of the time series of a histogram.
var series = regexp.MustCompile(`_(bucket|count|sum)$`)

// Each environment variable, annotation and metric that the manual names exists.
func TestManualNamesExist(t *testing.T) {
	names := definedNames(t)
	seen := 0
	for _, line := range manualLines(t) {
		for _, pattern := range []*regexp.Regexp{variableName, annotationName, metricName} {
			for _, name := range pattern.FindAllString(line.text, -1) {
				seen++
				base := series.ReplaceAllString(name, "")
				prefixed := strings.HasPrefix(name, "STAGER_INPUT_") || strings.HasPrefix(name, "STAGER_OUTPUT_")
				if !names[name] && !names[base] && !prefixed {
					t.Errorf("%s: the code has no %s", line.place, name)
				}
			}
		}
	}
	if seen < 400 {
		t.Errorf("got %d names in the manual, want 400 or more", seen)
	}
}

// namedCode finds the exit codes of stager in a sentence; those of a trainer have one digit.
var namedCode = regexp.MustCompile(`(?i)(?:exit codes?|ends? with|ended with)(?: code)?(?: is)? ([0-9]{2,})\b`)

// Each exit code that the manual names is one of stager's.
func TestManualExitCodesExist(t *testing.T) {
	seen := 0
	for _, line := range manualLines(t) {
		for _, found := range namedCode.FindAllStringSubmatch(line.text, -1) {
			code, err := strconv.Atoi(found[1])
			seen++
			if err != nil || !slices.ContainsFunc(exitCodes, func(c exitCode) bool { return c.Code == code }) {
				t.Errorf("%s: %s: stager has no exit code %s", line.place, found[0], found[1])
			}
		}
	}
	if seen < 20 {
		t.Errorf("got %d exit codes in the manual, want 20 or more", seen)
	}
}
