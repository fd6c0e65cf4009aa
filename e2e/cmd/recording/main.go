// Command recording runs the demo and records it as docs/assets/demo.svg. "make recording" calls it.
package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"github.com/stager-dev/stager/e2e/recording"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "recording:", err)
		os.Exit(1)
	}
}

func run() error {
	out := flag.String("o", "../docs/assets/demo.svg", "the picture to write")
	flag.Parse()
	const command = "make -s demo"
	words := strings.Fields(command)
	cmd := exec.Command(words[0], append(words[1:], "--no-print-directory")...)
	cmd.Dir = ".."
	lines, err := recording.Run(cmd, os.Stdout)
	if err != nil {
		return fmt.Errorf("%s: %w", command, err)
	}
	picture := recording.Picture{
		Command: command, Title: "stager: a dataset through a window, kills, checkpoints", Lines: lines,
		Marks: []recording.Mark{{Text: "SIGKILL", Class: "bad"}, {Text: "every promise held", Class: "good"}},
	}
	return os.WriteFile(*out, picture.SVG(), 0o644)
}
