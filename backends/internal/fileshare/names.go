package fileshare

import (
	"crypto/rand"
	"fmt"
	"io/fs"
	"path"
	"strings"

	"github.com/stager-dev/stager/backends"
)

// Temporary is the prefix of the names of incomplete files and of claims. Listings omit them.
const Temporary = ".stager-tmp-"

// private is the directory of stager's own data, which holds no objects.
const private = ".stager"

// NewTemporary returns an unused temporary name in the directory dir.
func NewTemporary(dir string) string { return path.Join(dir, Temporary+rand.Text()[:16]) }

// Reserved reports whether a name is one of stager's own. It serves as Tree.Reserved.
func Reserved(name string) bool { return name == private || strings.HasPrefix(name, Temporary) }

// CheckKey returns an error of kind Invalid if key cannot be the path of an object. It serves as
// Tree.CheckKey for servers that accept any name.
func CheckKey(op, key string) error {
	why := ""
	switch {
	case !fs.ValidPath(key) || key == ".":
		why = `it must be a path without empty, "." and ".." parts, in UTF-8`
	case strings.ContainsRune(key, 0):
		why = "it contains a zero byte"
	case strings.HasPrefix(path.Base(key), Temporary), strings.Contains("/"+key+"/", "/"+private+"/"):
		why = fmt.Sprintf("the names %s and %s… are reserved for stager", private, Temporary)
	default:
		return nil
	}
	return backends.Errorf(backends.Invalid, op, key, "invalid file name: %s", why)
}

// Unreachable returns why no path can contain a name that the server lists, or "". It serves as
// Tree.Unreachable.
func Unreachable(name string) string {
	if name == "" || name == "." || name == ".." || strings.ContainsAny(name, "/\x00") {
		return `it is empty, ".", ".." or contains "/" or a zero byte`
	}
	return ""
}

// directoryOf returns the directory that holds all keys with the prefix: the prefix up to its last
// slash. ok is false if no key has the prefix.
func directoryOf(t Tree, op, prefix string) (dir string, ok bool) {
	dir = strings.TrimSuffix(prefix[:strings.LastIndexByte(prefix, '/')+1], "/")
	if strings.HasPrefix(prefix, "/") {
		return "", false
	}
	return dir, dir == "" || t.CheckKey(op, dir) == nil
}
