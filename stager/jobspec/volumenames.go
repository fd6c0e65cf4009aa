package jobspec

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"

	"github.com/stager-dev/stager/stager/jobspec/yamledit"
)

// Kinds of things that get a volume of their own.
const (
	ofVolume = "volume" // of the plan
	ofInput  = "input"
	ofOutput = "output"
	ofSecret = "secret"
)

// longestLabel is the longest name of a volume: it is a DNS label.
const longestLabel = 63

// volumeNames are the volumes that are put into one pod, by what is on them. No two
// things share a name.
type volumeNames struct {
	byThing map[string]string // kind/name
	taken   map[string]bool
}

// secretPrefix begins the names of the volumes of Secrets.
const secretPrefix = "secret-"

// reserved are the names whose volumes would be those of stager itself.
var reserved = []string{
	strings.TrimPrefix(runVolume, volumePrefix), strings.TrimPrefix(tmpVolume, volumePrefix), strings.TrimPrefix(binVolume, volumePrefix),
}

// volumeName returns the name of the volume of an input, an output, a volume of the plan
// or a Secret: stager-NAME, or stager-secret-NAME. Where that is not a DNS label of at
// most 63 characters, or belongs to another thing, a hash of the thing is added.
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
		refuse(nil, "%s %s: its volume would be %s, and stager uses such names itself (%s%s… and %s%s): rename the %s%s",
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

// orVolume is the other way out for what is not a volume itself.
func orVolume(kind string) string {
	if kind == ofVolume {
		return ""
	}
	return ", or give it a volume of the plan"
}

// hashed returns the stem with a hash of what it stands for, together a DNS label.
func hashed(stem, of string) string {
	sum := sha256.Sum256([]byte(of))
	tail := "-" + hex.EncodeToString(sum[:4])
	return strings.TrimRight(stem[:min(len(stem), longestLabel-len(tail))], "-") + tail
}

// checkPath refuses a directory that would cover, or lie in, what stager mounts itself.
func checkPath(f dir) {
	for _, own := range []string{runDir, binDir} {
		if within(f.path, own) || within(own, f.path) {
			refuse(nil, "%s %s: its path %s meets %s, which stager uses itself; choose another path", f.kind, f.name, f.path, own)
		}
	}
	if within(tmpDir, f.path) {
		refuse(nil, "%s %s: stager has a volume of its own at %s; choose a directory in it, or another path", f.kind, f.name, tmpDir)
	}
}

// onePerPath returns the mounts of a container of stager's, and refuses two at one path.
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
