package detect

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/stager-dev/stager/stager/checkpoint/format"
)

// signs returns the sign of a framework that completes the checkpoint. It returns a denial when a
// framework wrote to the checkpoint and its sign is missing or old. A sign of a directory below
// the checkpoint can deny, but completes nothing, because other directories may follow.
func (v View) signs() (sign string, j Judgement) {
	for _, look := range []func(View) (string, Judgement){
		View.torchDistributed, View.orbax, View.deepSpeed, View.megatron, View.huggingFace, View.tensorFlow, View.keras, View.rayTrain,
	} {
		found, j := look(v)
		if j.Kind != "" {
			return "", j
		}
		if sign == "" {
			sign = found
		}
	}
	return sign, Judgement{}
}

// SignedForAll reports whether the checkpoint has a sign that a framework writes after the ranks
// of all nodes have written their files.
func (v View) SignedForAll() bool {
	signed := false
	for _, look := range []func(View) (string, Judgement){View.torchDistributed, View.deepSpeed, View.megatron} {
		sign, j := look(v)
		if j.Kind != "" {
			return false
		}
		signed = signed || sign != ""
	}
	return signed
}

// sign checks the file that a framework writes after all files that match data.
func (v View) sign(p, whose string, data func(p string) bool) Judgement {
	f, ok := v.find(p)
	if !ok {
		return denied("no sign", "it has no %s yet, which %s writes last", p, whose)
	}
	return v.after(p, f.Modified, data)
}

// after denies a checkpoint whose sign is older than its data.
func (v View) after(sign string, at int64, data func(p string) bool) Judgement {
	for _, f := range v.Files {
		if f.Path != sign && data(f.Path) && f.Modified > at {
			return old(sign, f.Path)
		}
	}
	return Judgement{}
}

func old(sign, data string) Judgement {
	return denied("old sign", "its %s is older than %s, so it belongs to an earlier save", sign, data)
}

var (
	distcp       = regexp.MustCompile(`^__([0-9]{1,7})_[0-9]+\.distcp$`)
	rankMetadata = regexp.MustCompile(`^__([0-9]{1,7})\.metadata$`)
)

// dcp holds the files of torch.distributed.checkpoint in one directory.
type dcp struct {
	newest   map[int]File // newest data file by rank; -1: of no rank
	metadata map[int]File // metadata files of single ranks
}

func (v View) dcps() map[string]*dcp {
	dirs := make(map[string]*dcp)
	for _, f := range v.Files {
		dir, base := path.Dir(f.Path), path.Base(f.Path)
		rank, ext := -1, path.Ext(base)
		of := distcp.FindStringSubmatch
		if ext == ".metadata" {
			of = rankMetadata.FindStringSubmatch
		} else if ext != ".distcp" {
			continue
		}
		if m := of(base); m != nil {
			rank, _ = strconv.Atoi(m[1]) // the pattern allows only digits
		}
		d := dirs[dir]
		if d == nil {
			d = &dcp{make(map[int]File), make(map[int]File)}
			dirs[dir] = d
		}
		switch before, ok := d.newest[rank]; {
		case ext == ".metadata" && rank >= 0:
			d.metadata[rank] = f
		case ext == ".distcp" && (!ok || f.Modified > before.Modified):
			d.newest[rank] = f
		}
	}
	return dirs
}

// torchDistributed checks torch.distributed.checkpoint. Rank 0 writes .metadata after all ranks
// have written their files. Without collectives, each rank writes __RANK.metadata after its
// files. Then only the shape of earlier checkpoints shows the number of ranks: a late rank has
// left no file.
func (v View) torchDistributed() (sign string, j Judgement) {
	const whose = "torch.distributed.checkpoint"
	for dir, d := range v.dcps() {
		if len(d.newest) == 0 {
			continue
		}
		p := path.Join(dir, ".metadata")
		global, ok := v.find(p)
		switch {
		case ok:
			for _, f := range d.newest {
				if f.Modified > global.Modified {
					return "", old(p, f.Path)
				}
			}
			if dir == "." {
				sign = p
			}
		case len(d.metadata) == 0:
			return "", denied("no sign", "it has no %s yet, which %s writes last", p, whose)
		default:
			if j := d.eachRank(dir, whose, v.Part); j.Kind != "" {
				return "", j
			}
		}
	}
	return sign, Judgement{}
}

