package cluster

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
)

// nodeIP is the address of the node and of everything that pods reach on it, on a
// bridge of the cluster's own network.
const nodeIP = "10.99.7.1"

// world is the first process in the namespaces. It gives them what a machine has:
// a view of its processes, a network, and directories that programs write to unasked. The
// kubelet insists on writing a few sysctls, which are the whole machine's: it gets
// files in their place. Then it runs its arguments; when it ends, all ends.
const world = `set -e
mount --make-rprivate /
mount -t proc proc /proc
for d in /run /opt /var/lib /var/log; do mount -t tmpfs tmpfs $d; done
for f in vm/overcommit_memory vm/panic_on_oom kernel/panic kernel/panic_on_oops kernel/keys/root_maxkeys kernel/keys/root_maxbytes; do
	mkdir -p "$0/sysctl/${f%/*}"
	cat "/proc/sys/$f" >"$0/sysctl/$f"
	mount --bind "$0/sysctl/$f" "/proc/sys/$f"
done
ip() { "$0/bin/busybox" ip "$@"; }
ip link set lo up
ip link add node0 type bridge
ip addr add ` + nodeIP + `/32 dev node0
ip link set node0 up
"$@"
exit $?`

// namespaces are those that a cluster has of its own.
const namespaces = syscall.CLONE_NEWPID | syscall.CLONE_NEWNS | syscall.CLONE_NEWNET

// Possible returns an error where a cluster cannot run on this machine, which says why.
func Possible() error {
	if os.Geteuid() != 0 {
		return errors.New("a cluster needs root: namespaces, mounts and, for a node, control groups")
	}
	if at := kubelet(); at != "" {
		return fmt.Errorf("a kubelet is running on this machine (%s), and two would put their pods into the same control groups; end it, or wait for the test that it belongs to", at)
	}
	cmd := exec.Command("true")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: namespaces}
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("a cluster needs namespaces of its own, which this machine does not give: %w", err)
	}
	return nil
}

// isolated runs a command in namespaces of its own for processes, mounts and the
// network, with dir for its files, and removes afterwards what the kernel does not: the
// control groups of pods.
func isolated(dir string, env []string, command ...string) (code int, err error) {
	if err := Possible(); err != nil {
		return 0, err
	}
	if err := removeGroups(); err != nil { // of a test that was killed
		return 0, err
	}
	cmd := exec.Command("sh", append([]string{"-c", world, dir}, command...)...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: namespaces,
		Pdeathsig:  syscall.SIGKILL, // of the thread, which therefore stays
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err = errors.Join(cmd.Run(), removeGroups())
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return exit.ExitCode(), nil
	}
	return 0, err
}

// kubelet is where /proc has one that runs, or "".
func kubelet() string {
	names, _ := filepath.Glob("/proc/[0-9]*/comm") // the pattern is good
	for _, name := range names {
		if text, err := os.ReadFile(name); err == nil && string(text) == "kubelet\n" {
			return filepath.Dir(name)
		}
	}
	return ""
}

// removeGroups removes the control groups under which the kubelet puts pods, in each
// hierarchy.
func removeGroups() (err error) {
	for _, pattern := range []string{"/sys/fs/cgroup/kubepods", "/sys/fs/cgroup/*/kubepods"} {
		found, _ := filepath.Glob(pattern) // the patterns are good
		for _, group := range found {
			err = errors.Join(err, removeGroup(group))
		}
	}
	return err
}

// removeGroup removes a control group with those below it, which have no processes any
// more.
func removeGroup(group string) error {
	below, err := os.ReadDir(group)
	if err != nil {
		return err
	}
	for _, e := range below {
		if e.IsDir() {
			if err := removeGroup(filepath.Join(group, e.Name())); err != nil {
				return err
			}
		}
	}
	return os.Remove(group)
}
