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

// This client uses an in-memory server. For a real one, dial port 2049 with net.Dialer.
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
	defer client.Close() // if it fails, the lease cleans up

	err = client.ReadDir(ctx, "export", func(e remote.Entry) error {
		fmt.Println(e.Name, e.Attr.Size)
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	// One message opens, reads and closes the file.
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

// The file is written under a temporary name, made durable and renamed.
func ExampleClient_Rename() {
	ctx := context.Background()
	server := nfstest.New()
	server.Mkdir("export")
	client, err := nfs4.Dial(ctx, nfs4.Config{RPC: rpc.NewClient(server.Dial, 2, rpc.Options{})})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close() // if it fails, the lease cleans up

	file, err := client.Create(ctx, "export/.new")
	if err != nil {
		log.Fatal(err)
	}
	text := "written"
	n, taken, err := file.WriteAt(ctx, 0, len(text), func(p []byte) error { copy(p, text); return nil })
	if err != nil || n < len(text) {
		log.Fatal(n, err) // a real caller writes the rest
	}
	durable, _, err := file.Commit(ctx)
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
