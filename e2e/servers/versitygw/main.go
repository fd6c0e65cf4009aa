// Command versitygw serves a directory as an S3 server, whose buckets are the directories in it.
// ROOT_ACCESS_KEY and ROOT_SECRET_KEY are its one account. The project's own command has other backends and
// tests besides, which take half of the time of its build.
package main

import (
	"context"
	"flag"
	"log"
	"os"
	"os/signal"
	"syscall"

	"github.com/versity/versitygw/backend/meta"
	"github.com/versity/versitygw/backend/posix"
	"github.com/versity/versitygw/embedgw"
)

func main() {
	config := &embedgw.Config{
		RootUserAccess:    os.Getenv("ROOT_ACCESS_KEY"),
		RootUserSecret:    os.Getenv("ROOT_SECRET_KEY"),
		MaxConnections:    250_000,
		MaxRequests:       100_000,
		MultipartMaxParts: 10_000,
		HealthPath:        "/health",
		KeepAlive:         true,
		Quiet:             true,
	}
	address := flag.String("address", "127.0.0.1:7070", "listen on `host:port`")
	sidecar := flag.String("sidecar", "", "keep metadata in this `directory`; otherwise in extended attributes")
	flag.StringVar(&config.Region, "region", "us-east-1", "the `region` that clients name")
	flag.StringVar(&config.CertFile, "cert", "", "serve TLS with the certificate in this `file`")
	flag.StringVar(&config.KeyFile, "key", "", "and the key in this `file`")
	flag.Parse()
	config.Ports = []string{*address}

	var metadata meta.MetadataStorer = meta.XattrMeta{}
	if *sidecar != "" {
		store, err := meta.NewSideCar(*sidecar)
		if err != nil {
			log.Fatal(err)
		}
		metadata = store
	}
	backend, err := posix.New(flag.Arg(0), metadata, posix.PosixOpts{SideCarDir: *sidecar, CopyObjectThreshold: 5 << 30})
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := embedgw.RunVersityGW(ctx, backend, config); err != nil && ctx.Err() == nil {
		log.Fatal(err)
	}
}
