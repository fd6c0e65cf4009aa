package e2e

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"

	"github.com/stager-dev/stager/e2e/servers"
)

// patience is how long until and ended wait.
const patience = 2 * time.Minute

// script is what one script has running.
type script struct {
	started   map[string]*daemon
	proxy     *servers.Proxy
	before    map[servers.Request]int // counts that proxy forget took
	fakes     []*httptest.Server
	mounts    []string
	oss       *servers.OSS
	gs        *servers.GS
	directory string       // a name that no other script uses
	taken     map[any]bool // the shared servers that this script has for itself
}

type scriptKey struct{}

func of(ts *testscript.TestScript) *script { return ts.Value(scriptKey{}).(*script) }

// daemon is a command in the background.
type daemon struct {
	cmd  *exec.Cmd
	log  string        // path of all that it says
	done chan struct{} // closed when it has ended
}

// close ends what the script left running, and logs what that said.
func (s *script) close(log func(...any)) {
	for _, name := range slices.Sorted(maps.Keys(s.started)) {
		d := s.started[name]
		_ = d.cmd.Process.Kill() // it may have ended
		<-d.done
		if text, err := os.ReadFile(d.log); err == nil {
			log(name + " said:\n" + string(text))
		}
	}
	if s.proxy != nil {
		s.proxy.Close()
	}
	for _, f := range s.fakes {
		f.CloseClientConnections()
		f.Close()
	}
	for _, m := range s.mounts {
		if err := unix.Unmount(m, unix.MNT_DETACH); err != nil {
			log("unmount", m, err)
		}
	}
}

func usage(ts *testscript.TestScript, ok bool, text string) {
	if !ok {
		ts.Fatalf("usage: %s", text)
	}
}

func number(ts *testscript.TestScript, text string) int {
	n, err := strconv.Atoi(text)
	ts.Check(err)
	return n
}

// stager CODE args… runs stager, which must end with this exit code. What it said is
// for stdout and stderr.
func stagerCmd(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, !neg && len(args) > 0, "stager CODE args…")
	compareCode(ts, ts.Exec(world.stager, args[1:]...), args)
}

func compareCode(ts *testscript.TestScript, err error, args []string) {
	got := 0
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		got = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if want := number(ts, args[0]); got != want {
		ts.Fatalf("stager %q ended with code %d, want %d", args[1:], got, want)
	}
}

// environ is the script's environment, which testscript shows to its commands only.
func environ(ts *testscript.TestScript) []string {
	ts.Check(ts.Exec("sh", "-c", "env -0 >.env"))
	defer os.Remove(ts.MkAbs(".env"))
	return strings.Split(strings.TrimSuffix(ts.ReadFile(".env"), "\x00"), "\x00")
}

// nobody CODE args… is stager as a user without rights: nobody, when the tests run
// as root, else whoever runs them. What it said is in the file said.
func nobodyCmd(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, !neg && len(args) > 0, "nobody CODE args…")
	cmd := exec.Command(world.stager, args[1:]...)
	cmd.Dir, cmd.Env = ts.MkAbs("."), environ(ts)
	if os.Getuid() == 0 {
		const nobody = 65534
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	}
	text, err := cmd.CombinedOutput()
	ts.Logf("%s", text)
	ts.Check(os.WriteFile(ts.MkAbs("said"), text, 0o644))
	compareCode(ts, err, args)
}

// start NAME args… starts stager in the background; NAME.log is what it says.
func startCmd(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, !neg && len(args) > 1, "start NAME args…")
	log, err := os.OpenFile(ts.MkAbs(args[0]+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	ts.Check(err)
	defer log.Close()
	cmd := exec.Command(world.stager, args[1:]...)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = ts.MkAbs("."), environ(ts), log, log
	ts.Check(cmd.Start())
	d := &daemon{cmd, log.Name(), make(chan struct{})}
	go func() {
		_ = cmd.Wait() // its state tells
		close(d.done)
	}()
	of(ts).started[args[0]] = d
}

// signal NAME TERM sends a signal to what start started.
func signalCmd(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, !neg && len(args) == 2 && of(ts).started[args[0]] != nil, "signal NAME TERM, after start NAME")
	sig := unix.SignalNum("SIG" + args[1])
	if sig == 0 {
		ts.Fatalf("no signal %s is known", args[1])
	}
	ts.Check(of(ts).started[args[0]].cmd.Process.Signal(sig))
}

// ended NAME CODE waits until what start started has ended with this exit code.
func endedCmd(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, !neg && len(args) == 2 && of(ts).started[args[0]] != nil, "ended NAME CODE, after start NAME")
	d := of(ts).started[args[0]]
	select {
	case <-d.done:
	case <-time.After(patience):
		ts.Fatalf("%s has not ended after %v", args[0], patience)
	}
	delete(of(ts).started, args[0])
	text, err := os.ReadFile(d.log)
	ts.Check(err)
	ts.Logf("%s said:\n%s", args[0], text)
	if got, want := d.cmd.ProcessState.ExitCode(), number(ts, args[1]); got != want {
		ts.Fatalf("%s ended with %v, want code %d", args[0], d.cmd.ProcessState, want)
	}
}

