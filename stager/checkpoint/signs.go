package checkpoint

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stager-dev/stager/window/disk"
)

// The frameworks below say in ways of their own that a checkpoint is whole: by a
// file that they write last, or by one beside the checkpoint that names it. What one
// of them has begun is no checkpoint without its sign, however long it lies there:
// its writer may have died. What none of them wrote has only time to speak for it.
//
// Each sign was seen in what the library does, call by call; the tests replay it.

// candidate is what may be a checkpoint.
type candidate struct {
	output *os.Root // the folder in which it lies
	name   string   // there
	step   int64
	tree   tree
	files  []local // ascending by path
}

// lack is what a checkpoint misses.
type lack struct {
	reason string
	unsure bool // it may be whole, written by something else than is thought
}

// lacks tells what the checkpoint misses by the signs of the frameworks that had a
// part in it; the zero lack is nothing.
func (c candidate) lacks() lack {
	for _, look := range []func(candidate) lack{
		candidate.unrenamed, candidate.torchDistributed, candidate.orbax, candidate.deepSpeed,
		candidate.megatron, candidate.huggingFace, candidate.tensorFlow,
	} {
		if l := look(c); l.reason != "" {
			return l
		}
	}
	return lack{}
}

// find is the file at p.
func (c candidate) find(p string) (local, bool) {
	i, ok := slices.BinarySearchFunc(c.files, p, func(f local, p string) int { return strings.Compare(f.Path, p) })
	if !ok {
		return local{}, false
	}
	return c.files[i], true
}

// any tells whether a file's name matches.
func (c candidate) any(name *regexp.Regexp) bool {
	return slices.ContainsFunc(c.files, func(f local) bool { return name.MatchString(path.Base(f.Path)) })
}

// sign is a file of the checkpoint that is written after all that data matches.
func (c candidate) sign(p, whose string, data func(p string) bool) lack {
	f, ok := c.find(p)
	if !ok {
		return lack{reason: fmt.Sprintf("it has no %s yet, which %s writes last", p, whose)}
	}
	return c.after(p, f.MTime, data)
}

// after refuses a sign that is older than what it speaks for.
func (c candidate) after(sign string, at int64, data func(p string) bool) lack {
	for _, f := range c.files {
		if f.Path != sign && data(f.Path) && f.MTime > at {
			return lack{reason: fmt.Sprintf("its %s is older than %s, so it speaks of something else", sign, f.Path)}
		}
	}
	return lack{}
}

// beside is a file beside the checkpoint, or beside a folder of it, that names the
// newest whole one.
func (c candidate) beside(dir, name, whose string) lack {
	hint, data := c.name, func(string) bool { return true }
	text, at, err := []byte(nil), time.Time{}, error(nil)
	if dir == "." {
		text, at, err = readSmall(c.output, path.Join(path.Dir(c.name), name))
	} else {
		hint = path.Base(dir)
		text, at, err = readSmall(c.tree.root, path.Join(path.Dir(dir), name))
		data = func(p string) bool { return strings.HasPrefix(p, dir+"/") }
	}
	if err != nil {
		return lack{reason: fmt.Sprintf("there is no file %s that names it, which %s writes last", name, whose)}
	}
	told := strings.TrimSpace(string(text))
	number, _ := strconv.ParseInt(lastNumber.FindString(told), 10, 64)
	step, _ := strconv.ParseInt(lastNumber.FindString(hint), 10, 64)
	if told != path.Base(hint) && number < step {
		return lack{reason: fmt.Sprintf("%s names %.40q and not this one yet", name, told)}
	}
	return c.after(name, at.UnixNano(), data)
}

// readSmall reads a hint of a few bytes.
func readSmall(root *os.Root, p string) ([]byte, time.Time, error) {
	info, err := root.Stat(p)
	if err != nil {
		return nil, time.Time{}, err
	}
	if info.Size() > 1<<20 {
		return nil, time.Time{}, fmt.Errorf("%s has %d bytes", p, info.Size())
	}
	text, err := readPlain(root, p, 1<<20)
	return text, info.ModTime(), err
}

// readPlain reads a file of the trainer's, with so many bytes at most. It follows links
// within root, as trainers make them, and never waits for what is no file.
func readPlain(root *os.Root, p string, limit int64) ([]byte, error) {
	file, err := root.OpenFile(p, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer file.Close() // opened for reading
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = &disk.NotRegularError{Path: p, Mode: info.Mode()}
	}
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(file, limit+1))
	if err == nil && int64(len(text)) > limit {
		err = &disk.TooLargeError{Path: p, Limit: limit}
	}
	return text, err
}

var underWay = regexp.MustCompile(`^\.tmp[A-Za-z0-9]{6}$|^\.metadata\.tmp$|\.tempstate[0-9]+$`)

// unrenamed: a file that safetensors, torch or TensorFlow would have renamed. One
// that a crash left speaks of a checkpoint that never became whole.
func (c candidate) unrenamed() lack {
	for _, f := range c.files {
		if strings.Contains(f.Path, orbaxTemporary) || underWay.MatchString(path.Base(f.Path)) {
			return lack{reason: f.Path + " is still under its temporary name"}
		}
	}
	return lack{}
}

// torchDistributed: torch.distributed.checkpoint writes .metadata when all ranks
// have written their *.distcp.
func (c candidate) torchDistributed() lack {
	for _, f := range c.files {
		if path.Ext(f.Path) != ".distcp" {
			continue
		}
		dir := path.Dir(f.Path)
		if l := c.sign(path.Join(dir, ".metadata"), "torch.distributed.checkpoint", func(p string) bool {
			return path.Dir(p) == dir && path.Ext(p) == ".distcp"
		}); l.reason != "" {
			return l
		}
	}
	return lack{}
}

var ofOCDBT = regexp.MustCompile(`/d/[0-9a-f]{32}$`)

// orbax: it renames the folder, which by then has _CHECKPOINT_METADATA and, since its
// later releases, commit_success.txt.
func (c candidate) orbax() lack {
	if !slices.ContainsFunc(c.files, func(f local) bool {
		base := path.Base(f.Path)
		return base == "_METADATA" || base == "manifest.ocdbt" || strings.Contains(f.Path, "ocdbt.process_") || ofOCDBT.MatchString(f.Path)
	}) {
		return lack{}
	}
	const success, metadata = "commit_success.txt", "_CHECKPOINT_METADATA"
	if _, ok := c.find(metadata); !ok {
		return lack{reason: "it has no " + metadata + ", which Orbax writes before it renames the folder, and removes first"}
	}
	if f, ok := c.find(success); ok {
		return c.after(success, f.MTime, func(string) bool { return true })
	}
	return lack{}
}

var deepSpeedFile = regexp.MustCompile(`_(model|optim)_states\.pt$`)

// deepSpeed: the file latest, beside the folder of a step, names it when all ranks
// are done.
func (c candidate) deepSpeed() lack {
	for _, f := range c.files {
		if !deepSpeedFile.MatchString(path.Base(f.Path)) {
			continue
		}
		if l := c.beside(path.Dir(f.Path), "latest", "DeepSpeed"); l.reason != "" {
			return l
		}
	}
	return lack{}
}

var megatronFolder = regexp.MustCompile(`^iter_[0-9]{7}$`)

// megatron: latest_checkpointed_iteration.txt, beside the folder of an iteration,
// tells its number when all ranks are done.
func (c candidate) megatron() lack {
	if !megatronFolder.MatchString(path.Base(c.name)) || !slices.ContainsFunc(c.files, func(f local) bool {
		return strings.HasPrefix(f.Path, "mp_rank_") || f.Path == "common.pt" || f.Path == "metadata.json" || path.Ext(f.Path) == ".distcp"
	}) {
		return lack{}
	}
	return c.beside(".", "latest_checkpointed_iteration.txt", "Megatron-LM")
}

var (
	checkpointFolder = regexp.MustCompile(`^checkpoint[-_][0-9]+$`)
	ofTrainer        = regexp.MustCompile(`^(training_args\.bin|optimizer\.pt|scheduler\.pt|rng_state.*\.pth|trainer_state\.json)$`)
	ofAccelerate     = regexp.MustCompile(`^(optimizer.*\.bin|scheduler.*\.bin|random_states_[0-9]+\.pkl)$`)
	ofModel          = regexp.MustCompile(`^(config\.json|(model|adapter_model|diffusion_pytorch_model).*\.safetensors|(pytorch_model|adapter_model).*\.bin)$`)
	afterTheSign     = regexp.MustCompile(`^(rng_state.*\.pth|random_states_[0-9]+\.pkl|custom_checkpoint_[0-9]+\.pkl)$`)
)

