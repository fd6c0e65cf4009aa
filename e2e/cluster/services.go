package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"time"
)

// apiServerIP is the address at which pods look for the API server: the first of the Services.
const apiServerIP = "10.96.0.1"

// forward does what kube-proxy does for one address of a Service: it hands each connection to
// one of the targets, in turn. It ends with ctx.
func (c *cluster) forward(ctx context.Context, address string, targets func() []string) error {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return err
	}
	if out, err := exec.CommandContext(ctx, filepath.Join(c.bin, "busybox"), "ip", "addr", "add", host+"/32", "dev", "lo").CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	context.AfterFunc(ctx, func() {
		l.Close()                                                                                             //nolint:errcheck // it ends
		_ = exec.Command(filepath.Join(c.bin, "busybox"), "ip", "addr", "del", host+"/32", "dev", "lo").Run() // all ends anyway
	})
	go func() {
		for turn := 0; ; turn++ {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go pass(ctx, conn, targets(), turn)
		}
	}()
	return nil
}

// forwardNew forwards to a Service whenever it is created, until ctx ends.
func (c *cluster) forwardNew(ctx context.Context, namespace, service string, port, target int) {
	targets := c.endpoints(ctx, namespace, service, target)
	go func() {
		last := ""
		for ctx.Err() == nil {
			address, err := c.in(namespace).kubectl(ctx, "", "get", "service", service, "-o", "jsonpath={.spec.clusterIP}")
			if err == nil && address != last && c.forward(ctx, net.JoinHostPort(address, fmt.Sprint(port)), targets) == nil {
				last = address
			}
			select {
			case <-ctx.Done():
			case <-time.After(300 * time.Millisecond):
			}
		}
	}()
}

// pass connects a connection with the target whose turn it is.
func pass(ctx context.Context, conn net.Conn, targets []string, turn int) {
	defer conn.Close()
	if len(targets) == 0 {
		return
	}
	var d net.Dialer
	other, err := d.DialContext(ctx, "tcp", targets[turn%len(targets)])
	if err != nil {
		return
	}
	defer other.Close()
	defer context.AfterFunc(ctx, func() { other.Close(); conn.Close() })()
	done := make(chan struct{}, 2)
	for _, way := range [][2]net.Conn{{conn, other}, {other, conn}} {
		go func() {
			_, _ = io.Copy(way[0], way[1]) // until one of them ends
			done <- struct{}{}
		}()
	}
	<-done
}

// endpoints returns the addresses of the pods that are ready to serve a Service, kept up to
// date until ctx ends.
func (c *cluster) endpoints(ctx context.Context, namespace, service string, port int) func() []string {
	var now atomic.Pointer[[]string]
	read := func() {
		out, err := c.kubectl(ctx, "", "get", "endpointslices", "-n", namespace, "-l", "kubernetes.io/service-name="+service, "-o", "json")
		var list struct {
			Items []struct {
				Endpoints []struct {
					Addresses  []string
					Conditions struct{ Ready *bool }
				}
			}
		}
		if err = errors.Join(err, json.Unmarshal([]byte(out), &list)); err != nil {
			return
		}
		var all []string
		for _, slice := range list.Items {
			for _, e := range slice.Endpoints {
				if e.Conditions.Ready == nil || *e.Conditions.Ready {
					all = append(all, net.JoinHostPort(e.Addresses[0], fmt.Sprint(port)))
				}
			}
		}
		now.Store(&all)
	}
	go func() {
		for ctx.Err() == nil {
			read()
			select {
			case <-ctx.Done():
			case <-time.After(300 * time.Millisecond):
			}
		}
	}()
	return func() []string {
		if all := now.Load(); all != nil {
			return *all
		}
		return nil
	}
}
