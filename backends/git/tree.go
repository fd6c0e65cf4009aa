package git

import (
	"bytes"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/stager-dev/stager/backends"
)

// The modes of entries, without permissions.
const (
	modeType      = 0o170000
	modeDirectory = 0o040000
	modeFile      = 0o100000
	modeLink      = 0o120000
	modeSubmodule = 0o160000
)

// entry is an entry of a tree.
type entry struct {
	name string
	mode uint32 // one of the modes above
	id   string // the binary hash of a tree, blob or commit
}

// tree returns the entries of a tree.
func (o *objects) tree(id string) (entries []entry, err error) {
	obj, ok := o.by[id]
	if !ok || obj.kind != treeObject {
		return nil, corrupt("the tree %x is missing", id)
	}
	data, err := o.bytes(obj)
	if err != nil {
		return nil, err
	}
	for size := o.newHash().Size(); len(data) > 0; {
		mode, rest, found := bytes.Cut(data, []byte(" "))
		name, rest, also := bytes.Cut(rest, []byte{0})
		bits, err := strconv.ParseUint(string(mode), 8, 32)
		if !found || !also || err != nil || len(rest) < size {
			return nil, corrupt("the tree %x cannot be parsed", id)
		}
		entries = append(entries, entry{string(name), uint32(bits) & modeType, string(rest[:size])})
		data = rest[size:]
	}
	return entries, nil
}

// commitTree returns the hash of the tree of a commit, to which tags lead, and the hash of the commit.
func (o *objects) commitTree(id string) (tree, commit string, err error) {
	for range 10 {
		obj, ok := o.by[id]
		if !ok {
			return "", "", corrupt("the commit %x is missing", id)
		}
		field := map[objectKind]string{commitObject: "tree ", tagObject: "object "}[obj.kind]
		if field == "" {
			return "", "", backends.Errorf(backends.NotExist, "open", "", "%x is a %s and no commit", id, kindNames[obj.kind])
		}
		data, err := o.bytes(obj)
		if err != nil {
			return "", "", err
		}
		line, _, _ := bytes.Cut(data, []byte("\n"))
		next, ok := strings.CutPrefix(string(line), field)
		if !ok || !hashForm.MatchString(next) {
			return "", "", corrupt("the %s %x cannot be parsed", kindNames[obj.kind], id)
		}
		if obj.kind == commitObject {
			return unhex(next), id, nil
		}
		id = unhex(next)
	}
	return "", "", corrupt("a tag leads to too many others")
}

// invalid returns why a name must not become one of a file, or "", as in "is not UTF-8".
func invalid(name string) string {
	switch {
	case name == "" || name == "." || name == ".." || strings.ContainsAny(name, "/\x00"):
		return "points outside its directory"
	case strings.Contains(name, `\`):
		return `contains a "\", which separates directories on some systems`
	case isGit(name):
		return "means the directory of Git itself"
	case !utf8.ValidString(name):
		return "is not UTF-8"
	case strings.ContainsAny(name, "\r\n"):
		return "contains a line break"
	}
	return ""
}

// isGit reports whether a system may take a name for ".git": without case, with trailing dots and
// spaces, as a DOS short name, as a stream of NTFS, or with characters that HFS+ ignores.
func isGit(name string) bool {
	name = strings.Map(func(r rune) rune {
		if r >= 0x200c && r <= 0x200f || r >= 0x202a && r <= 0x202e || r >= 0x206a && r <= 0x206f || r == 0xfeff {
			return -1
		}
		return r
	}, strings.ToLower(name))
	name, _, _ = strings.Cut(name, ":")
	name = strings.TrimRight(name, ". ")
	return name == ".git" || name == "git~1"
}
