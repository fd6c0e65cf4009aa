package trial

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stager-dev/stager/backends/conformance/live"
	"github.com/stager-dev/stager/e2e/room"
)

// asNeighbour makes the test binary a neighbour: its value is what it does, as JSON.
const asNeighbour = "STAGER_TRIAL_NEIGHBOUR"

// stagerUser is whom stager runs as, otherUser a neighbour of another uid.
const (
	stagerUser = 20001
	otherUser  = 20002
)

func runNeighbour(settings string) {
	var n Neighbour
	err := json.Unmarshal([]byte(settings), &n)
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(n.Run())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "neighbour:", err)
		os.Exit(1)
	}
}

// A neighbour, of another uid or of stager's own, does its worst in the volumes of a
// window with readers, a prefetch, an output and a restore. Nothing of a secret that only
// stager can read gets out, no file of the neighbour's is changed or removed, stager ends
// when it should, and no wrong byte is reported as right. STAGER_TRIAL=full takes ten
// minutes for each.
func TestHostileNeighbour(t *testing.T) {
	if os.Getuid() != 0 {
		live.Require(t, "root", errors.New("only root can start processes of other users"))
	}
	long, patience := 5*time.Second, hungAfter
	switch {
	case full:
		long = 10 * time.Minute
	case os.Getenv("STAGER_TRIAL") != "neighbour":
		live.Require(t, "trial", errors.New("the hostile neighbour comes with STAGER_TRIAL=neighbour, or full"))
	default:
		patience = 10 * time.Second
	}
	if d, err := time.ParseDuration(os.Getenv("STAGER_TRIAL_FOR")); err == nil {
		long = d
	}
	binary := build(t)
	for name, uid := range map[string]int{"other uid": otherUser, "same uid": stagerUser} {
		t.Run(name, func(t *testing.T) {
			if !full {
				t.Parallel()
			}
			h := newHouse(t, binary)
			h.patience = patience
			h.befriend(t, uid, long)
			h.afterwards(t)
			h.judge(t)
		})
	}
}

// house is where stager and its neighbour live.
type house struct {
	dir, secret, binary string
	shards              map[string]string // SHA-256 by name
	token               []byte            // what the secret contains
	patience            time.Duration     // for an epoch to end when the neighbour has gone
	filled              int64             // bytes that fill the volumes; 0: they are not to be filled

	stager  *process
	started int64       // bytes of its log when it started
	own     *os.File    // what stager logs
	log     *os.File    // what its other commands log, and the neighbour
	exits   map[int]int // stager's exit codes while the neighbour worked
	reasons []string    // of those that are neither 0 nor 75, where something could not be saved

	mu     sync.Mutex // guards all below
	ledger Ledger
	read   int      // bodies that came whole
	epochs int      // that a reader saw the end of
	wrong  []string // what was reported as right and is not
}

// newHouse makes the volumes as Kubernetes does, for every user, and fills the store.
func newHouse(t *testing.T, binary string) *house {
	t.Helper()
	dir, err := os.MkdirTemp("", "house-") // a short path, and every user may enter
	if err != nil {
		t.Fatal(err)
	}
	h := &house{dir: dir, binary: filepath.Join(dir, "stager"), secret: filepath.Join(dir, "secret", "token"), exits: make(map[int]int)}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	h.must(t, os.Chmod(dir, 0o755))
	vol := filepath.Join(dir, "vol")
	h.must(t, os.Mkdir(vol, 0o755))
	if unix.Mount("tmpfs", vol, "tmpfs", 0, "size=192m,mode=755") == nil { // the steps of ten minutes
		h.filled = 192 << 20
		t.Cleanup(func() { _ = unix.Unmount(vol, unix.MNT_DETACH) })
	}
	room.Exempt(filepath.Join(vol, "win")) // the neighbour fills it
	for _, root := range h.roots() {
		h.must(t, os.Mkdir(root, 0))
		h.must(t, os.Chmod(root, 0o777))
	}
	for _, private := range []string{"secret", "store", "src", "new"} {
		h.must(t, os.Mkdir(filepath.Join(dir, private), 0o700))
	}
	h.token = []byte("TOKEN-" + rand.Text() + rand.Text())
	h.must(t, os.WriteFile(h.secret, bytes.Repeat(append(h.token, '\n'), 64), 0o600))
	h.shards, err = PackNoise(filepath.Join(dir, "src"), 40, 64<<10)
	h.must(t, err)
	h.must(t, filepath.WalkDir(dir, func(p string, _ fs.DirEntry, err error) error {
		if err == nil && p != dir && !strings.HasPrefix(p, vol) {
			err = os.Lchown(p, stagerUser, stagerUser)
		}
		return err
	}))
	self, err := os.Executable()
	h.must(t, err)
	for from, to := range map[string]string{binary: h.binary, self: filepath.Join(dir, "neighbour")} { // where every user may run them
		// A process of its own writes them: of a file that this one has open for writing
		// a child of another test would have a copy, and nobody could run it.
		if said, err := exec.Command("install", "-m", "755", from, to).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, said)
		}
	}
	h.log, err = os.Create(filepath.Join(dir, "log"))
	h.must(t, err)
	h.own, err = os.Create(filepath.Join(dir, "log-of-run"))
	h.must(t, err)
	h.must(t, os.WriteFile(filepath.Join(dir, "plan.yaml"), fmt.Appendf(nil, `apiVersion: stager.dev/v1alpha1
kind: StagePlan
metadata: {name: trial}
spec:
  inputs:
  - name: train
    source: file://%[1]s/src/
    path: %[1]s/vol/win
    mode: window
    window: {size: 2Mi, release: lease, minReady: {files: 2}}
    order: {by: shuffle, seed: 17, epochs: 0}
  outputs:
  - {name: ckpt, path: %[1]s/vol/out, destination: "file://%[1]s/store/", quietPeriod: 1s, deadline: 20s, keep: {last: 2}}
`, dir), 0o644))
	return h
}

