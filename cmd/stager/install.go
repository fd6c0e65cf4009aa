package main

import (
	"fmt"
	"os"
	"path/filepath"
)

type installCmd struct {
	rehearsing
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
	to := filepath.Join(c.Dir, "stager")
	if c.DryRun {
		_, err := fmt.Println("would write " + printable(to))
		return err
	}
	from, err := os.Open(self)
	if err != nil {
		return err
	}
	defer from.Close() // only read from
	return replaceFile(to, 0o755, from)
}
