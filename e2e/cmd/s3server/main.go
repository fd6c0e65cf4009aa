// Command s3server starts an S3 server on this machine and prints the variables by
// which clients find it, as lines for a shell:
//
//	go run ./cmd/s3server -bucket demo > env.sh &
//
// The last line is "# ready". It serves until SIGTERM or SIGINT.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/stager-dev/stager/e2e/servers"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "s3server:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	opts := servers.S3Options{Log: os.Stderr}
	flag.BoolVar(&opts.TLS, "tls", false, "serve HTTPS, with an authority made for the day")
	flag.StringVar(&opts.Dir, "dir", "", "where objects lie; empty: a folder that goes when the server ends")
	bucket := flag.String("bucket", "test", "buckets to make, with commas between")
	flag.Parse()
	opts.Buckets = strings.Split(*bucket, ",")
	s, err := servers.StartS3(ctx, opts)
	if err != nil {
		return err
	}
	defer s.Close() // nobody is left to tell
	for _, line := range s.Env() {
		name, value, _ := strings.Cut(line, "=")
		fmt.Printf("export %s='%s'\n", name, value)
	}
	fmt.Println("# ready")
	<-ctx.Done()
	return nil
}