func (h *house) must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// roots are the volumes.
func (h *house) roots() (roots []string) {
	for _, name := range []string{"win", "model", "out", "back", "run"} {
		roots = append(roots, filepath.Join(h.dir, "vol", name))
	}
	return roots
}

// command runs a program as a user.
func (h *house) command(uid int, program string, args ...string) *exec.Cmd {
	cmd := exec.Command(program, args...)
	cmd.Dir, cmd.Env = h.dir, []string{"PATH=" + os.Getenv("PATH"), "TMPDIR=/tmp"}
	cmd.Stderr = h.log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}}
	return cmd
}

// start is trial.go's.
func (h *house) start(t *testing.T, cmd *exec.Cmd) *process {
	t.Helper()
	p, err := start(cmd)
	h.must(t, err)
	return p
}

func (h *house) startStager(t *testing.T) {
	t.Helper()
	cmd := h.command(stagerUser, h.binary, "run", "-f", "plan.yaml", "--socket", filepath.Join(h.dir, "vol", "run", "s.sock"))
	cmd.Stderr = h.own
	h.started = int64(len(h.said(0)))
	h.stager = h.start(t, cmd)
}

// said is what stager has logged, without the first bytes.
func (h *house) said(from int64) string {
	text, err := os.ReadFile(h.own.Name())
	if err != nil {
		return err.Error()
	}
	return string(text[min(from, int64(len(text))):])
}

// endStager ends it as a pod's end does, and returns its exit code.
func (h *house) endStager(t *testing.T) int {
	t.Helper()
	_ = h.stager.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	code := h.within(t, h.stager, "stager after SIGTERM")
	h.exits[code]++
	if code != 0 && code != 75 && len(h.reasons) < 20 {
		_, why, _ := strings.Cut(h.said(h.started), "\nstager: ")
		h.reasons = append(h.reasons, fmt.Sprintf("%d: %s", code, why[:min(len(why), 300)]))
	}
	return code
}

// within waits for a command; one that does not end within the limit hangs.
func (h *house) within(t *testing.T, p *process, what string) int {
	t.Helper()
	select {
	case <-p.done:
	case <-time.After(hungAfter):
		_ = p.cmd.Process.Signal(syscall.SIGQUIT) // its stacks tell where
		t.Errorf("hung: %s has not ended after %v", what, hungAfter)
		time.AfterFunc(10*time.Second, func() { _ = p.cmd.Process.Kill() })
		<-p.done
	}
	return p.cmd.ProcessState.ExitCode()
}

// again runs a command of stager's until ctx ends.
func (h *house) again(ctx context.Context, t *testing.T, args ...string) {
	for ctx.Err() == nil {
		h.within(t, h.start(t, h.command(stagerUser, h.binary, args...)), strings.Join(args, " "))
	}
}

