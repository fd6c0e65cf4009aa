package stager

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/stager/api"
	"github.com/stager-dev/stager/window"
)

func TestSidecar(t *testing.T) {
	j := newJob(t, " inputs:\n"+prefetchInput+windowInput+" outputs:\n"+ckptOutput)
	j.start()
	j.ready()
	if text, err := os.ReadFile(filepath.Join(j.dir, "words/vocab.txt")); string(text) != "a b c" || err != nil {
		t.Errorf("the prefetched file is %q, %v", text, err)
	}
	if code, body := j.call("GET", "/readyz", ""); code != 200 {
		t.Errorf("readyz: %d %s", code, body)
	}
	if code, body := j.call("POST", "/v1/inputs/words/lease", ""); code != 500 || !strings.Contains(body, "prefetch") {
		t.Errorf("a lease of a prefetch: %d %s", code, body)
	}
	for i := range 4 {
		l := j.lease()
		if text, err := os.ReadFile(l.Path); l.Pos != i || string(text) != string(rune('0'+i)) || err != nil {
			t.Errorf("shard %d: %+v holds %q, %v", i, l, text, err)
		}
		j.ack(l)
	}
	if l := j.lease(); !l.End {
		t.Errorf("behind the last shard: %+v, want the end", l)
	}
	j.write("out/step-5/model.pt", "weights")
	if err := j.finish(); err != nil {
		t.Fatal(err)
	}
	if !j.saved(5) {
		t.Errorf("step 5 is not saved; there are %q", j.mem.Keys())
	}
	if _, err := os.Stat(j.socket); err == nil {
		t.Error("the socket is left")
	}
}