// until program args… runs a program again and again, until it succeeds.
func untilCmd(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, !neg && len(args) > 0, "until program args…")
	for env, began := environ(ts), time.Now(); ; time.Sleep(50 * time.Millisecond) {
		cmd := exec.Command(args[0], args[1:]...)
		if args[0] == "stager" {
			cmd.Path, cmd.Err = world.stager, nil
		}
		cmd.Dir, cmd.Env = ts.MkAbs("."), env
		text, err := cmd.CombinedOutput()
		if err == nil {
			return
		}
		if time.Since(began) > patience {
			ts.Fatalf("not within %v: %q: %v\n%s", patience, args, err, text)
		}
	}
}

// shards DIR COUNT BYTES makes tar files of exactly so many bytes, each with one file.
func shardsCmd(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, !neg && len(args) == 3, "shards DIR COUNT BYTES")
	const frame = 512 + 1024 // a header, and the end
	count, size := number(ts, args[1]), number(ts, args[2])
	usage(ts, size%512 == 0 && size >= frame, "shards DIR COUNT BYTES, a multiple of 512 from 1536 on")
	dir := ts.MkAbs(args[0])
	ts.Check(os.MkdirAll(dir, 0o755))
	for i := range count {
		var out bytes.Buffer
		w := tar.NewWriter(&out)
		ts.Check(w.WriteHeader(&tar.Header{Name: fmt.Sprintf("sample-%05d.bin", i), Mode: 0o644, Size: int64(size - frame)}))
		noise := make([]byte, size-frame)
		_, _ = rand.NewChaCha8([32]byte{byte(i), byte(i >> 8)}).Read(noise) // it has no errors
		_, err := w.Write(noise)
		ts.Check(err)
		ts.Check(w.Close())
		ts.Check(os.WriteFile(filepath.Join(dir, fmt.Sprintf("shard-%05d.tar", i)), out.Bytes(), 0o644))
	}
}

// expand FILE… replaces $NAME in files by what it is in the environment.
func expandCmd(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, !neg && len(args) > 0, "expand FILE…")
	for _, file := range args {
		ts.Check(os.WriteFile(ts.MkAbs(file), []byte(os.Expand(ts.ReadFile(file), ts.Getenv)), 0o644))
	}
}

// https lets the script's commands talk to the server with TLS, and trust it.
func httpsCmd(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, !neg && len(args) == 0, "https")
	setenv(ts, world.secure.Env())
}

func setenv(ts *testscript.TestScript, env []string) {
	for _, kv := range env {
		name, value, _ := strings.Cut(kv, "=")
		ts.Setenv(name, value)
	}
}

// proxy puts a proxy between the script's commands and the server.
//
//	proxy down 20s      the server is gone for so long
//	proxy slow 10       the next answers are SlowDown
//	proxy reset 3       the next connections break
//	proxy cut 5 1000    the next answers to GET end after so many bytes
//	proxy forget        counts begin at zero
//	proxy count GET 0   so many requests for objects were made since
func proxyCmd(ts *testscript.TestScript, neg bool, args []string) {
	s := of(ts)
	if s.proxy == nil {
		p, err := servers.NewProxy(world.plain.Endpoint)
		ts.Check(err)
		s.proxy = p
		ts.Setenv("AWS_ENDPOINT_URL_S3", p.URL)
	}
	if len(args) == 0 {
		return
	}
	const orders = "proxy [down TIME | slow N | reset N | cut N BYTES | forget | count METHOD N]"
	usage(ts, !neg && len(args) == map[string]int{"down": 2, "slow": 2, "reset": 2, "cut": 3, "forget": 1, "count": 3}[args[0]], orders)
	switch args[0] {
	case "down":
		d, err := time.ParseDuration(args[1])
		ts.Check(err)
		s.proxy.Down(true)
		time.AfterFunc(d, func() { s.proxy.Down(false) })
	case "slow":
		s.proxy.SlowDown(number(ts, args[1]))
	case "reset":
		s.proxy.Reset(number(ts, args[1]))
	case "cut":
		s.proxy.Cut(number(ts, args[1]), int64(number(ts, args[2])))
	case "forget":
		s.before = s.proxy.Counts()
	case "count":
		got := 0
		var seen []string
		for r, n := range s.proxy.Counts() {
			n -= s.before[r]
			if object := strings.Count(strings.Trim(r.Path, "/"), "/") > 0; object && r.Method == args[1] && n > 0 {
				got += n
				seen = append(seen, r.Path)
			}
		}
		if want := number(ts, args[2]); got != want {
			ts.Fatalf("%d requests %s for objects, want %d: %q", got, args[1], want, seen)
		}
	}
}

// tinydisk DIR BYTES mounts an empty disk of this size.
func tinydiskCmd(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, !neg && len(args) == 2, "tinydisk DIR BYTES")
	dir := ts.MkAbs(args[0])
	ts.Check(os.MkdirAll(dir, 0o755))
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size="+args[1]); err != nil {
		ts.Fatalf("a disk of %s bytes cannot be mounted: %v", args[1], err)
	}
	of(ts).mounts = append(of(ts).mounts, dir)
}

// webCmd serves the script's directory at $WEB.
func webCmd(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, !neg && len(args) == 0, "web")
	server := httptest.NewServer(http.FileServer(http.Dir(ts.MkAbs("."))))
	of(ts).fakes = append(of(ts).fakes, server)
	ts.Setenv("WEB", server.URL)
}