// eachRank denies a checkpoint in which a rank up to the largest has no metadata. In the part of
// one node, other ranks may be missing.
func (d *dcp) eachRank(dir, whose string, part bool) Judgement {
	last := 0
	for rank := range d.metadata {
		last = max(last, rank)
	}
	for rank, f := range d.newest {
		last = max(last, rank)
		sign, ok := d.metadata[rank]
		if !ok && rank >= 0 {
			return denied("no sign", "it has no %s yet, which %s writes last", path.Join(dir, fmt.Sprintf("__%d.metadata", rank)), whose)
		} else if ok && f.Modified > sign.Modified {
			return old(sign.Path, f.Path)
		}
	}
	if len(d.metadata) <= last && !part {
		return denied("no sign", "%d of at least %d ranks have written their metadata", len(d.metadata), last+1)
	}
	return Judgement{}
}

var ofOCDBT = regexp.MustCompile(`^[0-9a-f]{32}$`)

// orbax checks Orbax. It renames the directory, which by then contains _CHECKPOINT_METADATA.
// Where the store cannot rename, it writes commit_success.txt into the directory.
func (v View) orbax() (string, Judgement) {
	if !slices.ContainsFunc(v.Files, func(f File) bool {
		base := path.Base(f.Path)
		return base == "_METADATA" || base == "manifest.ocdbt" || strings.Contains(f.Path, "ocdbt.process_") || len(base) == 32 && path.Base(path.Dir(f.Path)) == "d" && ofOCDBT.MatchString(base)
	}) {
		return "", Judgement{}
	}
	const success, metadata = "commit_success.txt", "_CHECKPOINT_METADATA"
	if _, ok := v.find(metadata); !ok {
		if slices.ContainsFunc(v.Files, func(f File) bool { return path.Base(f.Path) == "checkpoint" }) {
			return "", Judgement{} // Orbax before 2024 wrote none: only its rename proves that the checkpoint is complete
		}
		return "", denied("no sign", "it has no %s, which Orbax writes before it renames the directory, and removes first", metadata)
	}
	if f, ok := v.find(success); ok {
		return success, v.after(success, f.Modified, func(string) bool { return true })
	}
	return "", Judgement{}
}

var lastNumber = regexp.MustCompile(`[0-9]+$`)

// names checks a file beside a checkpoint, or beside a directory of it, that names the newest
// complete one.
func (v View) names(note Note, ok bool, name, dir, whose string, data func(string) bool) Judgement {
	if !ok {
		return denied("no sign", "there is no file %s that names it, which %s writes last", name, whose)
	}
	text := strings.TrimSpace(note.Text)
	number, _ := strconv.ParseInt(lastNumber.FindString(text), 10, 64) // 0 if there is none
	step, _ := strconv.ParseInt(lastNumber.FindString(dir), 10, 64)    // 0 if there is none
	if text != path.Base(dir) && number < step {
		return denied("no sign", "%s names %.40q and not this one yet", name, text)
	}
	return v.after(name, note.Modified, data)
}

// below returns the view of the files in a directory of the checkpoint.
func (v View) below(dir string) View {
	order := func(f File, p string) int { return strings.Compare(f.Path, p) }
	from, _ := slices.BinarySearchFunc(v.Files, dir+"/", order)
	to, _ := slices.BinarySearchFunc(v.Files, dir+"0", order) // the byte after the slash
	v.Files = v.Files[from:to]
	return v
}

var deepSpeedFile = regexp.MustCompile(`_(model|optim)_states\.pt$`)

