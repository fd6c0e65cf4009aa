package window

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stager-dev/stager/backends/conformance/live"
	"github.com/stager-dev/stager/window/disk"
)

// taking returns the used space of the whole volume at one instant. A directory walk would not be
// consistent, because files change while it runs.
func taking(t *testing.T, dir string) int64 {
	t.Helper()
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		t.Fatal(err)
	}
	return int64(st.Blocks-st.Bfree) * st.Bsize
}

// deepTree is a Fetcher of trees in which each file has its own directory.
type deepTree struct{ fake }

const deepFiles, deepDirs = 8, 6

func deepName(i int) string {
	name := "file"
	for range deepDirs {
		name = path.Join(fmt.Sprint("directory-", i), name)
	}
	return name
}

func (f *deepTree) FetchTree(_ context.Context, _ int, in *disk.IncomingTree) error {
	for i := range deepFiles {
		file, err := in.File(deepName(i), 1, "")
		if err != nil {
			return err
		}
		if _, err := file.WriteAt([]byte("x"), 0); err != nil {
			return err
		}
		if err := in.Keep(deepName(i), file); err != nil {
			return err
		}
	}
	return nil
}

func deepItems(n int) (list List) {
	const dirs = deepFiles * deepDirs
	for i := range n {
		name := fmt.Sprintf("t%02d", i)
		list = append(list, Item{
			Name: name, Size: deepFiles * disk.Block, Tree: true,
			Beside: disk.Beside(name, 0) + (dirs+1)*disk.DirRoom + 2*disk.Block + (dirs+deepFiles)*2*disk.NameRoom("directory-0"),
		})
	}
	return list
}

func fileItems(n int, size int64) List {
	list := items(n, size)
	for i := range list {
		list[i].Beside = disk.Room(size) - size + disk.Beside(list[i].Name, size)
	}
	return list
}

// A window of 8 MiB took 59 MB, because directories did not count. A window of 24,000,000 bytes
// took 24,337,932 with its journal and reports.
func TestWindowTakesNoMoreThanItsSize(t *testing.T) {
	shards, directories, epochs := 150, 40, 3
	if os.Getenv("STAGER_TRIAL") == "full" {
		shards, directories, epochs = 2000, 400, 10
	}
	for _, kind := range []string{"ext4", "tmpfs", "xfs"} {
		for name, cfg := range map[string]Config{
			"small files": {Items: fileItems(shards, 3000), Size: 512 << 10},
			"files":       {Items: fileItems(shards, 200<<10), Size: 2 << 20},
			"deep trees":  {Items: deepItems(directories), Size: 3 << 20},
		} {
			t.Run(kind+" "+name, func(t *testing.T) {
				dir := t.TempDir()
				live.Mount(t, kind, dir, 400<<20)
				if kind == "xfs" {
					live.Fill(t, dir, cfg.Size+xfsOwn)
				}
				before := taking(t, dir)
				var said bytes.Buffer
				cfg.Log = slog.New(slog.NewTextHandler(&said, nil))
				cfg.Dir, cfg.Input, cfg.Manifest, cfg.Epochs, cfg.CountOwn = filepath.Join(dir, "window"), "train", "p", epochs, true
				cfg.Fetcher = &fake{items: listOf(cfg)}
				if listOf(cfg)[0].Tree {
					cfg.Fetcher = &deepTree{}
				}
				w, err := New(cfg)
				if err != nil {
					t.Fatal(err)
				}
				defer w.Close()
				peak := watch(t, w, func() int64 { return taking(t, dir) - before })
				if peak > cfg.Size && kind != "xfs" {
					t.Errorf("%d bytes were on the disk of %d", peak, cfg.Size)
				}
				most := 0
				if kind == "xfs" {
					most = cfg.Items.Len() * epochs / xfsLate
				}
				if got := strings.Count(said.String(), unix.ENOSPC.Error()); got > most {
					t.Errorf("the disk had room for %d bytes, and was full %d times, want at most %d:\n%s", cfg.Size, got, most, &said)
				}
				if s := w.Status(); s.Acknowledged != int64(cfg.Items.Len()*epochs) || s.Peak > cfg.Size {
					t.Errorf("%d of %d were acknowledged, with %d bytes of %d", s.Acknowledged, cfg.Items.Len()*epochs, s.Peak, cfg.Size)
				}
			})
		}
	}
}

// xfsOwn is the space that xfs takes for its metadata and pending operations: less than 1 MiB here.
const xfsOwn = 2 << 20

// That space may come too late on a busy machine, for all fetches of the moment, and the window then
// tries again: for one shard of xfsLate at most. With 256 KiB too little on the disk, two of three meet
// a full disk.
const xfsLate = 20

// watch runs a window with two readers, and returns the maximum of taken meanwhile.
func watch(t *testing.T, w *Window, taken func() int64) (peak int64) {
	t.Helper()
	var work sync.WaitGroup
	for _, reader := range []string{"a", "b"} {
		work.Go(func() {
			for {
				l, err := w.Lease(t.Context(), LeaseRequest{Reader: reader, Wait: time.Minute, Bound: true})
				if end := (*EndError)(nil); errors.As(err, &end) && end.Epoch < w.Epochs()-1 {
					continue
				} else if err != nil {
					return
				}
				if err := w.Ack(l.ID); err != nil {
					t.Error(err)
				}
			}
		})
	}
	done := make(chan error)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute) // one that hangs; the full form takes minutes on a busy machine
	defer cancel()
	go func() { done <- w.Run(ctx) }()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for {
		peak = max(peak, taken())
		select {
		case err := <-done:
			if err != nil {
				t.Error(err)
			}
			work.Wait()
			return max(peak, taken())
		case <-tick.C:
		}
	}
}
