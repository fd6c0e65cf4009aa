package main

import (
	"os"
	"path/filepath"
)

type installCmd struct {
	Dir string `arg:"" help:"Existing directory." type:"existingdir"`
}

// Help returns the detailed help.
func (installCmd) Help() string {
	return `An init container installs stager into a shared volume, so that a container whose image lacks it can run "stager run -- COMMAND".

    stager install /run/stager-bin`
}

func (c installCmd) Run() error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	from, err := os.Open(self)
	if err != nil {
		return err
	}
	defer from.Close() // only read from
	return replaceFile(filepath.Join(c.Dir, "stager"), 0o755, from)
}
