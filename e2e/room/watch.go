package room

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"text/tabwriter"
	"time"
)

const (
	// every is the pause between two samples of a window.
	every = 20 * time.Millisecond
	// mark is in the environment of what the tests start: the id of their process.
	mark = "STAGER_TEST_ROOM_OF"
	// Table names a file to which the table of windows is appended.
	Table = "STAGER_TEST_ROOM"
)

// watch is what Watch has found so far.
type watch struct {
	known map[int]kind // of processes that are there
	work  sync.WaitGroup
	stop  func()

	mu   sync.Mutex // guards all below
	seen map[string]*seen
}

// kind says what a process is.
type kind int

const (
	foreign kind = iota // not of these tests
	ours                // of these tests, and may become a daemon
	daemon              // being watched
)

// seen is a directory that was a window's.
type seen struct {
	dir, disk   string
	limit, peak int64
	looks, runs int
}

// Run runs the tests of a package and returns the exit code. Meanwhile it watches the windows of every
// "stager run" that the tests start. A window that took more than its size makes the code 1. A window
// with several sizes, one after the other, may take the largest.
func Run(m interface{ Run() int }) (code int) {
	w := start()
	code = m.Run()
	w.stop()
	if err := w.judge(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	return code
}

// exempt are directories that others fill.
var exempt sync.Map

// Exempt has a directory not watched, because others fill it.
func Exempt(dir string) { exempt.Store(dir, true) }

func start() *watch {
	w := &watch{known: make(map[int]kind), seen: make(map[string]*seen)}
	_ = os.Setenv(mark, strconv.Itoa(os.Getpid())) // without it, what has lost its parent is missed
	ctx, cancel := context.WithCancel(context.Background())
	w.work.Go(func() {
		for ctx.Err() == nil {
			w.find(ctx)
			select {
			case <-ctx.Done():
			case <-time.After(every):
			}
		}
	})
	w.stop = func() { cancel(); w.work.Wait() }
	return w
}

// find looks for daemons that are new.
func (w *watch) find(ctx context.Context) {
	names, err := procNames()
	if err != nil {
		return // it is asked for again
	}
	there := make(map[int]kind, len(names))
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil || pid == os.Getpid() {
			continue
		}
		is, known := w.known[pid]
		if !known && w.belongs(pid) {
			is = ours
		}
		if is == ours && w.begin(ctx, pid) {
			is = daemon
		}
		there[pid], w.known[pid] = is, is
	}
	w.known = there
}

func procNames() ([]string, error) {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	defer dir.Close() // opened for reading
	return dir.Readdirnames(-1)
}

// belongs reports whether a process was started by the tests.
func (w *watch) belongs(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, rest, _ := bytes.Cut(stat, []byte(") ")) // the state, and the parent
	var state string
	var parent int
	if _, err := fmt.Sscan(string(rest), &state, &parent); err != nil {
		return false
	}
	if parent == os.Getpid() || w.known[parent] != foreign {
		return true
	}
	return slices.Contains(strungOf(pid, "environ"), mark+"="+strconv.Itoa(os.Getpid()))
}

// strungOf returns the strings of a file of a process that end with 0 each.
func strungOf(pid int, name string) []string {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, name))
	if err != nil || len(text) == 0 {
		return nil
	}
	return strings.Split(strings.TrimSuffix(string(text), "\x00"), "\x00")
}

// begin starts to watch a process if it is a daemon with windows.
func (w *watch) begin(ctx context.Context, pid int) bool {
	args := strungOf(pid, "cmdline")
	if len(args) < 2 || !strings.HasPrefix(filepath.Base(args[0]), "stager") || !slices.Contains(args, "run") {
		return false
	}
	at := fmt.Sprintf("/proc/%d/", pid)
	cwd, err := os.Readlink(at + "cwd")
	if err != nil {
		return false
	}
	root := ""
	mine, err1 := os.Readlink("/proc/self/ns/mnt")
	its, err2 := os.Readlink(at + "ns/mnt")
	if err := errors.Join(err1, err2); err != nil {
		return false
	}
	if mine != its { // where its files are as it sees them
		root = at + "root"
	}
	for _, win := range windows(args, strungOf(pid, "environ"), root, cwd) {
		disk := diskOf(pid, win.dir)
		// Each call of a file system by FUSE is recorded, and may fail. It has no blocks.
		if _, others := exempt.Load(win.dir); !others && !strings.HasPrefix(disk, "fuse") {
			w.work.Go(func() { w.follow(ctx, pid, args, root, disk, win) })
		}
	}
	return true
}

// diskOf returns the type of the file system that a process has at a path.
func diskOf(pid int, path string) (disk string) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", pid))
	if err != nil {
		return ""
	}
	longest := -1
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		i := slices.Index(fields, "-")
		if i < 5 || i+1 >= len(fields) {
			continue
		}
		point := strings.TrimSuffix(fields[4], "/")
		if (path == point || strings.HasPrefix(path, point+"/")) && len(point) >= longest { // the last one hides those before
			disk, longest = fields[i+1], len(point)
		}
	}
	return disk
}

// follow samples a window until its daemon has ended.
func (w *watch) follow(ctx context.Context, pid int, args []string, root, disk string, win window) {
	sampler := &Watcher{Dir: root + win.dir, Root: root, Pid: pid}
	name := win.dir
	if root != "" { // pods have windows of one name
		name = fmt.Sprintf("%s of process %d", win.dir, pid)
	}
	w.mu.Lock()
	s := w.seen[name]
	if s == nil {
		s = &seen{dir: name, disk: disk}
		w.seen[name] = s
	}
	s.limit = max(s.limit, win.size)
	s.runs++
	w.mu.Unlock()
	for ctx.Err() == nil && slices.Equal(strungOf(pid, "cmdline"), args) {
		began := time.Now()
		sampler.sample()
		peak, _ := sampler.Peak()
		w.mu.Lock()
		s.peak = max(s.peak, peak)
		s.looks++
		w.mu.Unlock()
		time.Sleep(max(every, 9*time.Since(began))) // at most a tenth of a core
	}
}

// judge returns an error for each window that took more than its size, and writes the table.
func (w *watch) judge() (errs error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := make([]*seen, 0, len(w.seen))
	for _, s := range w.seen {
		all = append(all, s)
		if s.peak > s.limit {
			errs = errors.Join(errs, fmt.Errorf("room: the window %s, on %s, took %d bytes, and its size is %d", s.dir, s.disk, s.peak, s.limit))
		}
	}
	slices.SortFunc(all, func(a, b *seen) int { return strings.Compare(a.dir, b.dir) })
	path := os.Getenv(Table)
	if path == "" {
		return errs
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return errors.Join(errs, err)
	}
	return errors.Join(errs, print(file, all), file.Close())
}

func print(to io.Writer, all []*seen) error {
	table := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	for _, s := range all {
		fmt.Fprintf(table, "%s\t%s\t%d of\t%d\t%.1f %%\t%d runs\t%d samples\n", s.disk, s.dir, s.peak, s.limit, 100*float64(s.peak)/float64(s.limit), s.runs, s.looks)
	}
	return table.Flush()
}