// deepSpeed checks DeepSpeed. The file latest, beside the directory of a step, names the step
// after all ranks have written their files.
func (v View) deepSpeed() (string, Judgement) {
	sign := ""
	done := make(map[string]bool)
	for _, f := range v.Files {
		dir := path.Dir(f.Path)
		if done[dir] || !deepSpeedFile.MatchString(path.Base(f.Path)) {
			continue
		}
		done[dir] = true
		var j Judgement
		if dir == "." {
			note, ok := v.Beside["latest"]
			j = v.names(note, ok, "latest", v.Name, "DeepSpeed", func(string) bool { return true })
			sign = "latest"
		} else {
			p := path.Join(path.Dir(dir), "latest")
			note, ok := v.Notes[p]
			j = v.below(dir).names(note, ok, p, dir, "DeepSpeed", func(string) bool { return true })
		}
		if j.Kind != "" {
			return "", j
		}
	}
	return sign, Judgement{}
}

var megatronDirectory = regexp.MustCompile(`^iter_[0-9]{7}$`)

// megatron checks Megatron. latest_checkpointed_iteration.txt, beside the directory of an
// iteration, contains its number after all ranks have written their files.
func (v View) megatron() (string, Judgement) {
	if !megatronDirectory.MatchString(path.Base(v.Name)) || !slices.ContainsFunc(v.Files, func(f File) bool {
		return strings.HasPrefix(f.Path, "mp_rank_") || f.Path == "common.pt" || f.Path == "metadata.json" || path.Ext(f.Path) == ".distcp"
	}) {
		return "", Judgement{}
	}
	const name = "latest_checkpointed_iteration.txt"
	note, ok := v.Beside[name]
	return name, v.names(note, ok, name, v.Name, "Megatron-LM", func(string) bool { return true })
}

var (
	checkpointDirectory = regexp.MustCompile(`^checkpoint[-_][0-9]+$`)
	ofTrainer           = regexp.MustCompile(`^(training_args\.bin|optimizer\.pt|scheduler\.pt|rng_state.*\.pth|trainer_state\.json)$`)
	ofAccelerate        = regexp.MustCompile(`^(optimizer.*\.bin|scheduler.*\.bin|random_states_[0-9]+\.pkl)$`)
	ofModel             = regexp.MustCompile(`^(config\.json|(model|adapter_model|diffusion_pytorch_model).*\.safetensors|(pytorch_model|adapter_model).*\.bin)$`)
	ofRanks             = regexp.MustCompile(`^(rng_state_[0-9]+\.pth|random_states_[0-9]+\.pkl|custom_checkpoint_[0-9]+\.pkl)$`)
	afterTheSign        = regexp.MustCompile(`^(rng_state.*\.pth|random_states_[0-9]+\.pkl|custom_checkpoint_[0-9]+\.pkl)$`)
	ofOptimizer         = regexp.MustCompile(`^(optimizer|scheduler|global_step[0-9])`) // and of DeepSpeed
	ofTrainerRandom     = regexp.MustCompile(`^rng_state.*\.pth$`)
)

// huggingFace checks Hugging Face. The Trainer writes trainer_state.json last, and Accelerate the
// states of the random generators. Ranks write these without waiting for one another. The sign of
// rank 0 therefore completes only a checkpoint without files of other ranks. Until version 4.35 the
// Trainer writes rng_state.pth after trainer_state.json. It writes none if it saves only the model.
func (v View) huggingFace() (string, Judgement) {
	if !checkpointDirectory.MatchString(path.Base(v.Name)) {
		return "", Judgement{}
	}
	anyOf := func(name *regexp.Regexp) bool {
		return slices.ContainsFunc(v.Files, func(f File) bool { return name.MatchString(path.Base(f.Path)) })
	}
	anyPath := func(name *regexp.Regexp) bool {
		return slices.ContainsFunc(v.Files, func(f File) bool { return name.MatchString(f.Path) })
	}
	data := func(p string) bool { return !afterTheSign.MatchString(path.Base(p)) }
	const state, random = "trainer_state.json", "random_states_0.pkl"
	switch {
	case anyOf(ofTrainer):
		j := v.sign(state, "the Trainer of Hugging Face", data)
		f, _ := v.find(state)
		switch {
		case j.Kind != "":
			return "", j
		case f.Format.Verdict != format.Whole:
			return "", denied("torn", "its %s is not whole", state)
		case anyOf(ofRanks), anyPath(ofOptimizer) && !anyPath(ofTrainerRandom):
			return "", Judgement{}
		}
		return state, Judgement{}
	case anyOf(ofAccelerate):
		return "", v.sign(random, "Accelerate", data)
	case anyOf(ofModel):
		j := denied("no sign", "it has neither %s nor %s, which the Trainer and Accelerate of Hugging Face write last", state, random)
		j.Unsure = true
		return "", j
	}
	return "", Judgement{}
}

