// Package ports finds addresses for servers that are killed and started again at the
// same one.
//
// A port that the kernel gives to who asks for any is of the range that it gives to
// everybody who connects, too: while its server is down, somebody's connection may get
// it, and the server does not start again. Those below that range go to who asks for
// them by number alone.
//
// The tests of several packages run at the same time, each in a process. So a port is
// reserved for the process that it is given to, until that ends: another one could get
// it while its server starts, or is down.
package ports

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"sync"
	"syscall"
)

// least leaves those below to what machines run.
const least = 10_000

// reserved are the reservations of this process.
var reserved struct {
	sync.Mutex
	ports []net.Listener
}

// Free is an address of a host of this machine, host:port, at which nobody listens and
// nobody will unless he asks for this very port without Free. Where the kernel gives all
// ports to who connects, it is one of those, which are not reserved.
func Free(host string) (string, error) {
	end := forConnections()
	for range 10 * max(0, end-least) {
		port := least + rand.IntN(end-least)
		reservation, err := reserve(port)
		if errors.Is(err, syscall.EADDRINUSE) {
			continue // by this process or another one
		}
		if err != nil {
			return "", err
		}
		address, err := listen(host, port)
		if err != nil {
			err = errors.Join(err, reservation.Close())
		}
		if errors.Is(err, syscall.EADDRINUSE) {
			continue
		}
		if err != nil {
			return "", err
		}
		reserved.Lock()
		defer reserved.Unlock()
		reserved.ports = append(reserved.ports, reservation)
		return address, nil
	}
	return listen(host, 0)
}

// reserve makes others that reserve a port get EADDRINUSE until the reservation is
// closed or the process ends. It is a Unix socket of an abstract name: those are of
// the same network namespace as ports, leave no file, and no child inherits it.
func reserve(port int) (net.Listener, error) {
	return net.Listen("unix", "@stager-test-port-"+strconv.Itoa(port)) //nolint:noctx // it does not block
}

// listen tries a port, 0 for any, and returns its address.
func listen(host string, port int) (string, error) {
	l, err := net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(port))) //nolint:noctx // it does not block
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

// forConnections is the first of the ports that the kernel gives to who connects.
func forConnections() int {
	first, last := 32768, 0 // where the kernel does not tell
	text, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range")
	if err == nil {
		_, _ = fmt.Sscan(string(text), &first, &last) // the same
	}
	return first
}
