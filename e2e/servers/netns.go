package servers

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"

	"golang.org/x/sys/unix"
)

// alone is a command in a network of its own, which reaches nobody and is reached by nobody:
// for a server that listens on every address whatever it is told. It needs root.
func alone(name string, args ...string) *exec.Cmd {
	const script = `ip link set lo up && exec "$0" "$@"`
	return exec.Command("unshare", append([]string{"--net", "sh", "-c", script, name}, args...)...)
}

// forward passes connections at an address of this machine on to the same address in the
// network of a process, which pid returns. It ends when the listener is closed.
func forward(address string, pid func() int64) (net.Listener, error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer client.Close()
				server, err := dialIn(pid(), address)
				if err != nil {
					return // the server is away
				}
				defer server.Close()
				go func() {
					_, _ = io.Copy(server, client) // either end may close
					_ = server.Close()
				}()
				_, _ = io.Copy(client, server)
			}()
		}
	}()
	return listener, nil
}

// dialIn connects to an address in the network of a process.
func dialIn(pid int64, address string) (conn net.Conn, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // for good: the thread is of that network now, and ends with this
		var network *os.File
		if network, err = os.Open(fmt.Sprintf("/proc/%d/ns/net", pid)); err != nil {
			return
		}
		defer network.Close()
		if err = unix.Setns(int(network.Fd()), unix.CLONE_NEWNET); err == nil {
			conn, err = net.Dial("tcp", address)
		}
	}()
	<-done
	return conn, err
}
