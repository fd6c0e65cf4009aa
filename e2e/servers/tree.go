package servers

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// freeze stops the process and all that descend from it, also those in groups of their own, until
// thaw. It returns their ids, parents first. A stopped process has no further children, so once all
// that are known have been stopped and nobody new is found, nobody is missing.
func (p *process) freeze() (pids []int, err error) {
	if err := p.signal(syscall.SIGSTOP); err != nil {
		return nil, err
	}
	pids = []int{p.cmd.Process.Pid}
	for {
		found := pids
		for _, pid := range descendants(pids[0]) {
			if !slices.Contains(pids, pid) {
				err = errors.Join(err, signalOne(pid, syscall.SIGSTOP))
				found = append(found, pid)
			}
		}
		if len(found) == len(pids) || err != nil {
			return found, err
		}
		pids = found
	}
}

// thaw ends freeze.
func (p *process) thaw() error {
	err := p.signal(syscall.SIGCONT)
	for _, pid := range descendants(p.cmd.Process.Pid) {
		err = errors.Join(err, signalOne(pid, syscall.SIGCONT))
	}
	return err
}

// kill ends the process and all that descend from it at once, as a power cut does, and returns when
// they are gone: what one of them held open, as a child does that was forked a moment ago and has
// the socket at which its parent listened, nobody holds any longer.
func (p *process) kill() error {
	select {
	case <-p.done: // by itself, and its id may be somebody else's
		return nil
	default:
	}
	pids, err := p.freeze()
	watched := make([]unix.PollFd, 0, len(pids))
	for _, pid := range pids {
		if fd, ferr := unix.PidfdOpen(pid, 0); ferr == nil {
			defer unix.Close(fd)
			watched = append(watched, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN})
		} else if !errors.Is(ferr, unix.ESRCH) {
			err = errors.Join(err, os.NewSyscallError("pidfd_open", ferr))
		}
	}
	err = errors.Join(err, p.signal(syscall.SIGKILL))
	for _, pid := range pids {
		err = errors.Join(err, signalOne(pid, syscall.SIGKILL))
	}
	for _, one := range watched {
		fds := []unix.PollFd{one}
		for {
			if _, perr := unix.Poll(fds, -1); !errors.Is(perr, unix.EINTR) {
				err = errors.Join(err, perr)
				break
			}
		}
	}
	<-p.done
	return err
}

// signalOne sends a signal; that the process is gone is no error.
func signalOne(pid int, s syscall.Signal) error {
	if err := syscall.Kill(pid, s); err != nil && !errors.Is(err, syscall.ESRCH) {
		return err
	}
	return nil
}

// descendants are the children of a process, their children, and so on.
func descendants(pid int) (all []int) {
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid)) // the pattern is good
	for _, list := range lists {
		text, _ := os.ReadFile(list) // a thread that has ended has none
		for _, field := range strings.Fields(string(text)) {
			var child int
			if _, err := fmt.Sscan(field, &child); err == nil {
				all = append(append(all, child), descendants(child)...)
			}
		}
	}
	return all
}