var named = regexp.MustCompile(`model_checkpoint_paths?: *"([^"]*)"`)

// tensorFlow checks TensorFlow. It writes the index after all shards, and then the file
// checkpoint that names it.
func (v View) tensorFlow() (string, Judgement) {
	if _, ok := v.find(kerasWeights); !v.Group || ok {
		return "", Judgement{}
	}
	base := path.Base(v.Name)
	index := base + ".index"
	f, ok := v.find(index)
	if !ok {
		return "", denied("no sign", "it has no %s yet, which TensorFlow writes last", index)
	}
	shards := slices.ContainsFunc(v.Files, func(f File) bool { return strings.HasPrefix(f.Path, base+".data-") })
	if !shards {
		return "", denied("parts", "it has no shard yet")
	}
	if j := v.after(index, f.Modified, func(p string) bool { return !strings.HasSuffix(p, ".meta") }); j.Kind != "" {
		return "", j
	}
	if note, ok := v.Beside["checkpoint"]; ok {
		for _, m := range named.FindAllStringSubmatch(note.Text, -1) {
			if path.Base(m[1]) == base {
				return "checkpoint", v.after("checkpoint", note.Modified, func(p string) bool { return !strings.HasSuffix(p, ".meta") })
			}
		}
	}
	if f.Format.Verdict != format.Whole {
		return "", denied("torn", "its %s is not whole", index)
	}
	return index, Judgement{}
}

const (
	kerasWeights  = "latest.weights.h5"
	kerasMetadata = "training_metadata.json"
)

// keras checks Keras. BackupAndRestore overwrites the weights, and then training_metadata.json.
// Keras 3.0 writes only the weights: see kerasBackupAlone.
func (v View) keras() (string, Judgement) {
	weights, ok := v.find(kerasWeights)
	f, signed := v.find(kerasMetadata)
	switch {
	case !signed:
		return "", Judgement{}
	case !ok:
		return "", denied("parts", "it has %s without %s", kerasMetadata, kerasWeights)
	case weights.Modified > f.Modified:
		return "", old(kerasMetadata, kerasWeights)
	case f.Format.Verdict != format.Whole:
		return "", denied("torn", "its %s is not whole", kerasMetadata)
	}
	return kerasMetadata, Judgement{}
}

// kerasBackupAlone reports whether the checkpoint is a backup of Keras of which only the weights
// exist. That is all that Keras 3.0 writes. A later version may have been stopped before it wrote
// the metadata of its first backup. The weights do not record which version wrote them, and a
// trainer that is restarted may be stopped there again, so repetition proves nothing.
func (v View) kerasBackupAlone() bool {
	_, weights := v.find(kerasWeights)
	_, signed := v.find(kerasMetadata)
	return weights && !signed && (v.Group || path.Base(v.Name) == "backup")
}

var ofRayTrain = regexp.MustCompile(`^checkpoint_[0-9]{4}-[0-9]{2}-[0-9]{2}_[0-9]{2}-[0-9]{2}-[0-9]{2}\.[0-9]{1,9}$`)

// raySnapshot is the file beside the checkpoints of Ray Train that names the complete ones.
const raySnapshot = "checkpoint_manager_snapshot.json"

// rayTrain checks Ray Train. It copies what a worker reported into a directory named after the
// time. Then it names the directory in checkpoint_manager_snapshot.json beside it.
func (v View) rayTrain() (string, Judgement) {
	name := path.Base(v.Name)
	note, ok := v.Beside[raySnapshot]
	if !ok || !ofRayTrain.MatchString(name) || !strings.Contains(note.Text, `"checkpoint_dir_name":"`+name+`"`) {
		return "", Judgement{}
	}
	return raySnapshot, v.after(raySnapshot, note.Modified, func(string) bool { return true })
}
