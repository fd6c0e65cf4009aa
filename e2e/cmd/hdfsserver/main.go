// Command hdfsserver starts an HDFS of one NameNode and one DataNode on this machine
// and prints the variables by which clients find it, as lines for a shell:
//
//	go run ./cmd/hdfsserver > env.sh &
//
// The last of them is "# ready". Hadoop's own tools then run as
//
//	. env.sh && java -cp "$HADOOP_CLASSPATH" org.apache.hadoop.fs.FsShell -ls /
//
// It serves until SIGTERM or SIGINT. Meanwhile it takes orders on its standard input,
// one a line, and answers each with "# done" or "# failed" and why:
//
//	kill namenode    ends a daemon as a power cut does; or: kill datanode
//	start namenode   starts it again, on its old port
//	ready            waits until files can be written
package main

import (
	"bufio"
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
		fmt.Fprintln(os.Stderr, "hdfsserver:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	opts := servers.HDFSOptions{}
	flag.StringVar(&opts.Dir, "dir", "", "where all of it lies; empty: a folder that goes when the server ends")
	flag.Int64Var(&opts.BlockSize, "block-size", 1<<20, "of files whose writer names none, in bytes")
	keys := flag.String("keys", "", "keys to make for encryption zones, with commas between")
	verbose := flag.Bool("v", false, "show what the daemons say")
	flag.Parse()
	if *keys != "" {
		opts.Keys = strings.Split(*keys, ",")
	}
	if *verbose {
		opts.Log = os.Stderr
	}
	h, err := servers.StartHDFS(ctx, opts)
	if err != nil {
		return err
	}
	defer h.Close() // nobody is left to tell
	for _, line := range h.Env() {
		name, value, _ := strings.Cut(line, "=")
		fmt.Printf("export %s='%s'\n", name, value)
	}
	fmt.Println("# ready")
	orders := make(chan string)
	go func() {
		for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
			orders <- lines.Text()
		}
	}()
	for {
		select {
		case <-ctx.Done():
			return nil
		case order := <-orders:
			if err := obey(ctx, h, order); err != nil {
				fmt.Printf("# failed %v\n", err)
			} else {
				fmt.Println("# done")
			}
		}
	}
}

func obey(ctx context.Context, h *servers.HDFS, order string) error {
	verb, daemon, _ := strings.Cut(order, " ")
	switch verb {
	case "kill":
		return h.Kill(daemon)
	case "start":
		return h.Start(daemon)
	case "ready":
		return h.Ready(ctx)
	}
	return fmt.Errorf("unknown order %q", order)
}
