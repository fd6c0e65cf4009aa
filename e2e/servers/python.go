package servers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Python is an interpreter for the tests of what is written in Python.
func Python() (string, error) {
	path, err := find("python3")
	if err != nil {
		return "", notHere("python", err)
	}
	return path, nil
}

func pythonMissing() error {
	_, err := find("python3")
	return err
}

// debianPython is the one that finds Debian's own modules. PyTorch comes from there:
// the wheel for Linux brings gigabytes for GPUs along.
const debianPython = "/usr/bin/python3"

// wheels are installed without what they would like to have. Of scikit-learn nothing
// is run: it has a dataset in it.
var wheels = []string{"webdataset==1.0.2", "braceexpand==0.1.7", "scikit-learn==1.3.2"}

// Trainer is a Python with PyTorch and WebDataset.
type Trainer struct {
	Python string // the interpreter
	Path   string // for PYTHONPATH
	Digits string // scikit-learn's handwritten digits, as .csv.gz
}

// PyTorch finds what Install("pytorch") installed.
func PyTorch() (Trainer, error) {
	path, err := wheelsFolder()
	if err == nil {
		err = errors.Join(torchMissing(), wheelsMissing(path))
	}
	if err != nil {
		return Trainer{}, notHere("pytorch", err)
	}
	return Trainer{debianPython, path, filepath.Join(path, "sklearn", "datasets", "data", "digits.csv.gz")}, nil
}

func installPyTorch(ctx context.Context, progress io.Writer) error {
	if err := install(ctx, progress, torchMissing, "python3-torch", "python3-yaml", "python3-pip"); err != nil {
		return err
	}
	path, err := wheelsFolder()
	if err != nil || wheelsMissing(path) == nil {
		return err
	}
	fmt.Fprintln(progress, "installing", strings.Join(wheels, " "), "by pip, in the user's cache")
	unfinished := path + ".part"
	if err := os.RemoveAll(unfinished); err != nil {
		return err
	}
	args := append([]string{"-m", "pip", "install", "--quiet", "--no-deps", "--root-user-action=ignore", "--target", unfinished}, wheels...)
	if out, err := exec.CommandContext(ctx, debianPython, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("pip: %w\n%s", err, out)
	}
	return os.Rename(unfinished, path)
}

// wheelsFolder is where the wheels of these versions lie.
func wheelsFolder() (string, error) {
	cache, err := os.UserCacheDir()
	return filepath.Join(cache, "stager-test-servers", strings.NewReplacer("==", "-").Replace(strings.Join(wheels, "_"))), err
}

func wheelsMissing(path string) error {
	if _, err := os.Stat(path); err != nil {
		return errors.New("WebDataset is not on this machine")
	}
	return nil
}

func torchMissing() error {
	for _, module := range []string{"torch", "yaml", "pip"} {
		found, err := filepath.Glob(filepath.Join("/usr/lib/python3/dist-packages", module))
		if err != nil || len(found) == 0 {
			return fmt.Errorf("there is no module %s of Debian's Python on this machine", module)
		}
	}
	return nil
}
