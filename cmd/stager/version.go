package main

import (
	"fmt"
	"runtime"
)

type versionCmd struct{}

func (versionCmd) Run() error {
	_, err := fmt.Printf("stager %s %s %s/%s\n", version, runtime.Version(), runtime.GOOS, runtime.GOARCH)
	return err
}
