package release_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

func TestReleaseHasTheAlertsAndTheDashboard(t *testing.T) {
	dir := makeRelease(t)
	for name, from := range map[string]string{
		"prometheus-rules.yaml": "prometheus/rules.yaml",
		"podmonitor.yaml":       "prometheus/podmonitor.yaml",
		"grafana.json":          "grafana/stager.json",
	} {
		got, err := os.ReadFile(filepath.Join(dir, "stager_"+version+"_"+name))
		if err != nil {
			t.Fatal(err)
		}
		want, err := os.ReadFile(filepath.Join("../../deploy", from))
		if err != nil || len(want) == 0 || !bytes.Equal(got, want) {
			t.Errorf("%s: got %d bytes, %v, want the %d of deploy/%s", name, len(got), err, len(want), from)
		}
	}
}
