package room

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// asFake makes the test binary a daemon that fills the directory that is its value.
const asFake = "STAGER_TEST_ROOM_FAKE"

func TestMain(m *testing.M) {
	dir := os.Getenv(asFake)
	if dir == "" {
		os.Exit(m.Run())
	}
	if err := fake(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// fake has a file, a second name of it, a directory, and a file without a name, until its standard
// input ends: 3 × 64 KiB and a directory or two.
func fake(dir string) error {
	err := errors.Join(
		os.MkdirAll(filepath.Join(dir, "sub"), 0o755),
		os.WriteFile(filepath.Join(dir, "a"), make([]byte, 64<<10), 0o600),
		os.Link(filepath.Join(dir, "a"), filepath.Join(dir, "sub", "a")),
		os.WriteFile(filepath.Join(dir, "sub", "b"), make([]byte, 64<<10), 0o600))
	if err != nil {
		return err
	}
	file, err := os.Create(filepath.Join(dir, "unlinked"))
	if err == nil {
		_, err = file.Write(make([]byte, 64<<10))
	}
	if err = errors.Join(err, os.Remove(file.Name())); err != nil {
		return err
	}
	defer file.Close() // it holds the bytes
	fmt.Println("filled")
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// A window that takes more than its size is found, however its daemon was started, and one that
// does not is not.
func TestWatchFindsWhatTakesTooMuch(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	const fits, tight = 512 << 10, 3 * 64 << 10 // without room for a directory
	for _, tt := range []struct {
		name    string
		size    int
		exempt  bool
		command []string
		bad     bool
	}{
		{name: "fits", size: fits, command: []string{"stager", "run", "-f", "plan.yaml"}},
		{name: "too much", size: tight, command: []string{"stager", "run", "-f", "plan.yaml"}, bad: true},
		{name: "by a shell", size: tight, command: []string{"sh", "-c", `ln -s "$0" stager; ./stager run --file=plan.yaml`, self}, bad: true},
		{name: "by a shell that becomes it", size: tight, command: []string{"sh", "-c", `ln -s "$0" stager; exec ./stager run --file plan.yaml`, self}, bad: true},
		{name: "not looked at", size: tight, exempt: true, command: []string{"stager", "run", "-f", "plan.yaml"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			work := t.TempDir()
			win := filepath.Join(work, "win")
			plan := fmt.Sprintf("apiVersion: stager.dev/v1alpha1\nkind: StagePlan\nmetadata: {name: win}\nspec:\n  inputs:\n"+
				"  - {name: train, source: \"file:///src/\", path: \"%s/{job}\", mode: window, window: {size: %d}}\n", work, tt.size)
			if err := os.WriteFile(filepath.Join(work, "plan.yaml"), []byte(plan), 0o600); err != nil {
				t.Fatal(err)
			}
			if tt.exempt {
				Exempt(win)
			}
			w := start()
			defer w.stop()
			cmd := exec.CommandContext(t.Context(), self)
			if tt.command[0] == "sh" {
				cmd = exec.CommandContext(t.Context(), tt.command[0])
			}
			cmd.Args, cmd.Dir = tt.command, work
			cmd.Env = append(os.Environ(), asFake+"="+win)
			cmd.Stderr = os.Stderr
			stdin, err1 := cmd.StdinPipe()
			stdout, err2 := cmd.StdoutPipe()
			if err := errors.Join(err1, err2, cmd.Start()); err != nil {
				t.Fatal(err)
			}
			if _, err := fmt.Fscan(stdout, new(string)); err != nil {
				t.Fatal(err)
			}
			for all := tt.exempt; !all; time.Sleep(time.Millisecond) { // until a sample began when all was there
				w.mu.Lock()
				s := w.seen[win]
				all = s != nil && s.peak >= tight
				w.mu.Unlock()
			}
			if err := errors.Join(stdin.Close(), cmd.Wait()); err != nil {
				t.Fatal(err)
			}
			w.stop()
			if err := w.judge(); (err != nil) != tt.bad {
				t.Errorf("got the error %v, want one: %v", err, tt.bad)
			}
			if got := w.seen[win] == nil; got != tt.exempt {
				t.Errorf("the window is not watched: %v, want %v", got, tt.exempt)
			}
		})
	}
}

// du counts what the watcher counts.
func TestWatcherCountsAsDu(t *testing.T) {
	dir := t.TempDir()
	if err := errors.Join(os.MkdirAll(filepath.Join(dir, "x", "y"), 0o755), os.WriteFile(filepath.Join(dir, "x", "y", "z"), make([]byte, 100_000), 0o600),
		os.Link(filepath.Join(dir, "x", "y", "z"), filepath.Join(dir, "again")), os.Symlink(os.Args[0], filepath.Join(dir, "link")), unix.Mkfifo(filepath.Join(dir, "fifo"), 0o600)); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), "du", "--block-size=1", "-s", dir).Output()
	if err != nil {
		t.Fatal(err)
	}
	var want int64
	if _, err := fmt.Sscan(string(out), &want); err != nil {
		t.Fatal(err)
	}
	w := &Watcher{Dir: dir, Pid: os.Getpid()}
	w.sample()
	if got, looks := w.Peak(); got != want || looks != 1 {
		t.Errorf("got %d bytes in %d samples, want %d as du counts them in 1", got, looks, want)
	}
}
