// Command mkimage makes the release image of a stager binary, without a container
// engine and without a registry:
//
//	go run ./cmd/mkimage -o stager.tar -t localhost/stager:dev ../bin/stager
//
// and prints the digest of its manifest, which is the same for the same binary. Load
// the archive by "ctr -n k8s.io images import", "podman load -i", "docker load -i", or
// push it by "skopeo copy oci-archive:stager.tar docker://…". With -tree it writes the
// image's files into a directory, which is what the Dockerfile asks for.
//
// With the static busybox of the machine, or of Debian's package busybox-static, it
// makes the image of images/trainer, too:
//
//	go run ./cmd/mkimage -trainer ../images/trainer/trainer -busybox /bin/busybox -o trainer.tar -t localhost/trainer:dev ../bin/stager
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime"

	"github.com/stager-dev/stager/e2e/image"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "mkimage:", err)
		os.Exit(1)
	}
}

func run() error {
	out := flag.String("o", "stager.tar", "the archive to write")
	name := flag.String("t", "localhost/stager:dev", "the image's name")
	arch := flag.String("arch", runtime.GOARCH, "what the binary was built for, as Go calls it")
	tree := flag.String("tree", "", "write the files into this directory instead")
	trainer := flag.String("trainer", "", "build the image of this trainer, with stager next to it")
	busybox := flag.String("busybox", "/bin/busybox", "the trainer's shell, linked statically")
	flag.Parse()
	if flag.NArg() != 1 {
		return errors.New("name the binary: mkimage [flags] BINARY")
	}
	binary, err := os.ReadFile(flag.Arg(0))
	if err != nil {
		return err
	}
	img := image.Release(*name, *arch, binary)
	if *trainer != "" {
		script, err := os.ReadFile(*trainer)
		if err != nil {
			return err
		}
		shell, err := os.ReadFile(*busybox)
		if err != nil {
			return err
		}
		img = image.Trainer(*name, *arch, shell, binary, script)
	}
	if *tree != "" {
		return img.Tree(*tree)
	}
	file, err := os.Create(*out)
	if err != nil {
		return err
	}
	digest, err := img.Write(file)
	if err := errors.Join(err, file.Close()); err != nil {
		return errors.Join(err, os.Remove(*out)) // half an archive is of no use
	}
	fmt.Println(digest)
	return nil
}
