package bench

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/stager-dev/stager/backends/conformance/hub"
	"github.com/stager-dev/stager/e2e/servers"
)

// hf is beside "hf download", which verifies no contents.
func hf(ctx context.Context, lab *Lab) (rows []Row, note string, stop func() error, err error) {
	if err := servers.Install(ctx, "hf", lab.Log); err != nil {
		return nil, "", nil, err
	}
	python, err := servers.HuggingFace()
	if err != nil {
		return nil, "", nil, err
	}
	dir := filepath.Join(lab.Dir, "hf")
	model, err := MakeData(dir, lab.Data.Size, 200, lab.Data.Size/100)
	if err != nil {
		return nil, "", nil, err
	}
	if err := firstOf(os.RemoveAll(model.One), os.Rename(model.Many, filepath.Join(dir, "model"))); err != nil {
		return nil, "", nil, err
	}
	directories := map[string]string{"one": lab.Data.One, "many": lab.Data.Many, "model": filepath.Join(dir, "model")}
	models, err := hub.Serve(directories)
	if err != nil {
		return nil, "", nil, err
	}
	s := site{lab: lab, name: "hf", url: "hf://org/", env: []string{"HF_ENDPOINT=" + models.URL, "HF_HOME=" + filepath.Join(dir, "home")}, peer: "hf download"}
	s.get = func(from, to string) *exec.Cmd {
		cmd := exec.Command(python.Python, "-c", "from huggingface_hub.cli.hf import main; main()", //nolint:noctx // measure runs it
			"download", "org/"+from, "--local-dir", to, "--max-workers=16", "--quiet")
		cmd.Env = append(append(os.Environ(), s.env...), "PYTHONPATH="+python.Path, "HF_HUB_DISABLE_XET=1", "HF_HUB_DISABLE_TELEMETRY=1")
		return cmd
	}
	whole := s.reading(set{"model", filepath.Join(dir, "model"), fmt.Sprintf("200 × %s", sizeOf(lab.Data.Size/100)), 200 * (lab.Data.Size / 100), 200})
	whole.Goal = Goal{Ratio: 3}
	return append(s.readings(), whole), "a Hub in the process that measures; " + versionOf(python.Python, "--version"), func() error {
		models.Close()
		return os.RemoveAll(dir)
	}, nil
}
