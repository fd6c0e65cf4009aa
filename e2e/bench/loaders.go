package bench

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/stager-dev/stager/e2e/servers"
)

// What the loaders are measured with: a trainer that is paced, and a store that is away.
const (
	paced     = time.Millisecond // of work on an image
	distant   = 20 * time.Millisecond
	twoOfThem = 2 // workers, as many as there are cores
)

// loaders is stager.torch's loader beside WebDataset with files that are there, and beside
// WebDataset's cache, MosaicML Streaming and LitData with as much of the disk. The time is
// the training loop's: what imports take is the same for all.
func loaders(ctx context.Context, lab *Lab) (rows []Row, note string, stop func() error, err error) {
	t, server, end, err := startTrainer(ctx, lab, "loaders")
	if err != nil {
		return nil, "", nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, end.all())
		}
	}()
	address := strings.TrimPrefix(server.Endpoint, "http://")
	way, err := servers.StartDelay(address, distant)
	if err != nil {
		return nil, "", nil, err
	}
	end = append(end, way.Close)
	peers := []string{"WebDataset, its cache", "MosaicML Streaming"}
	if exec.CommandContext(ctx, t.python.Python, "-c", "import litdata").Run() == nil {
		peers = append(peers, "LitData")
	}
	for _, at := range []struct{ name, address string }{{"near", address}, {"20 ms away", way.Address}} {
		for _, work := range []time.Duration{paced, 0} {
			of := t
			if err := of.serve(server.Env(), at.address); err != nil {
				return nil, "", nil, err
			}
			of.work, of.workers = work, twoOfThem
			rows = append(rows, of.loading("loader, "+at.name, peers))
			if work == 0 && runtime.NumCPU() > 1 {
				of.apart = true
				rows = append(rows, of.loading("loader, "+at.name+", a core of its own", nil))
			}
		}
	}
	note = fmt.Sprintf("the time of the training loop, from the start of stager, with %d workers; the window and the caches may keep %d of %d shards of %d images of %s; %s",
		twoOfThem, windowful, trainShards, shardImages, sizeOf(imageSize), quickNote)
	return rows, note, end.all, nil
}

// loading is the trainer with stager's loader, and with all others.
func (t trainer) loading(store string, peers []string) Row {
	row := Row{
		Store: store, Work: fmt.Sprintf("%d images, as fast as they come", trainImages), Bytes: trainShards * t.shard, Reset: t.reset, Reading: t.result(), Loop: true,
		Peer: "WebDataset, local files", Theirs: t.local, Ours: t.samples,
		Check: func(context.Context) error { return nil }, // the trainer has
	}
	if t.work > 0 {
		row.Work = fmt.Sprintf("%d images, %v of work on each", trainImages, t.work)
	}
	if t.work > 0 || t.apart { // else the loop shares two cores with stager and the store
		row.Goal.Ratio = atLeast
	}
	commands := map[string]Command{"WebDataset, its cache": t.webdataset, "MosaicML Streaming": t.mosaic, "LitData": t.litdata}
	for _, peer := range peers {
		row.Rivals = append(row.Rivals, Rival{Peer: peer, Command: commands[peer]})
	}
	if t.work == 0 && !t.apart {
		row.Rivals = append(row.Rivals, Rival{Peer: "WebDataset, local files, beside stager prefetch", Command: t.localBesidePrefetch})
	}
	return row
}

// samples is stager's loader. The trainer starts the daemon: what that fetches while the
// trainer is being imported would not count.
func (t *trainer) samples() *exec.Cmd {
	daemon, socket, err := t.daemon()
	if err != nil {
		return &exec.Cmd{Err: err}
	}
	cmd := t.train("samples", "train", "data", 0)
	cmd.Args = append(append(cmd.Args, "--daemon"), daemon...)
	cmd.Env = append(cmd.Env, "STAGER_SOCKET="+socket)
	return cmd
}

// localBesidePrefetch is the loop over local files on a machine that receives as many bytes from the store
// meanwhile. A loader that fetches has no more of the machine than that.
func (t *trainer) localBesidePrefetch() *exec.Cmd {
	cmd := t.local()
	cmd.Args = append(cmd.Args, "--daemon", t.lab.Stager, "prefetch", "--quiet", "s3://bench/tar/", filepath.Join(t.dir, "data"))
	return cmd
}

func (t *trainer) litdata() *exec.Cmd {
	return t.train("litdata", "s3://bench/litdata", "cache", windowful*t.shard)
}
