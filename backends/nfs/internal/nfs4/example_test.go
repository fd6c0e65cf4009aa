package nfs4_test

import (
	"context"
	"fmt"
	"log"

	"github.com/stager-dev/stager/backends/nfs/internal/nfs4"
	"github.com/stager-dev/stager/backends/nfs/internal/nfstest"
	"github.com/stager-dev/stager/backends/nfs/internal/remote"
	"github.com/stager-dev/stager/backends/nfs/internal/rpc"
)

// A client of a server in memory; a real one is dialled by net.Dialer, on port 2049.
func Example() {
	ctx := context.Background()
	server := nfstest.New()
	server.WriteFile("export/greeting", []byte("hello"))

	client, err := nfs4.Dial(ctx, nfs4.Config{
		RPC:        rpc.NewClient(server.Dial, 2, rpc.Options{}),
		Credential: rpc.System("machine", 1000, 1000, nil),
	})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close() // what it could not tell the server, the lease does

	err = client.ReadDir(ctx, "export", func(e remote.Entry) error {
		fmt.Println(e.Name, e.Attr.Size)
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	// One message opens the file, reads it and closes it.
	_, block, err := client.Open(ctx, "export/greeting", 0, 100, true)
	if err != nil {
		log.Fatal(err)
	}
	defer block.Release()
	fmt.Printf("%s, and it is all: %t\n", block.Data, block.EOF)
	// Output:
	// greeting 5
	// hello, and it is all: true
}

// A file is written under a name that nobody looks for, made durable and renamed.
func ExampleClient_Rename() {
	ctx := context.Background()
	server := nfstest.New()
	server.Mkdir("export")
	client, err := nfs4.Dial(ctx, nfs4.Config{RPC: rpc.NewClient(server.Dial, 2, rpc.Options{})})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close() // what it could not tell the server, the lease does

	file, err := client.Create(ctx, "export/.new")
	if err != nil {
		log.Fatal(err)
	}
	text := "written"
	n, taken, err := file.WriteAt(ctx, 0, len(text), func(p []byte) error { copy(p, text); return nil })
	if err != nil || n < len(text) {
		log.Fatal(n, err) // or write the rest
	}
	durable, err := file.Commit(ctx)
	if err != nil || durable != taken {
		log.Fatal("the server was restarted; write it again", err)
	}
	attr, err := client.Rename(ctx, file, "export/.new", "export/final")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(attr.Size, "bytes")
	// Output: 7 bytes
}
