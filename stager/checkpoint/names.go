package checkpoint

import (
	"fmt"
	"path"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Names in the store and in the output directory.
const (
	commitKey  = "COMMIT.json"
	dataDir    = "data"
	partsDir   = "parts"
	latestKey  = "LATEST"
	filesDir   = "files"
	markerName = ".ready"        // in a checkpoint directory: it is complete
	private    = ".stager"       // prefix of the names that stager uses itself
	restored   = "RESTORED.json" // the report of a restore
)

var (
	stepDirFormat = regexp.MustCompile(`^step-([0-9]{8,18})(?:-attempt-([1-9][0-9]{0,8}))?$`)
	lastNumber    = regexp.MustCompile(`[0-9]+$`)
	timeOfDay     = regexp.MustCompile(`[0-9]{4}-[0-9]{2}-[0-9]{2}[-_T][0-9]{2}-[0-9]{2}-[0-9]{2}(?:[._][0-9]{1,9})?$`)
	flaxFile      = regexp.MustCompile(`^checkpoint_[0-9]+$`)
	namedStep     = regexp.MustCompile(`(?:^|[^a-zA-Z])step=([0-9]+)`) // Lightning and NeMo
	uploadID      = regexp.MustCompile(`^[0-9a-f]{16}$`)
)

// stepDir returns the directory of a step in the store. Suffix 0 is the plain name.
func stepDir(step int64, suffix int) string {
	if suffix > 0 {
		return fmt.Sprintf("step-%08d-attempt-%d", step, suffix)
	}
	return fmt.Sprintf("step-%08d", step)
}

// partKey returns the key of a node's part, relative to the step's directory. Attempts use
// different keys, so they do not overwrite one another.
func partKey(attempt, node int) string {
	if attempt > 0 {
		return fmt.Sprintf("%s/attempt-%d-node-%03d.json", partsDir, attempt, node)
	}
	return fmt.Sprintf("%s/node-%03d.json", partsDir, node)
}

var partName = regexp.MustCompile(`^parts/(?:attempt-([1-9][0-9]{0,8})-)?node-([0-9]{3,6})\.json$`)

// parsePartKey is the inverse of partKey.
func parsePartKey(rest string) (attempt, node int, ok bool) {
	m := partName.FindStringSubmatch(rest)
	if m == nil {
		return 0, 0, false
	}
	attempt, _ = strconv.Atoi(m[1]) // no match: attempt 0
	node, err := strconv.Atoi(m[2])
	return attempt, node, err == nil && partKey(attempt, node) == rest
}

// recordKey returns the key, relative to a step's directory, of the record that lists what an
// upload refers to.
func recordKey(id string) string { return partsDir + "/refers-" + id + ".json" }

// uploadOf returns the id of the upload that owns a key, which is relative to a step's directory.
// It returns "" for COMMIT.json and for the parts of nodes.
func uploadOf(rest string) string {
	id, ok := strings.CutPrefix(rest, dataDir+"/")
	if ok {
		id, _, _ = strings.Cut(id, "/")
	} else if id, ok = strings.CutPrefix(rest, partsDir+"/refers-"); ok {
		id, ok = strings.CutSuffix(id, ".json")
	}
	if !ok || !uploadID.MatchString(id) {
		return ""
	}
	return id
}

// parseStepDir is the inverse of stepDir.
func parseStepDir(dir string) (step int64, suffix int, ok bool) {
	m := stepDirFormat.FindStringSubmatch(dir)
	if m == nil {
		return 0, 0, false
	}
	step, err := strconv.ParseInt(m[1], 10, 64)
	if err == nil && m[2] != "" {
		suffix, err = strconv.Atoi(m[2])
	}
	return step, suffix, err == nil && stepDir(step, suffix) == dir
}

// checkpointFiles are the extensions of files that are checkpoints by themselves.
var checkpointFiles = []string{
	".ckpt", ".pt", ".pth", ".safetensors", ".weights.h5", ".h5", ".keras", ".npz", ".msgpack", ".tar",
}

// stepOf returns the step that a name contains: the number after "step=", or else the number at
// the end of the name, before the extension. Ray Train ends its names with a time; the step is
// then that time in milliseconds since 1970.
func stepOf(name string, isDir bool) (int64, bool) {
	name = path.Base(name)
	if !isDir {
		for _, ending := range checkpointFiles {
			if stem, ok := strings.CutSuffix(name, ending); ok {
				name, isDir = stem, true
				break
			}
		}
		isDir = isDir || flaxFile.MatchString(name)
	}
	if step, ok := stepOfTime(name); ok && isDir {
		return step, true
	}
	digits := lastNumber.FindString(name)
	if m := namedStep.FindStringSubmatch(name); m != nil {
		digits = m[1]
	}
	if !isDir || digits == "" || len(strings.TrimLeft(digits, "0")) > 18 {
		return 0, false
	}
	step, err := strconv.ParseInt(digits, 10, 64)
	return step, err == nil
}

// stepOfTime returns the step of a name that ends in a time. The time zone is unknown, but it is
// the same for all names of an output.
func stepOfTime(name string) (int64, bool) {
	text := timeOfDay.FindString(name)
	if len(text) < len("2006-01-02T15-04-05") {
		return 0, false
	}
	text, fraction := text[:10]+"T"+text[11:19], text[19:]
	at, err := time.Parse("2006-01-02T15-04-05", text)
	if err != nil || at.UnixMilli() < autoFrom {
		return 0, false
	}
	milli := int64(0)
	if fraction != "" {
		milli, err = strconv.ParseInt((fraction[1:] + "00")[:3], 10, 64)
	}
	return at.UnixMilli() + milli, err == nil
}

// orbaxTemporary is part of the names that Orbax uses while it writes.
const orbaxTemporary = ".orbax-checkpoint-tmp"

// finalName reports whether name is temporary, that is, one that frameworks use while they write.
// It returns the name that the file gets afterwards.
func finalName(name string) (final string, temporary bool) {
	for _, ending := range []string{".tmp", ".partial", ".incomplete", "-unfinished", ".unfinished", "_temp"} {
		if final, ok := strings.CutSuffix(name, ending); ok {
			return final, true
		}
	}
	if final, _, ok := strings.Cut(name, orbaxTemporary); ok {
		return final, true
	}
	for _, beginning := range []string{"tmp-", "tmp_", ".tmp-", ".tmp_"} {
		if final, ok := strings.CutPrefix(name, beginning); ok {
			return final, true
		}
	}
	return name, false
}

// unfinishedName returns the base name from which NeMo makes its marker for an unfinished
// checkpoint.
func unfinishedName(name string) string {
	for _, ending := range []string{".nemo", ".ckpt", "-last"} {
		name = strings.TrimSuffix(name, ending)
	}
	return name
}
