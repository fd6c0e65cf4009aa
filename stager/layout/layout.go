package layout

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/dustin/go-humanize/english"

	"github.com/stager-dev/stager/backends"
)

// Layout describes a job that several workers share.
type Layout struct {
	Kind    string            `json:"kind"`              // copy or pack
	Name    string            `json:"name"`              // distinguishes layouts at one destination: a source, a prefix
	Source  string            `json:"source"`            // name of the source, for messages
	Listing string            `json:"listing"`           // digest of all objects of the source, see [Digest]
	Objects int               `json:"objects"`           // number of objects
	Options map[string]string `json:"options,omitempty"` // other settings that affect the division of work, by name of the flag
	Workers int               `json:"workers"`
	Index   string            `json:"index,omitempty"` // SHA-256 of the index that the last worker publishes
}

// work returns a digest of everything but the number of workers.
func (l Layout) work() string {
	h := sha256.New()
	fmt.Fprintf(h, "stager layout 1\n%q %q %q %d\n", l.Kind, l.Name, l.Listing, l.Objects)
	for _, name := range slices.Sorted(maps.Keys(l.Options)) {
		if l.Options[name] != "" {
			fmt.Fprintf(h, "%q %q\n", name, l.Options[name])
		}
	}
	return hex.EncodeToString(h.Sum(nil))
}

// differs returns a sentence that names the first difference between this worker's layout and a
// recorded one, or "" if there is none. It does not compare the number of workers.
func (l Layout) differs(recorded Layout) string {
	names := maps.Clone(recorded.Options)
	if names == nil {
		names = make(map[string]string)
	}
	maps.Copy(names, l.Options)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if mine, theirs := l.Options[name], recorded.Options[name]; mine != theirs {
			return fmt.Sprintf("%s is %s here, but %s in the record", name, orNone(mine), orNone(theirs))
		}
	}
	switch {
	case l.work() == recorded.work():
		return ""
	case l.Source != recorded.Source:
		return fmt.Sprintf("the source is %s here, but %s in the record", l.Source, recorded.Source)
	case l.Objects != recorded.Objects:
		return fmt.Sprintf("the source has changed: it has %s, and had %d", english.Plural(l.Objects, "object", ""), recorded.Objects)
	case l.Objects == 1:
		return "the source has changed: its object was replaced"
	}
	return fmt.Sprintf("the source has changed: some of its %d objects were replaced", l.Objects)
}

func orNone(option string) string {
	if option == "" {
		return "not given"
	}
	return option
}

// Quote returns a list of values as the value of one option; an empty list is "".
func Quote(values []string) string {
	quoted := make([]string, len(values))
	for i, v := range values {
		quoted[i] = strconv.Quote(v)
	}
	return strings.Join(quoted, " ")
}

// Digest is a digest of the objects of a listing: their keys, sizes and versions, in order. The
// zero value is ready to use.
type Digest struct {
	hash    hash.Hash
	objects int
}

// Add adds the next object.
func (d *Digest) Add(obj backends.Object) {
	if d.hash == nil {
		d.hash = sha256.New()
	}
	d.objects++
	for _, part := range [...]string{obj.Key, strconv.FormatInt(obj.Size, 10), string(obj.Version)} {
		_, _ = io.WriteString(d.hash, strconv.Itoa(len(part))+":"+part) // a hash never fails
	}
}

// Objects returns how many objects were added.
func (d *Digest) Objects() int { return d.objects }

// String returns the digest in hexadecimal.
func (d *Digest) String() string {
	if d.hash == nil {
		return ""
	}
	return hex.EncodeToString(d.hash.Sum(nil))
}
