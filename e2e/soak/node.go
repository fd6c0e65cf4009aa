package soak

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stager-dev/stager/e2e/room"
	"github.com/stager-dev/stager/e2e/servers"
)

// node is a daemon and its volume.
type node struct {
	*soak
	name   string
	dir    string // its volume
	steady bool   // it is never killed
	window int64  // what may be in use on the volume; 0: any
	volume *room.Volume
	peak   int64
	work   float64 // that all its daemons did
	client *http.Client

	endSampling func()

	mu     sync.Mutex // guards the fields below
	daemon *process
	ended  bool // no other daemon is started
	lives  int
}

// process is a command and how it ended.
type process struct {
	cmd  *exec.Cmd
	done chan struct{}
	err  error // after done
}

func start(cmd *exec.Cmd) (*process, error) {
	p := &process{cmd: cmd, done: make(chan struct{})}
	return p, servers.StartTied(cmd, func(err error) { p.err = err; close(p.done) })
}

func (p *process) kill() {
	_ = p.cmd.Process.Kill() // it may have ended by itself
	<-p.done
}

func (p *process) running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// newNode mounts a volume and samples it.
func (s *soak) newNode(name string) (*node, error) {
	n := &node{soak: s, name: name, dir: filepath.Join(s.Work, name), steady: strings.HasSuffix(name, "steady"), endSampling: func() {}}
	n.client = &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", n.socket())
		},
	}}
	if err := os.MkdirAll(n.dir, 0o755); err != nil {
		return nil, err
	}
	if err := unix.Mount("tmpfs", n.dir, "tmpfs", 0, fmt.Sprintf("size=%d", volumeSize)); err != nil {
		return nil, fmt.Errorf("a volume is mounted, which only root may: %w", err)
	}
	var err error
	if n.volume, err = room.NewVolume(n.dir); err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	var work sync.WaitGroup
	work.Go(func() { n.volume.Run(ctx) })
	n.endSampling = func() { stop(); work.Wait() }
	return n, nil
}

// resize gives the volume another size.
func (n *node) resize(size int64) error {
	return unix.Mount("tmpfs", n.dir, "tmpfs", unix.MS_REMOUNT, fmt.Sprintf("size=%d", size))
}

func (n *node) used() (int64, error) {
	var st unix.Statfs_t
	err := unix.Statfs(n.dir, &st)
	return int64(st.Blocks-st.Bfree) * st.Bsize, err
}

func (n *node) socket() string { return filepath.Join(n.Work, n.name+".sock") }

func (n *node) log() string { return filepath.Join(n.Work, n.name+".log") }

// plan writes the plan of the daemon.
func (n *node) plan(spec string) error {
	return os.WriteFile(filepath.Join(n.Work, n.name+".yaml"), []byte("apiVersion: stager.dev/v1alpha1\nkind: StagePlan\nmetadata: {name: soak}\nspec:\n"+spec), 0o600)
}

// start starts the daemon, unless the run is over.
func (n *node) start() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.ended {
		return nil
	}
	log, err := os.OpenFile(n.log(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close() // the process has its own copy
	cmd := n.command("run", "-f", filepath.Join(n.Work, n.name+".yaml"), "--socket", n.socket(), "--listen", "127.0.0.1:0")
	cmd.Stderr = log
	n.daemon, err = start(cmd)
	n.lives++
	return err
}

// current returns the daemon that runs now.
func (n *node) current() *process {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.daemon
}

// restart kills the daemon and starts another one a moment later.
func (n *node) restart(ctx context.Context) error {
	n.current().kill()
	pause(ctx, n.between(100*time.Millisecond))
	return n.start()
}

// terminate ends the daemon as a pod ends, and returns its exit code.
func (n *node) terminate() int {
	n.mu.Lock()
	n.ended = true
	n.mu.Unlock()
	p := n.current()
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // it may have ended by itself
	select {
	case <-p.done:
	case <-time.After(stalls):
		p.kill()
	}
	return p.cmd.ProcessState.ExitCode()
}

func (n *node) kill() {
	n.mu.Lock()
	n.ended = true
	n.mu.Unlock()
	if p := n.current(); p != nil {
		p.kill()
	}
}

// tail is the end of the log.
func (n *node) tail() string {
	text, _ := os.ReadFile(n.log()) // as much as there is
	return string(text[max(0, len(text)-4096):])
}
