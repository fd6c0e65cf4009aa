package pytorch

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"testing"

	"github.com/stager-dev/stager/e2e/room"
	"github.com/stager-dev/stager/e2e/servers"
)

func TestMain(m *testing.M) {
	code := room.Run(m)
	if err := os.RemoveAll(shared.dir); err != nil { // of "" it removes nothing
		fmt.Fprintln(os.Stderr, "pytorch:", err)
	}
	os.Exit(code)
}

// shared is what all labs have, and none changes.
var shared struct {
	dir    string // TestMain removes it
	stager string
	shards string // a directory of count of them
}

// share makes what labs share, once.
var share = sync.OnceValue(func() (err error) {
	trainer, err := servers.PyTorch()
	if err != nil {
		return err
	}
	if shared.dir, err = os.MkdirTemp("", "stager-pytorch-"); err != nil {
		return err
	}
	shared.stager, shared.shards = filepath.Join(shared.dir, "stager"), filepath.Join(shared.dir, "shards")
	if err := os.Mkdir(shared.shards, 0o755); err != nil {
		return err
	}
	build := exec.Command("go", "build", "-o", shared.stager, "./cmd/stager")
	build.Dir = filepath.Join("..", "..")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	pack := exec.Command(trainer.Python, "testdata/pack.py", trainer.Digits, shared.shards, strconv.Itoa(count))
	for _, cmd := range []*exec.Cmd{build, pack} {
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%v: %w\n%s", cmd.Args, err, out)
		}
	}
	return nil
})
