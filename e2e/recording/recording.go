// Package recording records what a command prints as an animated picture: an SVG without scripts and
// without files of others, which shows each line when it was printed, with its real time beside it.
package recording

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"
)

// Line is a line of output.
type Line struct {
	At   time.Duration // since the command was started
	Text string
}

// Run runs a command until it ends, copies what it prints to echo, and returns its lines. An error of
// the command is an error: a picture of a failure is of no use.
func Run(cmd *exec.Cmd, echo io.Writer) (lines []Line, err error) {
	output, end, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer output.Close() // read to its end
	cmd.Stdout, cmd.Stderr = end, end
	began := time.Now()
	err = cmd.Start()
	if err = errors.Join(err, end.Close()); err != nil {
		return nil, err
	}
	for scan := bufio.NewScanner(output); scan.Scan(); {
		lines = append(lines, Line{time.Since(began), scan.Text()})
		fmt.Fprintln(echo, scan.Text())
	}
	return lines, cmd.Wait()
}
