package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

type versionCmd struct{ shape }

// Help returns the detailed help.
func (versionCmd) Help() string {
	return `As JSON, the output includes the commit and the versions of all libraries.

    stager version
    stager version -o json | jq -r .version`
}

// built describes the binary, as version -o json prints it.
type built struct {
	Version  string            `json:"version"`
	Commit   string            `json:"commit,omitempty"` // absent if the binary was not built by make
	Go       string            `json:"go"`
	Platform string            `json:"platform"`
	Modules  map[string]string `json:"modules,omitempty"` // versions of libraries, by their module path
}

func (c versionCmd) Run() error {
	if !c.structured() {
		_, err := fmt.Println(versionLine())
		return err
	}
	b := built{version, commit, runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH, make(map[string]string)}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range info.Deps {
			b.Modules[m.Path] = m.Version
		}
	}
	return c.value(b)
}

func versionLine() string {
	return fmt.Sprintf("stager %s %s %s/%s", version, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}
