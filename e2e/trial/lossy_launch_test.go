package trial

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/stager-dev/stager/e2e/lossyfs"
)

// asWatched makes the test binary a process that has its calls of syncfs watched, since the
// kernel does not pass them on to a file system of FUSE. It then becomes the command of its
// arguments.
const asWatched = "STAGER_TRIAL_WATCHED"

// The calls that ask for a notification of each syncfs, of linux/seccomp.h.
const (
	notifyReceive  = 0xc0502100
	notifySend     = 0xc0182101
	notifyContinue = 1
)

// runWatched hands a listener for syncfs to its parent, and becomes the command.
func runWatched() error {
	runtime.LockOSThread() // the filter is of this thread, and so of what it becomes
	program := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.SYS_SYNCFS, Jf: 1},
		{Code: unix.BPF_RET, K: unix.SECCOMP_RET_USER_NOTIF},
		{Code: unix.BPF_RET, K: unix.SECCOMP_RET_ALLOW},
	}
	filter := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	fd, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_NEW_LISTENER, uintptr(unsafe.Pointer(&filter)))
	if errno != 0 {
		return fmt.Errorf("watch syncfs: %w", errno)
	}
	if err := unix.Sendmsg(3, []byte{0}, unix.UnixRights(int(fd)), nil, 0); err != nil {
		return err
	}
	unix.CloseOnExec(3)
	return unix.Exec(os.Args[1], os.Args[1:], os.Environ())
}

// errUnwatched says that the machine does not let a process be watched.
var errUnwatched = errors.New("calls of syncfs cannot be watched")

// watched starts a command of which each syncfs is one of the file system.
func watched(fs *lossyfs.FS, cmd *exec.Cmd) (*process, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	theirs := os.NewFile(uintptr(pair[1]), "listener")
	cmd.Args = append([]string{os.Args[0], cmd.Path}, cmd.Args[1:]...)
	cmd.Path = os.Args[0]
	cmd.Env = append(os.Environ(), asWatched+"=1")
	cmd.ExtraFiles = []*os.File{theirs}
	p, err := start(cmd)
	err = errors.Join(err, theirs.Close())
	if err != nil {
		return nil, errors.Join(err, unix.Close(pair[0]))
	}
	listener, err := receiveFile(pair[0])
	if err != nil {
		p.kill()
		return nil, fmt.Errorf("%w: %w", errUnwatched, err)
	}
	go answerSyncs(fs, listener)
	return p, nil
}

// receiveFile takes the descriptor that a process sends, and closes the socket.
func receiveFile(fd int) (int, error) {
	file := os.NewFile(uintptr(fd), "listener")
	defer file.Close()
	conn, err := net.FileConn(file)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	buf, rights := make([]byte, 1), make([]byte, unix.CmsgSpace(4))
	_, n, _, _, err := conn.(*net.UnixConn).ReadMsgUnix(buf, rights)
	if err != nil {
		return 0, err
	}
	messages, err := unix.ParseSocketControlMessage(rights[:n])
	if err != nil || len(messages) != 1 {
		return 0, errors.Join(err, errors.New("the process ended"))
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(fds) != 1 {
		return 0, errors.Join(err, errors.New("the process sent no descriptor"))
	}
	return fds[0], nil
}

// answerSyncs records each syncfs, until the process has ended.
func answerSyncs(fs *lossyfs.FS, listener int) {
	defer unix.Close(listener)
	for {
		poll := []unix.PollFd{{Fd: int32(listener), Events: unix.POLLIN}}
		if _, err := unix.Poll(poll, -1); errors.Is(err, unix.EINTR) {
			continue
		}
		if poll[0].Revents&unix.POLLIN == 0 {
			return
		}
		var request [80]byte
		if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(listener), notifyReceive, uintptr(unsafe.Pointer(&request))); errno != 0 {
			continue // it was interrupted, or has ended
		}
		var response [24]byte
		copy(response[:8], request[:8])
		if errno := fs.SyncAll(); errno != 0 {
			binary.NativeEndian.PutUint32(response[16:], uint32(-int32(errno)))
		} else {
			binary.NativeEndian.PutUint32(response[20:], notifyContinue)
		}
		_, _, _ = unix.Syscall(unix.SYS_IOCTL, uintptr(listener), notifySend, uintptr(unsafe.Pointer(&response))) // it may have ended
	}
}

// afterBoot is a command that sees another boot of the machine than the one it runs on: id
// is a file with its name.
func afterBoot(id, binary string, args ...string) *exec.Cmd {
	const script = `mount --bind "$0" /proc/sys/kernel/random/boot_id && exec "$@"`
	cmd := exec.Command("sh", append([]string{"-c", script, id, binary}, args...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	return cmd
}
