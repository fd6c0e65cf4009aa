package window

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stager-dev/stager/window/disk"
)

// fake is a Fetcher whose bytes depend on the item's number. Its results are scripted per item: one
// error per fetch, then success.
type fake struct {
	items List
	hang  chan struct{} // if set, fetches block until it is closed or their context ends
	// Time to first byte, and time for the rest.
	silent, flow time.Duration

	mu     sync.Mutex // guards all fields below
	script map[int][]error
	calls  int
}

func (f *fake) Fetch(ctx context.Context, item int, in *disk.Incoming) (string, error) {
	if f.hang != nil {
		select {
		case <-f.hang:
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
	time.Sleep(f.silent)
	if err := f.next(item); err != nil {
		return "", err
	}
	if f.flow > 0 {
		if _, err := in.WriteAt([]byte{byte('a' + item%26)}, 0); err != nil {
			return "", err
		}
		time.Sleep(f.flow)
	}
	for _, r := range in.Missing() {
		if _, err := in.WriteAt([]byte(strings.Repeat(string(rune('a'+item%26)), int(r.Len))), r.Off); err != nil {
			return "", err
		}
	}
	return "fake:" + f.items[item].Name, nil
}

// blocks returns the number of blocks of an item that is a tree.
func blocks(item int, of Item) int {
	n := int(of.Size) / disk.Block
	if of.UpTo {
		n = 1 + item%n
	}
	return n
}

// FetchTree adds one numbered file for each block of the item, half of them in a subdirectory. A
// scripted error is returned after the first file.
func (f *fake) FetchTree(ctx context.Context, item int, in *disk.IncomingTree) error {
	failed := f.next(item)
	for i := range blocks(item, f.items[item]) {
		name, size := treeFile(item, i)
		if !in.Has(name, size) {
			file, err := in.File(name, size, "")
			if err != nil {
				return err
			}
			if _, err := file.WriteAt(treeBytes(item, i), 0); err != nil {
				return err
			}
			if err := in.Keep(name, file); err != nil {
				return err
			}
		}
		if failed != nil {
			return failed
		}
	}
	return failed
}

// treeFile returns the name and the size of a file of an item that is a tree.
func treeFile(item, i int) (name string, size int64) {
	if i%2 == 1 {
		return fmt.Sprintf("sub/%d", i), int64(item % 3)
	}
	return fmt.Sprint(i), int64(item % 3)
}

func treeBytes(item, i int) []byte {
	_, size := treeFile(item, i)
	return []byte(strings.Repeat(string(rune('a'+item%26)), int(size)))
}

func (f *fake) next(item int) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls++
	errs := f.script[item]
	if len(errs) == 0 {
		return nil
	}
	f.script[item] = errs[1:]
	return errs[0]
}

// positions returns an epoch's order for all nodes.
func (b *bench) positions(epoch int) []Position {
	b.t.Helper()
	all, err := gather(b.Positions(epoch))
	b.ok(err)
	return all
}

// gather returns the values before the first error, and that.
func gather[T any](values iter.Seq2[T, error]) (all []T, err error) {
	for v, err := range values {
		if err != nil {
			return all, err
		}
		all = append(all, v)
	}
	return all, nil
}

// permuted returns a permutation of n items.
func permuted(seed uint64, epoch, n int) Order {
	return Permuted(n, func() (order []int32) {
		for _, item := range rand.New(rand.NewPCG(seed, uint64(epoch))).Perm(n) {
			order = append(order, int32(item))
		}
		return order
	})
}

// listOf returns the items of a configuration of a test.
func listOf(cfg Config) List {
	list, _ := cfg.Items.(List)
	return list
}

func items(n int, size int64) (out List) {
	for i := range n {
		out = append(out, Item{Name: fmt.Sprintf("s%02d.tar", i), Size: size, Samples: i})
	}
	return out
}

// bench is a window that the test steps by hand: no goroutine runs. Time is virtual, and only
// advance moves it.
type bench struct {
	t *testing.T
	*Window
	fetcher *fake
	cfg     Config

	async   bool // work that Run would start is put into pending, for arrive to run in any order
	pending []func()
}

// virtual runs a test in virtual time.
func virtual(t *testing.T, test func(*testing.T)) {
	t.Helper()
	synctest.Test(t, test)
}

func newBench(t *testing.T, cfg Config) *bench {
	t.Helper()
	if cfg.Dir == "" {
		cfg.Dir = t.TempDir()
	}
	if cfg.Manifest == "" {
		cfg.Manifest = "plan-1"
	}
	b := &bench{t: t, fetcher: &fake{items: listOf(cfg), script: map[int][]error{}}, cfg: cfg}
	b.cfg.Input, b.cfg.Fetcher, b.cfg.unsynced = "train", b.fetcher, true
	b.open()
	return b
}

func (b *bench) open() {
	b.t.Helper()
	w, err := New(b.cfg)
	if err != nil {
		b.t.Fatal(err)
	}
	w.spawn = func(f func()) {
		if b.async {
			b.pending = append(b.pending, f)
		} else {
			f()
		}
	}
	w.flush = func(sync func()) { sync() }
	b.Window = w
	b.t.Cleanup(func() { w.Close() })
}

// crash discards the process's memory like a kill: nothing is written, returned or closed, except
// what the kernel closes.
func (b *bench) crash() {
	b.t.Helper()
	b.journal.file.Close()
	b.stage.close()
	b.reports.close()
	b.life.closed = true
	b.pending = nil
	b.open()
}

// arrive runs one item of pending.
func (b *bench) arrive(i int) {
	f := b.pending[i]
	b.pending = slices.Delete(b.pending, i, i+1)
	f()
}

// step plans and acts once.
func (b *bench) step() todo {
	b.measure(time.Now())
	b.mu.Lock()
	t := b.plan(time.Now())
	b.mu.Unlock()
	b.act(b.t.Context(), t)
	return t
}

// settle steps until nothing is left to do at this moment. It includes a scan of the files.
func (b *bench) idle() {
	b.t.Helper()
	b.scans.at = time.Time{}
	for range 1000 {
		t := b.step()
		if !t.work() && len(t.fetch) == 0 && t.order < 0 && t.more < 0 && len(b.pending) == 0 {
			return
		}
		for len(b.pending) > 0 {
			b.arrive(0)
		}
	}
	b.t.Fatal("never comes to rest")
}

func (b *bench) advance(d time.Duration) {
	time.Sleep(d)
	b.idle()
}

// lease is Lease without a wait.
func (b *bench) lease(reader string) (Lease, error) {
	return b.Lease(context.Background(), LeaseRequest{Reader: reader, Bound: true, Group: b.group(reader)})
}

// group returns the group of a reader, from the last letter of its name: a is in group 0.
func (b *bench) group(reader string) *int {
	if b.cfg.Groups < 2 {
		return nil
	}
	group := int(reader[len(reader)-1]-'a') % b.cfg.Groups
	return &group
}

func (b *bench) must(l Lease, err error) Lease {
	b.t.Helper()
	if err != nil {
		b.t.Fatalf("got %v, want a lease", err)
	}
	return l
}

func (b *bench) ok(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) ls(dir string) []string {
	b.t.Helper()
	entries, err := os.ReadDir(filepath.Join(b.dir, dir))
	if err != nil {
		b.t.Fatal(err)
	}
	names := []string{}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func (b *bench) want(dir string, names ...string) {
	b.t.Helper()
	if got := b.ls(dir); !slices.Equal(got, names) {
		b.t.Errorf("%s holds %q, want %q", dir, got, names)
	}
}

func isEnd(err error, epoch int) bool {
	var end *EndError
	return errors.As(err, &end) && end.Epoch == epoch
}

func isWait(err error, cause Cause) bool {
	var wait *WaitError
	return errors.As(err, &wait) && wait.Cause == cause
}
