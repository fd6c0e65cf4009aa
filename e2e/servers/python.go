package servers

import (
	"context"
	"crypto/sha256"
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

// wheels are what pip installs for a trainer, without what they would like to have.
type wheels []string

var (
	// Of scikit-learn nothing is run: it has a dataset in it.
	pytorchWheels = wheels{"webdataset==1.0.2", "braceexpand==0.1.7", "scikit-learn==1.3.2"}
	// What checks the Python package; what comes after the first three is what mypy imports.
	pythonToolWheels = wheels{
		"mypy==2.4.1", "ruff==0.17.6", "coverage==7.17.4",
		"ast_serialize==0.13.1", "librt==0.17.0", "mypy_extensions==1.2.0", "pathspec==1.1.1", "typing_extensions==4.16.0",
	}
	// What comes after the first two is what these import. Of transformers, tests load configurations
	// and tokenizers, which need no PyTorch.
	hubWheels = wheels{
		"huggingface_hub==0.36.2", "transformers==4.57.6",
		"certifi==2026.10.19.post1", "charset-normalizer==3.5.2", "filelock==4.2.11", "fsspec==2026.9.0", "idna==3.20", "numpy==2.4.6", "packaging==26.3",
		"PyYAML==6.0.4", "regex==2026.11.15", "requests==2.34.2", "safetensors==0.8.0", "tokenizers==0.22.2", "tqdm==4.70.1", "typing_extensions==4.16.0",
		"urllib3==2.8.0",
	}
	// What comes after the first three is what these import, beside Debian's.
	streamingWheels = wheels{
		"mosaicml-streaming==0.13.0", "webdataset==1.0.2", "braceexpand==0.1.7",
		"boto3==1.44.5", "botocore==1.44.5", "brotli==1.2.1", "catalogue==2.0.10", "cramjam==2.14.0", "filelock==4.2.11", "fsspec==2026.9.0",
		"huggingface_hub==0.36.2", "jmespath==1.1.0", "packaging==26.3", "python-snappy==0.7.3", "regex==2026.11.15", "s3transfer==0.19.3",
		"safetensors==0.8.0", "tokenizers==0.22.2", "tqdm==4.70.1", "transformers==4.57.6", "xxhash==3.8.2", "zstd==1.5.7.2",
	}
)

// Trainer is a Python with PyTorch and what goes with it.
type Trainer struct {
	Python string // the interpreter
	Path   string // for PYTHONPATH
	Digits string // scikit-learn's handwritten digits, as .csv.gz; of PyTorch alone
}

// PyTorch finds what Install("pytorch") installed.
func PyTorch() (Trainer, error) {
	t, err := pytorchWheels.trainer("pytorch", torchModules)
	t.Digits = filepath.Join(t.Path, "sklearn", "datasets", "data", "digits.csv.gz")
	return t, err
}

// PythonTools finds what Install("pytorch") installed to check the Python package: mypy, ruff and coverage.
func PythonTools() (Trainer, error) { return pythonToolWheels.trainer("pytorch", torchModules) }

// pyright checks types as editors do.
const pyright npmPackages = "pyright"

// Pyright finds what Install("pytorch") installed beside mypy: an interpreter and the script for it.
func Pyright() (node, script string, err error) {
	if node, script, err = pyright.program("node_modules/pyright/index.js"); err != nil {
		return "", "", notHere("pytorch", err)
	}
	return node, script, nil
}

// Streaming finds what Install("streaming") installed: PyTorch with WebDataset and MosaicML
// Streaming.
func Streaming() (Trainer, error) { return streamingWheels.trainer("streaming", streamingModules) }

// hubModules installs hubWheels.
var hubModules = modules{"pip"}

// HuggingFace finds what Install("hf") installed: huggingface_hub and transformers.
func HuggingFace() (Trainer, error) { return hubWheels.trainer("hf", hubModules) }

// modules are those of Debian's Python; a package has the name of its module.
type modules []string

var (
	torchModules     = modules{"torch", "yaml", "pip"}
	streamingModules = modules{"torch", "torchvision", "yaml", "pip", "requests"}
)

func (m modules) missing() error {
	for _, module := range m {
		found, err := filepath.Glob(filepath.Join("/usr/lib/python3/dist-packages", module))
		if err != nil || len(found) == 0 {
			return fmt.Errorf("there is no module %s of Debian's Python on this machine", module)
		}
	}
	return nil
}

func (m modules) packages() (names []string) {
	for _, module := range m {
		names = append(names, "python3-"+module)
	}
	return names
}

// trainer finds what install installed.
func (w wheels) trainer(name string, m modules) (Trainer, error) {
	path, err := w.dir()
	if err == nil {
		err = errors.Join(m.missing(), w.missing(path))
	}
	if err != nil {
		return Trainer{}, notHere(name, err)
	}
	return Trainer{Python: debianPython, Path: path}, nil
}

// program finds a program in a wheel that install installed.
func (w wheels) program(name, program string) (string, error) {
	path, err := w.dir()
	if err == nil {
		path = filepath.Join(path, "bin", program)
		_, err = exec.LookPath(path)
	}
	if err != nil {
		return "", notHere(name, fmt.Errorf("%s is not on this machine", w[0]))
	}
	return path, nil
}

func (w wheels) install(ctx context.Context, progress io.Writer, m modules) error {
	if err := install(ctx, progress, m.missing, m.packages()...); err != nil {
		return err
	}
	path, err := w.dir()
	if err != nil {
		return err
	}
	defer exclusive(path)()
	if w.missing(path) == nil {
		return nil
	}
	fmt.Fprintln(progress, "installing", strings.Join(w, " "), "by pip, in the user's cache")
	unfinished := path + ".part"
	if err := os.RemoveAll(unfinished); err != nil {
		return err
	}
	args := append([]string{"-m", "pip", "install", "--quiet", "--no-deps", "--root-user-action=ignore", "--target", unfinished}, w...)
	if out, err := exec.CommandContext(ctx, debianPython, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("pip: %w\n%s", err, out)
	}
	return os.Rename(unfinished, path)
}

// dir is where the wheels of these versions lie.
func (w wheels) dir() (string, error) {
	cache, err := os.UserCacheDir()
	key := sha256.Sum256([]byte(strings.Join(w, " ")))
	return filepath.Join(cache, "stager-test-servers", fmt.Sprintf("wheels-%x", key[:6])), err
}

func (w wheels) missing(path string) error {
	if _, err := os.Stat(path); err != nil {
		return fmt.Errorf("%s and what goes with it is not on this machine", w[0])
	}
	return nil
}
