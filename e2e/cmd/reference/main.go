// Command reference writes what the manual generates from the code, from the module e2e:
//
//	go run ./cmd/reference
package main

import (
	"flag"
	"fmt"
	"os"

	"github.com/stager-dev/stager/e2e/reference"
)

func main() {
	source := flag.String("source", "..", "the directory of the product's module")
	flag.Parse()
	if err := reference.Write(*source); err != nil {
		fmt.Fprintln(os.Stderr, "reference:", err)
		os.Exit(1)
	}
}
