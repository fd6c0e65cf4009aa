package process

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stager-dev/stager/backends/conformance/live"
	"golang.org/x/sys/unix"
)

// asInit is the environment variable with the script that this binary runs instead of tests.
const asInit = "STAGER_PROCESS_TEST_SCRIPT"

func TestMain(m *testing.M) {
	script := os.Getenv(asInit)
	if script == "" {
		os.Exit(m.Run())
	}
	if os.Getpid() == 1 { // in new namespaces, where /proc is not mounted yet
		if unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "") != nil || unix.Mount("proc", "/proc", "proc", 0, "") != nil {
			os.Exit(98)
		}
	}
	if unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != nil {
		os.Exit(97)
	}
	code, err := Run([]string{"sh", "-c", script}, os.Environ(), nil)
	if err != nil {
		os.Exit(96)
	}
	os.Exit(code)
}

// orphaned exits with 0 if an orphan that it leaves is reaped, and with 9 if it is still a zombie
// after a minute.
const orphaned = `
orphan=$(sh -c '(exec sh -c "echo \$\$" ) & wait; (exec sh -c "echo \$\$; exec >&-; exit 3" &) ' | tail -n 1)
for i in $(seq 600); do
	[ -d /proc/$orphan ] || exit 0
	sleep 0.1
done
exit 9`

// "run --" as the first process of a container reaped no orphans: each stayed a zombie until the
// container's limit of processes was reached.
func TestRunReapsOrphans(t *testing.T) {
	for name, attr := range map[string]*syscall.SysProcAttr{
		"as subreaper": {},
		"as PID 1":     {Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if attr.Cloneflags != 0 && os.Geteuid() != 0 {
				live.Require(t, "root", errors.New("only root can start the first process of a PID namespace"))
			}
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), asInit+"="+orphaned)
			cmd.SysProcAttr = attr
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Errorf("got %v %s, want the orphan reaped", err, out)
			}
		})
	}
}

// Commands of one process do not receive each other's exit code.
func TestRunReturnsTheCodeOfItsOwnCommand(t *testing.T) {
	var runs sync.WaitGroup
	for i := range 20 {
		runs.Go(func() {
			code, err := Run([]string{"sh", "-c", "exit " + string(rune('0'+i%10))}, nil, nil)
			if err != nil || code != i%10 {
				t.Errorf("got %d (%v), want %d", code, err, i%10)
			}
		})
	}
	runs.Wait()
	if code, err := Run([]string{"sh", "-c", "kill -TERM $$"}, nil, nil); err != nil || code != 128+15 {
		t.Errorf("got %d (%v), want 143 of a command that SIGTERM ended", code, err)
	}
	if _, err := Run([]string{"/no/such/command"}, nil, nil); err == nil || !strings.Contains(err.Error(), "/no/such/command") {
		t.Errorf("got %v, want an error that names the command", err)
	}
}

// Signals reach the command.
func TestRunPassesSignalsOn(t *testing.T) {
	signals := make(chan os.Signal, 1)
	signals <- syscall.SIGUSR1
	// The signal may arrive before the trap is set: then it kills the shell.
	code, err := Run([]string{"sh", "-c", "trap 'exit 5' USR1; while :; do sleep 0.01; done"}, nil, signals)
	if err != nil || code != 5 && code != 128+int(syscall.SIGUSR1) {
		t.Errorf("got %d (%v), want 5 by the trap, or the signal's own 138", code, err)
	}
}
