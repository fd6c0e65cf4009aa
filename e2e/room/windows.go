package room

import (
	"cmp"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/stager-dev/stager/stager/plan"
)

// window is an input of a daemon that has a directory of limited size.
type window struct {
	dir  string // as the daemon names it, made absolute
	size int64
}

// windows returns the windows of a daemon by its arguments, environment, root and working directory;
// none if its plan cannot be read, as when it comes from standard input or is wrong.
func windows(args, env []string, root, cwd string) (all []window) {
	getenv := func(name string) string {
		for _, kv := range env {
			if value, ok := strings.CutPrefix(kv, name+"="); ok {
				return value
			}
		}
		return ""
	}
	text := []byte(cmp.Or(flagOf(args, "--plan-yaml"), getenv("STAGER_PLAN_YAML")))
	if path := cmp.Or(flagOf(args, "-f", "--file"), getenv("STAGER_PLAN")); len(text) == 0 && path != "" {
		path = root + absolute(cwd, path)
		info, err := os.Stat(path)
		if err != nil || !info.Mode().IsRegular() {
			return nil
		}
		if text, err = os.ReadFile(path); err != nil {
			return nil
		}
	}
	p, err := plan.Parse(text, func(string) error { return nil })
	if err != nil {
		return nil
	}
	node, _, err := p.Spec.Shard.Resolve(getenv)
	if err != nil {
		return nil
	}
	if p, err = p.Expand(p.Vars(node, time.Now(), getenv)); err != nil {
		return nil
	}
	for _, in := range p.Spec.Inputs {
		if in.Mode == plan.ModeWindow {
			all = append(all, window{absolute(cwd, in.Path), int64(in.Window.Size)})
		}
	}
	return all
}

func absolute(cwd, path string) string {
	if filepath.IsAbs(path) {
		return filepath.Clean(path)
	}
	return filepath.Join(cwd, path)
}

// flagOf returns the value of a flag, by any of its names; "" if it is not there.
func flagOf(args []string, names ...string) string {
	for i, arg := range args {
		if arg == "--" {
			break
		}
		for _, name := range names {
			if arg == name && i+1 < len(args) {
				return args[i+1]
			}
			if value, ok := strings.CutPrefix(arg, name+"="); ok {
				return value
			}
		}
	}
	return ""
}
