package wrap

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// deaf forwards signals to a command, and kills a command that ignores SIGTERM once all its outputs
// are saved.
type deaf struct {
	cfg     Config
	ignores func(pid int) bool
	signals chan os.Signal // for the command
	pid     chan int       // of the command, sent once
}

// watch runs until ctx ends.
func (d *deaf) watch(ctx context.Context) {
	tick := time.NewTicker(pause)
	defer tick.Stop()
	pid, ending := 0, false
	for {
		var send os.Signal
		select {
		case <-ctx.Done():
			return
		case pid = <-d.pid:
			continue
		case send = <-d.cfg.Signals:
			ending = ending || send == syscall.SIGTERM
		case <-tick.C:
			if !ending || pid == 0 || !d.ignores(pid) || !d.cfg.Ended(ctx) {
				continue
			}
			d.cfg.Log.Warn("command ignores SIGTERM and its outputs are saved, killing it before the grace period ends")
			send, ending = os.Kill, false
		}
		select {
		case d.signals <- send:
		case <-ctx.Done():
			return
		}
	}
}

// ignoresTerm reports whether a process ignores SIGTERM.
func ignoresTerm(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return false
	}
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		if mask, ok := strings.CutPrefix(lines.Text(), "SigIgn:"); ok {
			ignored, err := strconv.ParseUint(strings.TrimSpace(mask), 16, 64)
			return err == nil && ignored&(1<<(syscall.SIGTERM-1)) != 0
		}
	}
	return false
}