// befriend lets the neighbour in while everything works.
func (h *house) befriend(t *testing.T, uid int, long time.Duration) {
	t.Helper()
	h.write(t, 1)
	h.startStager(t)
	names := []string{"PREEMPT", "PREEMPT.new", "END", "model.pt", "optim.pt", ".ready", "step-7", "step-9"}
	for name := range h.shards {
		names = append(names, name)
	}
	for pos := range 200 {
		names = append(names, fmt.Sprintf("e0000-%08d", pos), fmt.Sprintf("e%04d.END", pos))
	}
	settings, err := json.Marshal(Neighbour{
		Roots: h.roots(), Secret: h.secret, Names: names, Spare: []string{"s.sock"}, Seed: 24, For: long, Fill: h.filled,
	})
	h.must(t, err)
	cmd := h.command(uid, filepath.Join(h.dir, "neighbour"))
	cmd.Env = append(cmd.Env, asNeighbour+"="+string(settings))
	var did bytes.Buffer
	cmd.Stdout = &did
	there := h.start(t, cmd)

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var work sync.WaitGroup
	for i := range 3 {
		work.Go(func() { h.reader(ctx, fmt.Sprint("r", i)) })
	}
	work.Go(func() {
		for step := 2; ctx.Err() == nil; step++ {
			_ = h.writeStep(step) // the neighbour may be quicker
			time.Sleep(300 * time.Millisecond)
		}
	})
	work.Go(func() { h.again(ctx, t, "prefetch", h.url("src"), filepath.Join(h.dir, "vol", "model")) })
	work.Go(func() {
		h.again(ctx, t, "restore", "--optional", h.url("store"), filepath.Join(h.dir, "vol", "back", "ckpt"))
	})
	work.Go(func() {
		for ctx.Err() == nil {
			h.letGo()
			time.Sleep(200 * time.Millisecond)
		}
	})
	period := max(long/20, 2*time.Second)
	replaced := time.NewTicker(period) // as pods are
	defer replaced.Stop()
	for ending := time.After(long * 9 / 10); ctx.Err() == nil; {
		select {
		case <-h.stager.done:
			time.Sleep(100 * time.Millisecond)
		case <-replaced.C:
		case <-ending: // while the neighbour works
			cancel()
		}
		h.endStager(t)
		if ctx.Err() == nil {
			h.startStager(t)
			replaced.Reset(period) // not before it has begun
		}
	}
	work.Wait()
	h.within(t, there, "the neighbour")
	h.must(t, json.Unmarshal(did.Bytes(), &h.ledger))
	t.Logf("%d bodies, %d ends of epochs; stager ended with %v; the neighbour has %d files and did %v",
		h.read, h.epochs, h.exits, len(h.ledger.Files), h.ledger.Did)
	for _, reason := range h.reasons {
		t.Logf("stager ended with %s", reason)
	}
}

func (h *house) url(dir string) string { return "file://" + filepath.Join(h.dir, dir) + "/" }

// reader takes shards as streams, and checks each that comes whole.
func (h *house) reader(ctx context.Context, id string) {
	client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", filepath.Join(h.dir, "vol", "run", "s.sock"))
	}}}
	defer client.CloseIdleConnections()
	for ctx.Err() == nil {
		if err := h.next(ctx, client, id); err != nil {
			select {
			case <-ctx.Done():
			case <-time.After(20 * time.Millisecond):
			}
		}
	}
}

func (h *house) next(ctx context.Context, client *http.Client, id string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://stager/v1/inputs/train/next?reader="+id, nil)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	body, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close() // read whole
	h.mu.Lock()
	defer h.mu.Unlock()
	name, sum := resp.Header.Get("Stager-Shard"), sha256.Sum256(body)
	switch {
	case bytes.Contains(body, h.token):
		h.wrong = append(h.wrong, fmt.Sprintf("secret: the body of shard %q has the secret", name))
	case err != nil:
		return err
	case resp.StatusCode != http.StatusOK:
		return errors.New(resp.Status)
	case resp.Header.Get("Stager-End") != "":
		h.epochs++
	case h.shards[name] != hex.EncodeToString(sum[:]):
		h.wrong = append(h.wrong, fmt.Sprintf("wrong bytes: %d came as shard %q, whole", len(body), name))
	default:
		h.read++
	}
	return nil
}

// writeStep writes a checkpoint as a trainer of stager's uid does, and follows no links.
func (h *house) writeStep(step int) error {
	root, err := os.OpenRoot(filepath.Join(h.dir, "vol", "out"))
	if err != nil {
		return err
	}
	defer root.Close() // each file was closed
	dir := fmt.Sprint("step-", step)
	if err := root.Mkdir(dir, 0o777); err != nil {
		return err
	}
	for _, name := range []string{"model.pt", "optim.pt", ".ready"} {
		file, err := root.OpenFile(dir+"/"+name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
		if err != nil {
			return err
		}
		_, err = file.Write(h.stepFile(step, name))
		if err = errors.Join(err, file.Chown(stagerUser, stagerUser), file.Close()); err != nil {
			return err
		}
	}
	return root.Lchown(dir, stagerUser, stagerUser)
}

func (h *house) write(t *testing.T, step int) {
	t.Helper()
	h.must(t, h.writeStep(step))
}

func (h *house) stepFile(step int, name string) []byte {
	if name == ".ready" {
		return nil
	}
	return content(step, name, 16<<10)["model.pt"]
}
