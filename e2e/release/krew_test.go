package release_test

import (
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/stager-dev/stager/backends/conformance/live"
	"github.com/stager-dev/stager/e2e/servers"
)

// krewManifest has the fields that Krew reads.
type krewManifest struct {
	Metadata struct{ Name string }
	Spec     struct {
		Version, ShortDescription string
		Platforms                 []struct {
			Selector         struct{ MatchLabels struct{ OS, Arch string } }
			URI, SHA256, Bin string
			Files            []struct{ From, To string }
		}
	}
}

func TestKrewManifestDescribesTheArchives(t *testing.T) {
	dir := makeRelease(t)
	text, err := os.ReadFile(filepath.Join(dir, "stager.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var m krewManifest
	if err := yaml.Unmarshal(text, &m); err != nil {
		t.Fatal(err)
	}
	if len(m.Spec.Platforms) != 1 || m.Metadata.Name != "stager" || m.Spec.Version != "v"+version || len(m.Spec.ShortDescription) > 50 {
		t.Fatalf("got %+v, want version v%s for this machine", m, version)
	}
	p := m.Spec.Platforms[0]
	archive := "stager_" + version + "_linux_" + runtime.GOARCH + ".tar.gz"
	body, err := os.ReadFile(filepath.Join(dir, archive))
	if err != nil {
		t.Fatal(err)
	}
	got := fmt.Sprint(p.Selector.MatchLabels, p.URI, p.SHA256, p.Bin)
	if want := fmt.Sprint(struct{ OS, Arch string }{"linux", runtime.GOARCH}, address+"/"+archive, fmt.Sprintf("%x", sha256.Sum256(body)), "stager"); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	packed, err := exec.Command("tar", "-tzf", filepath.Join(dir, archive)).Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range p.Files {
		if !strings.Contains("\n"+string(packed), "\n"+f.From+"\n") || f.To != "." {
			t.Errorf("got the file %+v, which is not in the archive:\n%s", f, packed)
		}
	}
}

// Krew installs the plugin, which runs under the name that kubectl looks for.
func TestKrewInstallsThePlugin(t *testing.T) {
	krew, err := servers.Program("krew")
	live.Require(t, "krew", err)
	dir, root := makeRelease(t), t.TempDir()
	cmd := exec.Command(krew, "install", "--manifest="+filepath.Join(dir, "stager.yaml"), "--archive="+filepath.Join(dir, "stager_"+version+"_linux_"+runtime.GOARCH+".tar.gz"))
	cmd.Env = append(os.Environ(), "KREW_ROOT="+root, "KREW_NO_UPGRADE_CHECK=1")
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "Installed plugin: stager") {
		t.Fatalf("got %v, %s", err, out)
	}
	out, err := exec.Command(filepath.Join(root, "bin", "kubectl-stager"), "status").CombinedOutput()
	if want := "name a pod or job/NAME, or select pods with -l"; err == nil || !strings.Contains(string(out), want) {
		t.Errorf("got %q, %v, want %q", out, err, want)
	}
}
