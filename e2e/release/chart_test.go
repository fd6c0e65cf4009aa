package release_test

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stager-dev/stager/backends/conformance/live"
	"github.com/stager-dev/stager/e2e/servers"
)

// The chart of a release installs the image of the release without any value being set.
func TestChartInstallsTheReleasedImage(t *testing.T) {
	chart := filepath.Join(makeRelease(t), "stager-"+version+".tgz")
	out, err := exec.Command("tar", "-xOzf", chart, "stager/Chart.yaml").CombinedOutput()
	if want := "\nversion: " + version + "\nappVersion: " + version + "\n"; err != nil || !strings.Contains(string(out), want) {
		t.Errorf("got %v, %s, want %q", err, out, want)
	}
	helm, err := servers.Program("helm-4")
	live.Require(t, "helm", err)
	out, err = exec.Command(helm, "template", "stager", chart, "--namespace", "stager").CombinedOutput()
	if want := "image: \"" + repository + ":" + version + "\""; err != nil || strings.Count(string(out), want) != 2 { // of the webhook and of its test
		t.Errorf("got %v, %s, want twice %s", err, out, want)
	}
}
