package ports

import (
	"net"
	"strconv"
	"testing"
)

// A trial's server was down for a second, the port that it had had was some client's
// when it came back, and it ended at once.
func TestPortsAreNotUsedByClients(t *testing.T) {
	seen := make(map[string]bool)
	for range 100 {
		address, err := Free("127.0.0.1")
		if err != nil {
			t.Fatal(err)
		}
		_, port, err := net.SplitHostPort(address)
		if err != nil {
			t.Fatal(err)
		}
		if n, err := strconv.Atoi(port); err != nil || n >= forConnections() {
			t.Errorf("port %s (%v), want one below %d", port, err, forConnections())
		}
		if seen[address] {
			t.Errorf("%s is given twice", address)
		}
		seen[address] = true
		l, err := net.Listen("tcp", address)
		if err != nil {
			t.Errorf("it is not free: %v", err)
			continue
		}
		defer l.Close() // it took nothing
	}
}
