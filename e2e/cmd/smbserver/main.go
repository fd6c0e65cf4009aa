// Command smbserver starts an SMB server on this machine and prints the variables by
// which clients find it, as lines for a shell:
//
//	go run ./cmd/smbserver -mode signed > env.sh &
//
// The last line is "# ready". It serves until SIGTERM or SIGINT. SIGUSR1 kills the
// server as a power cut would; after -down it starts again at the same address.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/stager-dev/stager/e2e/servers"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "smbserver:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	opts := servers.SambaOptions{Log: os.Stderr}
	flag.StringVar((*string)(&opts.Mode), "mode", string(servers.SambaPlain), "plain, signed or encrypted")
	down := flag.Duration("down", time.Second, "how long the server is away after SIGUSR1")
	flag.Parse()
	restart := make(chan os.Signal, 1)
	signal.Notify(restart, syscall.SIGUSR1)
	s, err := servers.StartSamba(ctx, opts)
	if err != nil {
		return err
	}
	defer s.Close() // nobody is left to tell
	for _, line := range s.Env() {
		name, value, _ := strings.Cut(line, "=")
		fmt.Printf("export %s='%s'\n", name, value)
	}
	fmt.Println("# ready")
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-restart:
		}
		if err := s.Stop(); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(*down):
		}
		if err := s.Start(ctx); err != nil {
			return err
		}
	}
}