// A restarted process continues where the previous one was.
func TestRestart(t *testing.T) {
	j := newJob(t, " inputs:\n"+windowInput)
	for i := range 4 {
		j.start()
		j.ready()
		l := j.lease()
		if l.Pos != i {
			t.Errorf("start %d: position %d", i, l.Pos)
		}
		j.ack(l)
		if err := j.finish(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestCommand(t *testing.T) {
	for script, want := range map[string]int{"exit 0": 0, "exit 3": 3, "kill -9 $$": 137, "kill -TERM $$": 143} {
		j := newJob(t, " inputs:\n"+windowInput+prefetchInput)
		j.child = sh(`test "$(cat "$STAGER_INPUT_WORDS/vocab.txt")" = "a b c" && test -S "$STAGER_SOCKET" || exit 99; ` + script)
		j.start()
		err := j.end()
		var child *ChildError
		if got := codeOf(err); got != want || want != 0 && !errors.As(err, &child) {
			t.Errorf("%s: got %v, want code %d", script, err, want)
		}
	}
}

func TestCommandThatCannotStart(t *testing.T) {
	for command, want := range map[string]error{"/no/such": fs.ErrNotExist, "/etc/passwd": fs.ErrPermission, "no-such-command": exec.ErrNotFound} {
		j := newJob(t, " inputs:\n"+prefetchInput)
		j.child = &Child{Command: []string{command}}
		j.start()
		err := j.end()
		var start *StartError
		if !errors.As(err, &start) || !errors.Is(err, want) {
			t.Errorf("%s: got %v, want a StartError with the cause %v", command, err, want)
		}
	}
}

func TestSignalsReachTheCommand(t *testing.T) {
	j := newJob(t, " inputs:\n"+prefetchInput)
	up := filepath.Join(j.dir, "up")
	j.child = sh("trap 'exit 7' TERM; : > " + up + "; while :; do sleep 0.01; done")
	j.start()
	j.await("the command", func() bool { _, err := os.Stat(up); return err == nil })
	j.term()
	j.Signal(syscall.SIGTERM)
	if err := j.end(); codeOf(err) != 7 {
		t.Errorf("got %v, want the code of the command's handler", err)
	}
	j.Signal(syscall.SIGTERM) // it has exited: nothing happens
}

// The command's output is saved after it exits. If that fails, the job fails, unless the output is
// optional.
func TestOutputsOfACommand(t *testing.T) {
	for _, tt := range []struct {
		name, output, script string
		want                 func(error) bool
		saved                bool
	}{
		{"saved", ckptOutput, "exit 0", func(err error) bool { return err == nil }, true},
		{"saved though it failed", ckptOutput, "exit 4", func(err error) bool { return codeOf(err) == 4 }, true},
		{"refused", strings.ReplaceAll(ckptOutput, "mem:", "full:"), "exit 0", isUnsaved, false},
		{"refused and it failed", strings.ReplaceAll(ckptOutput, "mem:", "full:"), "exit 4", func(err error) bool { return codeOf(err) == 4 }, false},
		{"not required", strings.ReplaceAll(strings.ReplaceAll(ckptOutput, "mem:", "full:"), "quietPeriod:", "required: false, quietPeriod:"), "exit 0", func(err error) bool { return err == nil }, false},
		{"too slow", strings.ReplaceAll(ckptOutput, "mem:", "slow:"), "exit 0", isUnsaved, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			output := tt.output
			if !tt.saved { // what can be saved has the time that a busy machine takes
				output = strings.ReplaceAll(output, "deadline: 1m", "deadline: 500ms")
			}
			j := newJob(t, " inputs:\n"+prefetchInput+" outputs:\n"+output)
			j.child = sh(`mkdir "$STAGER_OUTPUT_CKPT/step-3" && echo w > "$STAGER_OUTPUT_CKPT/step-3/m" && ` + tt.script)
			j.start()
			err := j.end()
			if !tt.want(err) || j.saved(3) != tt.saved {
				t.Errorf("got %v, saved: %v", err, j.saved(3))
			}
			if err != nil && strings.Count(err.Error(), "output ckpt") > 1 {
				t.Errorf("it is said twice: %v", err)
			}
		})
	}
}

func isUnsaved(err error) bool {
	var unsaved *UnsavedError
	return errors.As(err, &unsaved) && strings.Contains(err.Error(), "step 3")
}

// A drain may begin while the command runs: existing files are saved then, and later ones after it
// exits.
func TestDrainWhileTheCommandRuns(t *testing.T) {
	j := newJob(t, " inputs:\n"+windowInput+" outputs:\n"+strings.ReplaceAll(ckptOutput, "quietPeriod:", "when: [exit], quietPeriod:"))
	stop := filepath.Join(j.dir, "stop")
	j.child = sh("while ! test -e " + stop + "; do sleep 0.01; done")
	j.start()
	j.ready()
	j.write("out/step-1/m", "1")
	if code, body := j.call("POST", "/v1/drain", ""); code != 202 {
		t.Fatalf("drain: %d %s", code, body)
	}
	j.phase(api.Drained)
	if !j.saved(1) {
		t.Error("step 1 is not saved before the command's end")
	}
	j.write("out/step-2/m", "2")
	j.write("stop", "")
	if err := j.end(); err != nil || !j.saved(2) {
		t.Errorf("got %v, step 2 saved: %v", err, j.saved(2))
	}
}

// A trainer in another container exits, and its container is held until save responds. The inputs
// are still fed, because the trainer may be restarted in place, and then exits again.
func TestSaveForATrainerInAnotherContainer(t *testing.T) {
	j := newJob(t, " inputs:\n"+windowInput+" outputs:\n"+strings.ReplaceAll(ckptOutput, "quietPeriod:", "when: [success], quietPeriod:"))
	j.start()
	j.ready()
	for step := 1; step <= 2; step++ {
		j.write(fmt.Sprintf("out/step-%d/m", step), "w")
		if code, body := j.call("POST", "/v1/save?code=0", ""); code != 200 || !j.saved(step) {
			t.Errorf("got %d %s, step %d saved: %v, want 200 and true", code, body, step, j.saved(step))
		}
		j.ack(j.lease())
	}
	if got := j.Snapshot().Phase; got != api.Running {
		t.Errorf("got the phase %s, want %s", got, api.Running)
	}
	// At its end the sidecar knows how the trainer exited.
	j.write("out/step-3/m", "w")
	if err := j.finish(); err != nil || !j.saved(3) {
		t.Errorf("got %v, step 3 saved: %v, want nil and true", err, j.saved(3))
	}
}

// If required outputs cannot be saved, save reports this and names them.
func TestSaveThatFails(t *testing.T) {
	j := newJob(t, " outputs:\n"+strings.ReplaceAll(ckptOutput, "mem://b/out", "full://b/out"))
	j.start()
	j.ready()
	j.write("out/step-3/m", "1")
	if code, body := j.call("POST", "/v1/save?code=0", ""); code != 500 || !strings.Contains(body, "step 3") {
		t.Errorf("got %d %s, want 500 and step 3", code, body)
	}
	if err := j.finish(); !isUnsaved(err) {
		t.Errorf("got %v, want an UnsavedError", err)
	}
}

// The socket is for its owner and group, or for every user if configured.
func TestSocketForAnyUser(t *testing.T) {
	for any, want := range map[bool]os.FileMode{false: 0o660, true: 0o666} {
		j := newJob(t, " inputs:\n"+prefetchInput)
		j.anyUser = any
		j.start()
		j.ready()
		if info, err := os.Stat(j.socket); err != nil || info.Mode().Perm() != want {
			t.Errorf("AnyUser %v: got %v, %v, want %v", any, info.Mode(), err, want)
		}
		if err := j.finish(); err != nil {
			t.Error(err)
		}
	}
}

func TestDrainThenSIGTERM(t *testing.T) {
	j := newJob(t, " inputs:\n"+windowInput+" outputs:\n"+ckptOutput)
	j.start()
	j.ready()
	held := j.lease()
	j.write("out/step-1/m", "1")
	if code, body := j.call("POST", "/v1/drain?deadline=10s", ""); code != 202 {
		t.Fatalf("drain: %d %s", code, body)
	}
	j.phase(api.Drained)
	if !j.saved(1) {
		t.Error("step 1 is not saved")
	}
	j.ack(held)
	if code, _ := j.call("POST", "/v1/inputs/train/lease?wait=1ms", ""); code != 204 {
		t.Errorf("a lease after the drain: %d, want 204", code)
	}
	j.write("out/step-2/m", "2")
	if err := j.finish(); err != nil || !j.saved(2) {
		t.Errorf("got %v, step 2 saved: %v", err, j.saved(2))
	}
}

// A deadline is kept, and what could not be saved is reported.
func TestDrainDeadline(t *testing.T) {
	j := newJob(t, " inputs:\n"+windowInput+" outputs:\n"+strings.ReplaceAll(ckptOutput, "mem://b/out", "slow://b/out"))
	j.start()
	j.ready()
	j.write("out/step-3/m", "1")
	began := time.Now()
	j.Drain(2 * time.Second) // is not over when the daemon begins to save, however busy the machine is
	err := j.finish()
	if took := time.Since(began); !isUnsaved(err) || took > 45*time.Second {
		t.Errorf("after %v got %v", took, err)
	}
}

func TestOptionalInput(t *testing.T) {
	optional := strings.ReplaceAll(strings.ReplaceAll(windowInput, "b/train/", "b/nothing/"), "mode:", "optional: true, mode:")
	j := newJob(t, " inputs:\n"+prefetchInput+optional)
	j.start()
	j.ready()
	if code, body := j.call("POST", "/v1/inputs/train/lease", ""); code != 404 || !strings.Contains(body, "optional") {
		t.Errorf("a lease of it: %d %s, want 404", code, body)
	}
	if code, _ := j.call("POST", "/v1/leases/x/ack", ""); code != 410 {
		t.Errorf("an acknowledgement of nothing: %d, want 410", code)
	}
	if err := j.finish(); err != nil {
		t.Error(err)
	}
}

// An input that fails before it is ready ends the job, and the command never runs.
func TestInputThatFails(t *testing.T) {
	for name, input := range map[string]string{
		"prefetch": strings.ReplaceAll(prefetchInput, "b/words/", "b/nothing/"),
		"window":   strings.ReplaceAll(windowInput, "b/train/", "b/nothing/"),
		"beside a store that is dead": strings.ReplaceAll(prefetchInput, "b/words/", "b/nothing/") +
			strings.ReplaceAll(windowInput, "mem:", "dead:"),
	} {
		t.Run(name, func(t *testing.T) {
			j := newJob(t, " inputs:\n"+input+" outputs:\n"+ckptOutput)
			ran := filepath.Join(j.dir, "ran")
			j.child = sh(": > " + ran)
			j.start()
			err := j.end()
			if backends.KindOf(err) != backends.NotExist || strings.Count(err.Error(), "no object here") != 1 {
				t.Errorf("got %v, want what is missing, once", err)
			}
			if _, err := os.Stat(ran); err == nil {
				t.Error("the command ran")
			}
		})
	}
}

func TestBudgetThatCannotWork(t *testing.T) {
	j := newJob(t, " inputs:\n"+windowInput)
	j.mem.Generate("train/huge.tar", 2<<20)
	j.start()
	var budget *window.BudgetError
	if err := j.end(); !errors.As(err, &budget) {
		t.Errorf("got %v, want a BudgetError", err)
	}
}

// Run returns promptly whatever it waits for, and a command that never ran is no success.
func TestEndBeforeReady(t *testing.T) {
	spec := " inputs:\n" + strings.ReplaceAll(windowInput, "mem:", "dead:") + " outputs:\n" + ckptOutput
	for name, child := range map[string]*Child{"sidecar": nil, "command": sh("exit 0")} {
		for how, end := range map[string]func(*job){
			"SIGTERM":          func(j *job) { j.term() },
			"drain":            func(j *job) { j.Drain(0); j.term() },
			"once outputs are": func(j *job) { j.await("outputs", func() bool { return len(j.Snapshot().Outputs) == 1 }); j.term() },
		} {
			t.Run(name+" "+how, func(t *testing.T) {
				j := newJob(t, spec)
				j.child = child
				j.write("out/step-3/m", "from the run before")
				j.start()
				began := time.Now()
				end(j)
				err := j.end()
				var never *NotStartedError
				if child == nil && err != nil || child != nil && !errors.As(err, &never) {
					t.Errorf("got %v", err)
				}
				if took := time.Since(began); took > 45*time.Second {
					t.Errorf("it took %v", took)
				}
				if !j.saved(3) {
					t.Error("what was there is not saved")
				}
			})
		}
	}
}

// A daemon was ready before its outputs were open, and a commit right after that got 503.
func TestDaemonIsNotReadyBeforeOutputsAreOpen(t *testing.T) {
	j := newJob(t, " outputs:\n"+strings.ReplaceAll(ckptOutput, "mem:", "gated:"))
	j.write("out/step-1/m", "of step 1")
	j.start()
	j.await("the socket accepts connections", func() bool { // which is later than that its file exists
		conn, err := net.Dial("unix", j.socket)
		if err == nil {
			conn.Close()
		}
		return err == nil
	})
	for range 2 {
		if code, body := j.call("GET", "/readyz", ""); code != 503 || !strings.Contains(body, "outputs are being opened: ckpt") {
			t.Errorf("readyz before the output is open: got %d %s, want 503 and that ckpt is being opened", code, body)
		}
	}
	close(j.gate)
	j.await("readyz answers 200", func() bool { code, _ := j.call("GET", "/readyz", ""); return code == 200 })
	if code, body := j.call("POST", "/v1/outputs/ckpt/commit", `{"path": "step-1"}`); code != 202 {
		t.Errorf("a commit once the daemon is ready: got %d %s, want 202", code, body)
	}
	if err := j.finish(); err != nil {
		t.Error(err)
	}
}

// The window has room for one shard. If a shard fails in the middle, its readers get the error; the
// others continue.
func TestWindowThatFails(t *testing.T) {
	j := newJob(t, " inputs:\n"+strings.ReplaceAll(windowInput, "1Mi", "135Ki")+" outputs:\n"+ckptOutput)
	j.start()
	j.ready()
	one := j.lease()
	j.mem.Put("train/s1.tar", []byte("x")) // different contents of the same size
	j.ack(one)
	j.await("the failure", func() bool { return j.Snapshot().Inputs[0].Error != "" })
	if code, body := j.call("POST", "/v1/inputs/train/lease", ""); code != 500 || !strings.Contains(body, "s1.tar") {
		t.Errorf("a lease: %d %s, want 500 with the name", code, body)
	}
	if code, _ := j.call("GET", "/healthz", ""); code != 200 {
		t.Error("it is not alive")
	}
	j.write("out/step-3/m", "w")
	err := j.finish()
	var bad *window.BadItemError
	if !errors.As(err, &bad) || bad.Pos != 1 || strings.Count(err.Error(), "cannot be delivered") != 1 {
		t.Errorf("got %v, want a BadItemError of position 1, once", err)
	}
	if !j.saved(3) {
		t.Error("the output is not saved")
	}
}

func TestSocket(t *testing.T) {
	j := newJob(t, " inputs:\n"+prefetchInput)
	j.start()
	j.ready()
	if info, err := os.Stat(j.socket); err != nil || info.Mode().Perm() != socketMode {
		t.Errorf("the socket is %v, %v", info.Mode(), err)
	}
	var taken *SocketInUseError
	if _, err := listen(j.socket); !errors.As(err, &taken) {
		t.Errorf("got %v, want a SocketInUseError", err)
	}
	if code, _ := j.call("GET", "/healthz", ""); code != 200 {
		t.Error("the first does not answer any more")
	}
	if err := j.finish(); err != nil {
		t.Fatal(err)
	}

	// The socket of a killed daemon is replaced.
	stale, err := net.Listen("unix", j.socket)
	if err != nil {
		t.Fatal(err)
	}
	stale.(*net.UnixListener).SetUnlinkOnClose(false)
	stale.Close()
	j.start()
	j.ready()
	if err := j.finish(); err != nil {
		t.Fatal(err)
	}

	// Any other file is not touched.
	other, err := net.Listen("unix", j.socket)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	file := filepath.Join(j.dir, "file")
	j.write("file", "precious")
	var refused *SocketError
	for _, path := range []string{j.socket, file, j.dir, filepath.Join(j.dir, strings.Repeat("x", longestSocketPath)), file + "/s.sock"} {
		if _, err := listen(path); !errors.As(err, &refused) || !strings.Contains(err.Error(), "--socket") {
			t.Errorf("%s: got %v, want a SocketError", path, err)
		}
	}
	if text, err := os.ReadFile(file); string(text) != "precious" || err != nil {
		t.Errorf("the file at the socket's path is %q, %v", text, err)
	}
	if _, err := os.Stat(j.socket); err != nil {
		t.Error("another program's socket is gone")
	}
}

func TestPortThatIsTaken(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for address, taken := range map[string]bool{l.Addr().String(): true, "nonsense": false} {
		j := newJob(t, " inputs:\n"+prefetchInput)
		d := New(Config{Plan: mustParse(j), Registry: j.registry(), Socket: j.socket, Listen: address})
		var port *PortError
		if err := d.Run(t.Context()); !errors.As(err, &port) || errors.Is(err, syscall.EADDRINUSE) != taken {
			t.Errorf("%s: got %v, want a PortError, because the port is in use: %t", address, err, taken)
		}
		if _, err := os.Stat(j.socket); err == nil {
			t.Error("the socket is left")
		}
	}
	noGoroutines(t)
}

// A daemon that has stopped fetching is not ready; otherwise a service would still send it readers.
func TestDaemonIsNotReadyAfterDrain(t *testing.T) {
	j := newJob(t, " inputs:\n"+windowInput+" outputs:\n"+ckptOutput)
	j.start()
	j.ready()
	j.Drain(0)
	j.phase(api.Drained)
	if code, body := j.call("GET", "/readyz", ""); code != 503 || !strings.Contains(body, "drained") {
		t.Errorf("readyz: got %d %s, want 503 and why", code, body)
	}
	if err := j.finish(); err != nil {
		t.Fatal(err)
	}
}
