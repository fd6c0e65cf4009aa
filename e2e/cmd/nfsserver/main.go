// Command nfsserver starts an NFS server on this machine and prints the variables by
// which tests find it, as lines for a shell:
//
//	go run ./cmd/nfsserver > env.sh &
//
// The last line is "# ready". It serves until SIGTERM or SIGINT. A line "kill" on its
// standard input ends the server as a crash would, and "start" starts it again; each
// is answered by a line "# killed" or "# ready".
package main

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/stager-dev/stager/e2e/servers"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "nfsserver:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, in io.Reader, out io.Writer) error {
	var opts servers.GaneshaOptions
	flag.StringVar(&opts.Dir, "dir", "", "where files lie; empty: a folder that goes when the server ends")
	verbose := flag.Bool("verbose", false, "show what the server says")
	flag.Parse()
	if *verbose {
		opts.Log = os.Stderr
	}
	g, err := servers.StartGanesha(ctx, opts)
	if err != nil {
		return err
	}
	defer g.Close() // nobody is left to tell
	for _, line := range g.Env() {
		name, value, _ := strings.Cut(line, "=")
		fmt.Fprintf(out, "export %s='%s'\n", name, value)
	}
	fmt.Fprintln(out, "# ready")
	failed := make(chan error, 1)
	go func() {
		commands := bufio.NewScanner(in)
		for commands.Scan() {
			if err := obey(ctx, g, commands.Text(), out); err != nil {
				failed <- err
				return
			}
		}
	}()
	select {
	case <-ctx.Done():
		return nil
	case err := <-failed:
		return err
	}
}

// obey carries one command out.
func obey(ctx context.Context, g *servers.Ganesha, command string, out io.Writer) error {
	switch command {
	case "kill":
		if err := g.Kill(); err != nil {
			return err
		}
		fmt.Fprintln(out, "# killed")
	case "start":
		if err := g.Start(ctx); err != nil {
			return err
		}
		fmt.Fprintln(out, "# ready")
	default:
		return fmt.Errorf("unknown command %q; known are kill and start", command)
	}
	return nil
}
