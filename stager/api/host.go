package api

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
)

// ownHost accepts only requests that are meant for this machine. A web page in a browser on this
// machine can reach the port under a host name of its own that resolves to this machine (DNS
// rebinding), and could then read all responses. Its Host header contains that name. IP addresses
// are safe, as they cannot be such a name. names are additional names of this machine.
func ownHost(names []string, h http.Handler) http.Handler {
	own := map[string]bool{"localhost": true}
	if name, err := os.Hostname(); err == nil {
		own[strings.ToLower(name)] = true
	}
	for _, name := range names {
		own[strings.ToLower(name)] = true
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if name := hostName(r.Host); !own[name] && !isAddress(name) {
			w.Header().Set("Connection", "close")
			fail(w, http.StatusMisdirectedRequest, fmt.Errorf("unknown Host %.80q: use the port's address, localhost, or the name in --listen", name))
			return
		}
		h.ServeHTTP(w, r)
	})
}

// hostName returns a Host header's name or address in lower case, without its port.
func hostName(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return strings.ToLower(strings.TrimSuffix(strings.Trim(host, "[]"), "."))
}

// isAddress reports whether name is an IP address, or empty as in requests of HTTP/1.0 clients;
// browsers do not send an empty name.
func isAddress(name string) bool {
	_, err := netip.ParseAddr(name)
	return err == nil || name == ""
}
