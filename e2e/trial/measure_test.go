package trial

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/dustin/go-humanize"
	"golang.org/x/sys/unix"
)

// measured is a command's run as the kernel saw it.
type measured struct {
	exit          int
	took          time.Duration
	read, written int64 // bytes, of files and connections
	memory        int64 // the most that was resident, in bytes
	log           string
}

func (m measured) String() string {
	return fmt.Sprintf("%.1f s, read %s, written %s, memory %s", m.took.Seconds(),
		humanize.IBytes(uint64(m.read)), humanize.IBytes(uint64(m.written)), humanize.IBytes(uint64(m.memory)))
}

// measure runs cmd, and meanwhile, once, when it has written so many bytes; that gets what reads the
// command's log. It is an error that it ends before: then the trial was too short to prove anything.
func measure(cmd *exec.Cmd, after int64, meanwhile func(log func() (string, error)) error) (m measured, err error) {
	file, err := os.CreateTemp("", "measured-")
	if err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, file.Close(), os.Remove(file.Name())) }()
	log := func() (string, error) {
		text, err := os.ReadFile(file.Name())
		return string(text), err
	}
	cmd.Stderr = file
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return m, err
	}
	ended := make(chan error, 1)
	go func() { // it stays a zombie, of which the kernel still tells
		ended <- ignoringInterrupts(func() error {
			return unix.Waitid(unix.P_PID, cmd.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		})
	}()
	over := false
	for meanwhile != nil && !over {
		select {
		case err = <-ended:
			over = true
			err = errors.Join(err, errors.New("it ended too soon to prove anything"))
		case <-time.After(time.Millisecond):
			if _, written := moved(cmd.Process.Pid); written >= after {
				err, meanwhile = meanwhile(log), nil
			}
		}
	}
	if !over {
		err = errors.Join(err, <-ended)
	}
	m.took = time.Since(began)
	m.read, m.written = moved(cmd.Process.Pid)
	_ = cmd.Wait() // its code says how it ended
	m.exit = cmd.ProcessState.ExitCode()
	m.memory = cmd.ProcessState.SysUsage().(*syscall.Rusage).Maxrss << 10
	said, lerr := log()
	m.log = said
	return m, errors.Join(err, lerr)
}

func ignoringInterrupts(f func() error) error {
	for {
		if err := f(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// moved is how many bytes a process has read and written, by any means.
func moved(pid int) (read, written int64) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/io", pid))
	if err == nil {
		_, _ = fmt.Sscanf(string(text), "rchar: %d\nwchar: %d", &read, &written) // 0 tells that it could not be read
	}
	return read, written
}
