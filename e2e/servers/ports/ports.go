// Package ports finds addresses for servers that are killed and started again at the
// same one.
//
// A port that the kernel gives to who asks for any is of the range that it gives to
// everybody who connects, too: while its server is down, somebody's connection may get
// it, and the server does not start again. Those below that range go to who asks for
// them by number alone.
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

// given are those that this process had, so that none is had twice.
var given struct {
	sync.Mutex
	ports map[int]bool
}

// Free is an address of a host of this machine, host:port, at which nobody listens and
// nobody will unless he asks for this very port. Where the kernel gives all ports to who
// connects, it is one of those.
func Free(host string) (string, error) {
	given.Lock()
	defer given.Unlock()
	if given.ports == nil {
		given.ports = make(map[int]bool)
	}
	end := forConnections()
	for range 10 * max(0, end-least) {
		port := least + rand.IntN(end-least)
		if given.ports[port] {
			continue
		}
		address, err := listen(host, port)
		if errors.Is(err, syscall.EADDRINUSE) {
			continue
		}
		given.ports[port] = true
		return address, err
	}
	return listen(host, 0)
}

// listen tries a port, 0 for any, and tells which it was.
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
