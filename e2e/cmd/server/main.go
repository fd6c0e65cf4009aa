// Command server starts the test server of a protocol on this machine and prints the
// variables by which clients find it, as lines for a shell:
//
//	go run ./cmd/server install smb
//	go run ./cmd/server smb -mode signed > env.sh &
//
// The first installs what the server needs, by Debian's packages, and says so; it
// takes many protocols, and what else tests insist on (file, xfs, hf, python, prometheus, pytorch,
// foreign, helm, krew, minio, apiserver, cluster), and prints those that can run here, with commas between. It fails where one
// that -require names cannot. Servers of smb and nfs run as root, and so does a cluster.
//
// Protocols are s3, oss, gs, az, smb, nfs, hdfs, http, sftp, ftp and git, and foreign, which is impacket or fake-gcs-server; "go run ./cmd/server smb -h" tells the
// flags of one, such as -ceph of s3. The last line is "# ready", or "# failed" and
// why. It serves until SIGTERM or SIGINT.
//
// With -orders it serves until its standard input ends, which it does when whoever
// started it has ended, and takes orders from there, one a line. It answers each with
// "# done", or with "# failed" and why:
//
//	kill          ends the server as a power cut does
//	start         starts it again, at its old address
//	away 10s      does both; done is said as soon as it is away
//	freeze        keeps it from answering, while its connections stay
//	thaw          lets it go on
//
// HDFS has two daemons, and more orders:
//
//	kill datanode, start namenode     one of the two
//	ready                             waits until files can be written
//	activate nn2, deactivate nn1      of two NameNodes, with -ha
//	protect privacy, protect aes      starts the DataNode again with another protection
//	protect rpc integrity             and all of it
//
// And with -kerberos the Kerberos server has its own:
//
//	kill kdc, start kdc               ends it, starts it again
//	shift kdc, set kdc                sets its clock an hour ahead, or right
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "server:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, in io.Reader, out io.Writer) error {
	known := strings.Join(slices.Sorted(maps.Keys(protocols)), ", ")
	if len(args) == 0 {
		return fmt.Errorf("name a protocol: %s", known)
	}
	if args[0] == "install" {
		return install(ctx, args[1:], out)
	}
	protocol, ok := protocols[args[0]]
	if !ok {
		return fmt.Errorf("there is no server of %q, only of %s", args[0], known)
	}
	flags := flag.NewFlagSet(args[0], flag.ContinueOnError)
	takesOrders := flags.Bool("orders", false, "take orders on standard input, and end with it")
	verbose := flags.Bool("v", false, "show what the server says")
	start := protocol(flags)
	if err := flags.Parse(args[1:]); errors.Is(err, flag.ErrHelp) {
		return nil
	} else if err != nil || flags.NArg() > 0 {
		return errors.Join(err, fmt.Errorf("flags follow the protocol: see %s -h", args[0]))
	}
	var log io.Writer
	if *verbose {
		log = os.Stderr
	}
	s, err := start(ctx, log)
	if err != nil {
		fmt.Fprintln(out, "# failed", oneLine(err))
		return err
	}
	defer s.Close() // nobody is left to tell
	for _, line := range s.Env() {
		name, value, _ := strings.Cut(line, "=")
		fmt.Fprintf(out, "export %s='%s'\n", name, value)
	}
	fmt.Fprintln(out, "# ready")
	if !*takesOrders {
		<-ctx.Done()
		return nil
	}
	return obey(ctx, s.orders, in, out)
}

// obey carries out orders until their input or ctx ends.
func obey(ctx context.Context, orders map[string]order, in io.Reader, out io.Writer) error {
	given := make(chan string)
	go func() {
		defer close(given)
		for lines := bufio.NewScanner(in); lines.Scan(); {
			given <- lines.Text()
		}
	}()
	for {
		var text string
		select {
		case <-ctx.Done():
			return nil
		case line, ok := <-given:
			if !ok {
				return nil
			}
			text = line
		}
		away, isAway := strings.CutPrefix(text, "away ")
		if isAway {
			text = "kill"
		}
		err := fmt.Errorf("there is no order %q", text)
		if do := orders[text]; do != nil {
			err = do(ctx)
		}
		if err != nil {
			fmt.Fprintln(out, "# failed", oneLine(err))
			continue
		}
		fmt.Fprintln(out, "# done")
		if isAway {
			if err := comeBack(ctx, away, orders["start"]); err != nil {
				return err
			}
		}
	}
}

// comeBack starts a server after a while.
func comeBack(ctx context.Context, after string, start order) error {
	d, err := time.ParseDuration(after)
	if err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return nil
	case <-time.After(d):
		return start(ctx)
	}
}

func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }
