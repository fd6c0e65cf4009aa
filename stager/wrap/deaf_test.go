package wrap

import (
	"context"
	"os"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// A trainer whose shell ignores SIGTERM blocked its pod, and so the drain of its node, for a grace
// period of ten minutes, long after its checkpoint was safe.
func TestDeafCommandsAreKilledWhenAllIsSaved(t *testing.T) {
	for _, tt := range []struct {
		name    string
		ignores bool
		signals []os.Signal
		saved   time.Duration // the time until the sidecar has saved everything; 0: never
		want    []os.Signal
	}{
		{"it ignores SIGTERM", true, []os.Signal{syscall.SIGTERM}, time.Minute, []os.Signal{syscall.SIGTERM, os.Kill}},
		{"it handles SIGTERM", false, []os.Signal{syscall.SIGTERM}, time.Minute, []os.Signal{syscall.SIGTERM}},
		{"outputs are not saved", true, []os.Signal{syscall.SIGTERM}, 0, []os.Signal{syscall.SIGTERM}},
		{"nobody asked for the end", true, []os.Signal{syscall.SIGUSR1}, time.Minute, []os.Signal{syscall.SIGUSR1}},
		{"no signal", true, nil, time.Minute, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				signals := make(chan os.Signal, len(tt.signals))
				ended := func(context.Context) bool { return tt.saved > 0 && time.Since(began) >= tt.saved }
				d := &deaf{
					cfg: Config{Signals: signals, Ended: ended, Log: silent}, ignores: func(pid int) bool { return pid == 7 && tt.ignores },
					signals: make(chan os.Signal), pid: make(chan int, 1),
				}
				d.pid <- 7
				for _, s := range tt.signals {
					signals <- s
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				go d.watch(ctx)
				var got []os.Signal
				for ctx.Err() == nil {
					select {
					case s := <-d.signals:
						got = append(got, s)
						if s == os.Kill && time.Since(began) < tt.saved {
							t.Errorf("killed after %s, want not before %s", time.Since(began), tt.saved)
						}
					case <-ctx.Done():
					}
				}
				if !slices.Equal(got, tt.want) {
					t.Errorf("got the signals %v, want %v", got, tt.want)
				}
				synctest.Wait()
			})
		})
	}
}

// The kernel reports which signals a process ignores; a child inherits them.
func TestIgnoresTerm(t *testing.T) {
	for script, want := range map[string]bool{"read x": false, "trap '' TERM; echo; read x": true, "trap : TERM; echo; read x": false} {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		said, says, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		p, err := os.StartProcess("/bin/sh", []string{"sh", "-c", "echo; " + script}, &os.ProcAttr{Files: []*os.File{r, says, os.Stderr}})
		if err != nil {
			t.Fatal(err)
		}
		lines := 1
		if script != "read x" {
			lines = 2
		}
		for range lines { // written after the trap is set
			if _, err := said.Read(make([]byte, 1)); err != nil {
				t.Fatal(err)
			}
		}
		if got := ignoresTerm(p.Pid); got != want {
			t.Errorf("%q: got %v, want %v", script, got, want)
		}
		_ = w.Close() // which ends it
		if _, err := p.Wait(); err != nil {
			t.Error(err)
		}
		_, _, _ = r.Close(), said.Close(), says.Close()
	}
	if ignoresTerm(-1) {
		t.Error("got true of no process, want false")
	}
}
