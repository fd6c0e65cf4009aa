package jobspec

import (
	"net/url"
	"path"
	"slices"
	"strings"

	"github.com/stager-dev/stager/stager/jobspec/yamledit"
)

// stores returns additional mounts for stager's containers. They are needed if data are read from
// or written to a mounted volume with a URL such as file:///mnt/shared/train/. Stager gets the same
// mount as the target, read-only for sources.
//
// A container that stager wraps has these mounts already.
func (p *pod) stores() (all []any) {
	if p.shape.inside {
		return nil
	}
	add := func(name, store string, readOnly bool) {
		directory, ok := dirOf(store)
		if !ok || slices.ContainsFunc(p.mounts, func(m mount) bool { return within(directory, m.path) }) {
			return
		}
		m := p.covering(directory)
		if m == nil {
			refuse(p.targets[0], "%s: %s is not on a volume that container %s mounts; mount its volume there, and stager mounts it, too", name, directory, p.names[0])
		}
		at := path.Clean(m.Get("mountPath").Text())
		e := mount{volume: m.Get("name").Text(), path: at, user: m}.entry()
		if readOnly || m.Get("readOnly").Text() == "true" {
			e = append(e, yamledit.Entry{Key: "readOnly", Value: true})
		}
		for i := range all {
			if have, _ := all[i].(yamledit.Map); have[1].Value == at {
				if !readOnly {
					all[i] = e
				}
				return
			}
		}
		all = append(all, e)
	}
	for _, in := range p.req.plan.Spec.Inputs {
		for _, url := range in.URLs() {
			add(in.Name, url, true)
		}
	}
	for _, out := range p.req.plan.Spec.Outputs {
		add(out.Name, out.Destination, false)
	}
	return all
}

// dirOf returns the directory of a file URL, up to the first placeholder.
func dirOf(store string) (string, bool) {
	rest, ok := strings.CutPrefix(store, "file://")
	if !ok {
		return "", false
	}
	rest, _, _ = strings.Cut(rest, "?")
	if plain, err := url.PathUnescape(rest); err == nil { // other errors are refused elsewhere
		rest = plain
	}
	return static(rest), true
}
