package conformance

import (
	"strings"
)

// levelOf returns what a listing of one level yields for keys in order.
func levelOf(keys []string, prefix string) (level []string) {
	for _, key := range keys {
		rest, ok := strings.CutPrefix(key, prefix)
		if !ok {
			continue
		}
		if name, _, below := strings.Cut(rest, "/"); below {
			key = prefix + name + "/"
		}
		if len(level) == 0 || level[len(level)-1] != key {
			level = append(level, key)
		}
	}
	return level
}

// level lists one level below prefix. An error ends the check.
func (c *check) level(prefix string) (keys []string) {
	c.Helper()
	for obj, err := range c.store.ListLevel(c.ctx, prefix) {
		switch {
		case err != nil:
			c.Fatalf("listing one level of %q: %v", prefix, err)
		case strings.HasSuffix(obj.Key, "/") && (obj.Size != 0 || obj.Version != "" || obj.Sum.Value != ""):
			c.Errorf("the directory %q is listed as an object: %+v", obj.Key, obj)
		case !strings.HasSuffix(obj.Key, "/") && obj.Version == "":
			c.Errorf("%q is listed without a version: %+v", obj.Key, obj)
		}
		keys = append(keys, obj.Key)
	}
	return keys
}
