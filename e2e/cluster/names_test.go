package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// serveNames is the cluster's DNS, as CoreDNS is elsewhere: it answers for SERVICE.NAMESPACE and for
// HOSTNAME.SERVICE.NAMESPACE, the names of pods in the subdomain of a headless Service, below
// svc.cluster.local, which the kubelet has pods search. It asks the API server each time, and ends
// with the test.
func (c *cluster) serveNames(t *testing.T) {
	t.Helper()
	conn, err := net.ListenPacket("udp", net.JoinHostPort(nodeIP, "53"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(func() { cancel(); conn.Close() })
	go func() {
		buffer := make([]byte, 1500)
		for {
			n, from, err := conn.ReadFrom(buffer)
			if err != nil {
				return
			}
			query := append([]byte(nil), buffer[:n]...)
			go func() {
				if answer, err := c.answer(ctx, query); err == nil {
					_, _ = conn.WriteTo(answer, from) // who gets none asks again
				}
			}()
		}
	}()
}

// answer answers a DNS query.
func (c *cluster) answer(ctx context.Context, query []byte) ([]byte, error) {
	var m dnsmessage.Message
	if err := m.Unpack(query); err != nil || len(m.Questions) != 1 {
		return nil, errors.Join(errors.New("not one question"), err)
	}
	q := m.Questions[0]
	m.Response, m.RecursionAvailable, m.Additionals = true, true, nil
	address, err := c.address(ctx, strings.TrimSuffix(q.Name.String(), "."))
	switch {
	case err != nil:
		m.RCode = dnsmessage.RCodeNameError
	case q.Type == dnsmessage.TypeA:
		m.Answers = []dnsmessage.Resource{{
			Header: dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class},
			Body:   &dnsmessage.AResource{A: [4]byte(address.To4())},
		}}
	}
	return m.Pack()
}

// address is that of a name of the cluster.
func (c *cluster) address(ctx context.Context, name string) (net.IP, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	below, ok := strings.CutSuffix(name, ".svc.cluster.local")
	parts := strings.Split(below, ".")
	var address string
	var err error
	switch {
	case ok && len(parts) == 2:
		address, err = c.in(parts[1]).kubectl(ctx, "", "get", "service", parts[0], "-o", "jsonpath={.spec.clusterIP}")
	case ok && len(parts) == 3:
		address, err = c.in(parts[2]).endpoint(ctx, parts[0], parts[1])
	}
	if ip := net.ParseIP(address); err == nil && ip.To4() != nil {
		return ip, nil
	}
	return nil, errors.Join(fmt.Errorf("there is no %s", name), err)
}

// endpoint is the address of the pod of a host name in a Service.
func (c *cluster) endpoint(ctx context.Context, host, service string) (string, error) {
	out, err := c.kubectl(ctx, "", "get", "endpointslices", "-l", "kubernetes.io/service-name="+service, "-o", "json")
	var list struct {
		Items []struct {
			Endpoints []struct {
				Addresses []string
				Hostname  string
			}
		}
	}
	if err = errors.Join(err, json.Unmarshal([]byte(out), &list)); err != nil {
		return "", err
	}
	for _, slice := range list.Items {
		for _, e := range slice.Endpoints {
			if e.Hostname == host && len(e.Addresses) > 0 {
				return e.Addresses[0], nil
			}
		}
	}
	return "", nil
}
