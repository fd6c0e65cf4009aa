// Command reference writes what the manual generates from the code, from the module e2e:
//
//	go run ./cmd/reference
//	go run ./cmd/reference -man DIR
package main

import (
	"flag"
	"fmt"
	"os"

	"github.com/stager-dev/stager/e2e/reference"
)

func main() {
	source := flag.String("source", "..", "the directory of the product's module")
	man := flag.String("man", "", "write the man pages into this directory instead")
	version := flag.String("version", "dev", "version for the man pages")
	flag.Parse()
	write := func() error { return reference.Write(*source) }
	if *man != "" {
		write = func() error { return reference.WriteMan(*source, *man, *version) }
	}
	if err := write(); err != nil {
		fmt.Fprintln(os.Stderr, "reference:", err)
		os.Exit(1)
	}
}