// huggingFace: the Trainer ends with trainer_state.json, Accelerate with the states
// of the random generators. Other ranks may be a little later with theirs.
func (c candidate) huggingFace() lack {
	if !checkpointFolder.MatchString(path.Base(c.name)) {
		return lack{}
	}
	data := func(p string) bool { return !afterTheSign.MatchString(path.Base(p)) }
	const state, random = "trainer_state.json", "random_states_0.pkl"
	switch {
	case c.any(ofTrainer):
		if l := c.sign(state, "the Trainer of Hugging Face", data); l.reason != "" {
			return l
		}
		if text, err := readPlain(c.tree.root, state, 256<<20); err != nil || !json.Valid(text) {
			return lack{reason: "its " + state + " is not whole"}
		}
	case c.any(ofAccelerate):
		return c.sign(random, "Accelerate", data)
	case c.any(ofModel):
		return lack{unsure: true, reason: fmt.Sprintf("it has neither %s nor %s, which the Trainer and Accelerate of Hugging Face write last: "+
			"if something else writes it, say that it is whole by a file %s in it, or by stager commit", state, random, markerName)}
	}
	return lack{}
}

// tensorFlowFile is one file of a checkpoint of TensorFlow, of which those with the
// same beginning are one.
var tensorFlowFile = regexp.MustCompile(`^(.+)\.(?:index|meta|data-([0-9]{5})-of-([0-9]{5}))$`)

// groupOf is the name of the checkpoint that a file is a part of by its own name.
func groupOf(p string) (name string, ok bool) {
	m := tensorFlowFile.FindStringSubmatch(path.Base(p))
	if m == nil {
		return "", false
	}
	return path.Join(path.Dir(p), m[1]), true
}

// tensorFlow: the index is there with all its shards, and the file checkpoint names
// it, or one that came later.
func (c candidate) tensorFlow() lack {
	if !c.tree.grouped {
		return lack{}
	}
	base := path.Base(c.name)
	if _, ok := c.find(base + ".index"); !ok {
		return lack{reason: "it has no " + base + ".index yet"}
	}
	shards, of := 0, -1
	for _, f := range c.files {
		if m := tensorFlowFile.FindStringSubmatch(f.Path); m[3] != "" {
			of, _ = strconv.Atoi(m[3])
			shards++
		}
	}
	if shards != of {
		return lack{reason: fmt.Sprintf("%d of its %d shards are there", shards, max(of, 1))}
	}
	const hint = "checkpoint"
	text, at, err := readSmall(c.output, path.Join(path.Dir(c.name), hint))
	if err != nil {
		return lack{reason: "there is no file " + hint + " that names it, which TensorFlow writes last"}
	}
	named := false
	for _, m := range regexp.MustCompile(`model_checkpoint_paths?: *"([^"]*)"`).FindAllStringSubmatch(string(text), -1) {
		step, ok := stepOf(m[1], true)
		named = named || path.Base(m[1]) == base || ok && step > c.step
	}
	if !named {
		return lack{reason: "the file " + hint + " does not name it yet"}
	}
	return c.after(hint, at.UnixNano(), func(p string) bool { return !strings.HasSuffix(p, ".meta") })
}

// forAllRanks reports whether files of the checkpoint are of a framework that writes its
// sign after the ranks of all nodes are done.
func (c candidate) forAllRanks() bool {
	return megatronFolder.MatchString(path.Base(c.name)) || slices.ContainsFunc(c.files, func(f local) bool {
		return path.Ext(f.Path) == ".distcp" || deepSpeedFile.MatchString(path.Base(f.Path))
	})
}

// hasFramework reports whether files of the checkpoint are of a framework that writes a
// sign for its own files.
func (c candidate) hasFramework() bool {
	if checkpointFolder.MatchString(path.Base(c.name)) && (c.any(ofTrainer) || c.any(ofAccelerate)) {
		return true
	}
	_, orbax := c.find("_CHECKPOINT_METADATA")
	return orbax || c.tree.grouped
}
