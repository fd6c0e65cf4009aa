package bench

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/stager-dev/stager/e2e/servers"
)

// What the window is measured with: images in shards, and a store that gives a fifth more
// than a trainer takes.
const (
	trainShards, shardImages, imageSize = 36, 128, 100 << 10
	trainImages                         = trainShards * shardImages

	narrow    = 48_000_000 // bytes a second
	windowful = 12         // shards that the window and the others' caches may keep: four readers hold one each, and twice four come
)

// window is beside WebDataset's cache and MosaicML Streaming, each feeding the same trainer
// with the same images from the same server at the same bandwidth, and beside a prefetch
// of the same shards.
func window(ctx context.Context, lab *Lab) (rows []Row, note string, stop func() error, err error) {
	t, server, end, err := startTrainer(ctx, lab, "window")
	if err != nil {
		return nil, "", nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, end.all())
		}
	}()
	way, err := servers.StartNarrow(strings.TrimPrefix(server.Endpoint, "http://"), narrow)
	if err != nil {
		return nil, "", nil, err
	}
	end = append(end, way.Close)
	if err := t.serve(server.Env(), way.Address); err != nil {
		return nil, "", nil, err
	}
	near := t
	near.env = server.Env()
	quick := near.overhead("window, any bandwidth")
	quick.Goal = Goal{Ratio: 0.95}
	rows = []Row{
		t.overhead(fmt.Sprintf("window, %d MB/s", narrow/1_000_000)), quick,
		t.row("window, a fifth more than is taken", "WebDataset, its cache", t.webdataset),
		t.row("window, a fifth more than is taken", "MosaicML Streaming", t.mosaic),
		t.row("window, and files that are there", "WebDataset, local files", t.local),
	}
	note = fmt.Sprintf("trainers are PyTorch's DataLoader with four workers and take %.0f images of %s a second, for which the store's %d MB/s are 1.2 times what is needed; "+
		"the window and the caches may keep %d of %d shards of %d images; %s", 1/t.work.Seconds(), sizeOf(imageSize), narrow/1_000_000, windowful, trainShards, shardImages,
		quickNote+"; MosaicML Streaming 0.13.0, WebDataset 1.0.2")
	return rows, note, end.all, nil
}

// startTrainer packs the images and serves them.
func startTrainer(ctx context.Context, lab *Lab, name string) (t trainer, server *servers.Quick, end stops, err error) {
	python, err := streamingPython(ctx, lab)
	if err != nil {
		return trainer{}, nil, nil, err
	}
	t = trainer{lab: lab, python: python, scripts: beside("testdata"), images: filepath.Join(lab.Dir, "images"), dir: filepath.Join(lab.To, name)}
	if err := t.pack(); err != nil {
		return trainer{}, nil, nil, err
	}
	if server, err = servers.StartQuick(t.images, "bench"); err != nil {
		return trainer{}, nil, nil, errors.Join(err, os.RemoveAll(t.images))
	}
	return t, server, stops{func() error { return os.RemoveAll(t.images) }, server.Close}, nil
}

// streamingPython is a Python with WebDataset and MosaicML Streaming: the first of
// frameworksVariable, or Debian's.
func streamingPython(ctx context.Context, lab *Lab) (servers.Trainer, error) {
	if first, _, _ := strings.Cut(os.Getenv(frameworksVariable), string(filepath.ListSeparator)); first != "" {
		return servers.Trainer{Python: first}, nil
	}
	if err := servers.Install(ctx, "streaming", lab.Log); err != nil {
		return servers.Trainer{}, err
	}
	return servers.Streaming()
}

// frameworksVariable lists interpreters that import current frameworks.
const frameworksVariable = "STAGER_FRAMEWORKS_PYTHON"

// trainer is a loop over images, which can be fed in several ways.
type trainer struct {
	lab     *Lab
	python  servers.Trainer
	scripts string // the directory of the programs
	images  string // where the store keeps them
	dir     string // that is filled
	env     []string
	sum     string        // of all images
	urls    string        // a file that lists the tar shards' URLs
	paths   string        // and one, where they are
	shard   int64         // the bytes of one
	work    time.Duration // on an image
	workers int           // of the loader; 0 for four
	apart   bool          // the loop has the first core alone, and stager the second
}

// pack makes the images, as shards of every kind.
func (t *trainer) pack() error {
	cmd := t.script("images.py", t.images, strconv.Itoa(trainShards), strconv.Itoa(shardImages), strconv.Itoa(imageSize))
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, said.Bytes())
	}
	t.sum = strings.TrimSpace(string(out))
	return nil
}

// serve tells where the images are, and how fast the trainer is.
func (t *trainer) serve(env []string, address string) error {
	shards, err := filepath.Glob(filepath.Join(t.images, "tar", "*.tar"))
	if err != nil || len(shards) != trainShards {
		return fmt.Errorf("%s holds %d shards, want %d: %w", t.images, len(shards), trainShards, err)
	}
	info, err := os.Stat(shards[0])
	if err != nil {
		return err
	}
	t.shard = info.Size()
	t.work = time.Duration(float64(t.shard) / shardImages / narrow * 1.2 * float64(time.Second))
	t.env = append(env, "AWS_ENDPOINT_URL=http://"+address, "S3_ENDPOINT_URL=http://"+address)
	t.urls, t.paths = filepath.Join(t.images, "urls"), filepath.Join(t.images, "paths")
	var urls, paths strings.Builder
	for _, shard := range shards {
		fmt.Fprintf(&urls, "http://%s/bench/tar/%s\n", address, filepath.Base(shard))
		fmt.Fprintln(&paths, shard)
	}
	return firstOf(os.WriteFile(t.urls, []byte(urls.String()), 0o644), os.WriteFile(t.paths, []byte(paths.String()), 0o644))
}

