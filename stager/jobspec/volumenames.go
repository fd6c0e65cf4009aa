package jobspec

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"

	"github.com/stager-dev/stager/stager/jobspec/yamledit"
)

// Kinds of things that have a volume of their own.
const (
	ofVolume = "volume" // of the plan
	ofInput  = "input"
	ofOutput = "output"
	ofSecret = "secret"
)

// longestLabel is the maximum length of a volume name, which is a DNS label.
const longestLabel = 63

// volumeNames are the names of the volumes that are added to one pod, by content. They are unique.
type volumeNames struct {
	byThing map[string]string // kind/name
	taken   map[string]bool
}

// secretPrefix is the prefix of the volumes of Secrets.
const secretPrefix = "secret-"

// reserved are names whose volumes would collide with those of stager itself.
var reserved = []string{
	strings.TrimPrefix(runVolume, volumePrefix), strings.TrimPrefix(tmpVolume, volumePrefix), strings.TrimPrefix(binVolume, volumePrefix),
}

// volumeName returns the volume name of an input, an output, a volume of the plan or a Secret:
// stager-NAME, or stager-secret-NAME. A hash is appended if that is not a DNS label of at most 63
// characters, or is already in use.
func (p *pod) volumeName(kind, name string) string {
	if p.volumes.byThing == nil {
		p.volumes = volumeNames{make(map[string]string), make(map[string]bool)}
	}
	thing := kind + "/" + name
	if known, ok := p.volumes.byThing[thing]; ok {
		return known
	}
	stem := volumePrefix + name
	switch {
	case kind == ofSecret:
		stem = volumePrefix + secretPrefix + name
	case slices.Contains(reserved, name), strings.HasPrefix(name, secretPrefix):
		refuse(nil, "%s %s: its volume would be %s, and such names are reserved for stager (%s%s… and %s%s): rename the %s%s",
			kind, name, stem, volumePrefix, secretPrefix, volumePrefix, strings.Join(reserved, ", "+volumePrefix), kind, orVolume(kind))
	}
	label := strings.ReplaceAll(stem, ".", "-")
	if label != stem || len(label) > longestLabel {
		label = hashed(label, thing)
	}
	for salt := thing; p.volumes.taken[label]; {
		salt += "/"
		label = hashed(label, salt)
	}
	p.volumes.byThing[thing], p.volumes.taken[label] = label, true
	return label
}

// orVolume returns a further remedy for messages about things other than volumes.
func orVolume(kind string) string {
	if kind == ofVolume {
		return ""
	}
	return ", or give it a volume of the plan"
}

// hashed returns a DNS label: the stem, cut if necessary, and a hash of the given content.
func hashed(stem, of string) string {
	sum := sha256.Sum256([]byte(of))
	tail := "-" + hex.EncodeToString(sum[:4])
	return strings.TrimRight(stem[:min(len(stem), longestLabel-len(tail))], "-") + tail
}

// checkPath refuses a directory that overlaps with stager's own mounts.
func checkPath(f dir) {
	for _, own := range []string{runDir, binDir} {
		if within(f.path, own) || within(own, f.path) {
			refuse(nil, "%s %s: its path %s overlaps with %s, which is reserved for stager; choose another path", f.kind, f.name, f.path, own)
		}
	}
	if within(tmpDir, f.path) {
		refuse(nil, "%s %s: stager has a volume of its own at %s; choose a directory in it, or another path", f.kind, f.name, tmpDir)
	}
}

// onePerPath returns the mounts of a stager container and refuses two mounts at one path.
func onePerPath(mounts []any) []any {
	at := make(map[any]any)
	for _, m := range mounts {
		m := m.(yamledit.Map)
		volume, where := m[0].Value, m[1].Value
		if other, ok := at[where]; ok {
			refuse(nil, "two volumes, %s and %s, belong at %s in stager's container; mount the data elsewhere", other, volume, where)
		}
		at[where] = volume
	}
	return mounts
}
