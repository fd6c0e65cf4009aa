// Command ossserver starts a double of Alibaba Cloud's OSS on this machine and
// prints the variables by which clients find it, as lines for a shell:
//
//	go run ./cmd/ossserver -bucket demo > env.sh &
//
// The last line is "# ready". It serves until SIGTERM or SIGINT. At
// OSS_ECS_METADATA_ENDPOINT it also is an instance's metadata service, and can be
// told to go wrong: see package ossdouble.
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
		fmt.Fprintln(os.Stderr, "ossserver:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) (err error) {
	var opts servers.OSSOptions
	flag.BoolVar(&opts.TLS, "tls", false, "serve HTTPS, with an authority made for the day")
	flag.StringVar(&opts.Dir, "dir", "", "where objects lie; empty: a folder that goes when the server ends")
	for name, to := range map[string]struct {
		list  *[]string
		usage string
	}{
		"bucket":   {&opts.Buckets, "buckets to make, with commas between"},
		"public":   {&opts.Public, "those that anybody may read"},
		"versions": {&opts.Versions, "those with versioning"},
	} {
		flag.Func(name, to.usage, func(s string) error { *to.list = strings.Split(s, ","); return nil })
	}
	flag.Parse()
	s, err := servers.StartOSS(opts)
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