// script is a program in Python.
func (t *trainer) script(args ...string) *exec.Cmd {
	cmd := exec.Command(t.python.Python, append([]string{"-B", filepath.Join(t.scripts, args[0])}, args[1:]...)...) //nolint:noctx // measure runs it
	client := beside("../../python")
	cmd.Env = append(append(os.Environ(), t.env...), "PYTHONPATH="+t.python.Path+string(os.PathListSeparator)+client)
	return cmd
}

func (t *trainer) result() string { return filepath.Join(t.lab.Dir, "reading.json") }

// train is the loop; size is for the others' caches.
func (t *trainer) train(kind, source, directory string, size int64) *exec.Cmd {
	cmd := t.script("train.py", kind, source, filepath.Join(t.dir, directory), "--images", strconv.Itoa(trainImages), "--sum", t.sum, "--result", t.result(),
		"--work", fmt.Sprint(t.work.Seconds()), "--size", strconv.FormatInt(size, 10), "--workers", strconv.Itoa(cmp.Or(t.workers, 4)))
	if t.apart {
		on := exec.Command("taskset", append([]string{"-c", "0"}, cmd.Args...)...) //nolint:noctx // measure runs it
		on.Env, cmd = cmd.Env, on
	}
	return cmd
}

func (t *trainer) webdataset() *exec.Cmd {
	return t.train("webdataset", t.urls, "cache", windowful*t.shard)
}

func (t *trainer) mosaic() *exec.Cmd {
	return t.train("mosaic", "s3://bench/mds", "cache", windowful*t.shard)
}

// local is what the loop and its loader cost by themselves.
func (t *trainer) local() *exec.Cmd { return t.train("webdataset", t.paths, "cache", 0) }

// fed is a command with a window beside it, in a directory that is named like it.
func (t *trainer) fed(command *exec.Cmd) *exec.Cmd {
	daemon, socket, err := t.daemon()
	if err != nil {
		return &exec.Cmd{Err: err}
	}
	daemon = append(append(daemon, "--", command.Path), command.Args[1:]...)
	cmd := exec.Command(daemon[0], daemon[1:]...) //nolint:noctx // measure runs it
	cmd.Env = append(command.Env, "STAGER_SOCKET="+socket)
	return cmd
}

// daemon is the command of a window, and its socket.
func (t *trainer) daemon() (command []string, socket string, err error) {
	plan := fmt.Sprintf(`apiVersion: stager.dev/v1alpha1
kind: StagePlan
metadata: {name: bench}
spec:
  inputs:
  - {name: train, source: "s3://bench/tar/", path: %s/data, mode: window, window: {size: %d}, order: {by: name, epochs: 1}}
`, t.dir, windowful*t.shard)
	path, socket := filepath.Join(t.dir, "plan.yaml"), filepath.Join(t.dir, "s.sock")
	if err := os.WriteFile(path, []byte(plan), 0o644); err != nil {
		return nil, "", err
	}
	command = []string{t.lab.Stager, "run", "--log-level", "warn", "-f", path, "--socket", socket}
	if t.apart {
		command = append([]string{"taskset", "-c", "1"}, command...)
	}
	return command, socket, nil
}

// reset leaves an empty directory.
func (t *trainer) reset(context.Context) error {
	return firstOf(os.RemoveAll(t.dir), os.MkdirAll(t.dir, 0o755), os.RemoveAll(t.result()))
}

// row is the trainer with stager's window, and with another.
func (t *trainer) row(store, peer string, theirs Command) Row {
	return Row{
		Store: store, Work: fmt.Sprintf("%d images", trainImages), Peer: peer, Bytes: trainShards * t.shard,
		Reset: t.reset, Theirs: theirs, Reading: t.result(),
		Ours:  func() *exec.Cmd { return t.fed(t.train("window", "train", "data", 0)) },
		Check: func(context.Context) error { return nil }, // the trainer has
	}
}

// overhead is the window with a reader that wants nothing but the next shard, beside
// prefetch.
func (t trainer) overhead(store string) Row {
	directory := filepath.Join(t.dir, "data")
	return Row{
		Store: store, Work: fmt.Sprintf("%d shards", trainShards), Peer: "stager prefetch", Bytes: trainShards * t.shard,
		Reset: t.reset,
		Ours: func() *exec.Cmd {
			reader := taker(trainShards)
			reader.Env = append(os.Environ(), t.env...)
			return t.fed(reader)
		},
		Theirs: func() *exec.Cmd {
			cmd := exec.Command(t.lab.Stager, "prefetch", "--quiet", "s3://bench/tar/", directory) //nolint:noctx // measure runs it
			cmd.Env = append(os.Environ(), t.env...)
			return cmd
		},
		Check: func(context.Context) error { return nil }, // the reader counts
	}
}

// beside is a directory, from that of this file.
func beside(directory string) string {
	_, here, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(here), directory)
}
