package nfs

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"syscall"
	"time"

	"github.com/stager-dev/stager/backends/nfs/internal/rpc"
)

// dialWithin limits how long a server may take to accept a connection.
const dialWithin = 10 * time.Second

// dialer returns a dialer for a port of the server.
func (c settings) dialer(port string) rpc.Dialer {
	address := net.JoinHostPort(c.host, port)
	return func(ctx context.Context) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, dialWithin)
		defer cancel()
		conn, err := dialFrom(ctx, address, c.resvport == "true")
		if err != nil || c.tls == nil {
			return conn, err
		}
		secure := tls.Client(conn, c.tls)
		if err := secure.HandshakeContext(ctx); err != nil {
			_ = conn.Close() // the error of the handshake is more precise
			if ctx.Err() != nil {
				err = fmt.Errorf("no TLS response from the server within %v; a server without TLS never sends one (?tls=)", dialWithin)
			}
			return nil, err
		}
		return secure, nil
	}
}

// dialFrom connects, from a port below 1024 if reserved is true.
func dialFrom(ctx context.Context, address string, reserved bool) (net.Conn, error) {
	d := net.Dialer{KeepAlive: 15 * time.Second}
	if !reserved {
		return d.DialContext(ctx, "tcp", address)
	}
	var last error
	for _, p := range rand.Perm(1024 - 600) {
		d.LocalAddr = &net.TCPAddr{Port: 600 + p}
		conn, err := d.DialContext(ctx, "tcp", address)
		if errors.Is(err, syscall.EADDRINUSE) || errors.Is(err, syscall.EADDRNOTAVAIL) {
			last = err
			continue
		}
		if errors.Is(err, syscall.EACCES) {
			return nil, errPort{err, 600 + p}
		}
		return conn, err
	}
	return nil, last
}

// errPort reports that this process may not use a privileged port.
type errPort struct {
	err  error
	port int
}

func (e errPort) Error() string {
	return "the server requires a client port below 1024, and this process may not use port " + strconv.Itoa(e.port) +
		": add the capability NET_BIND_SERVICE, set the sysctl net.ipv4.ip_unprivileged_port_start, or make the export accept any port (\"insecure\")"
}

func (e errPort) Unwrap() error { return e.err }
