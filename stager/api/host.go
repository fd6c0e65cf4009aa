package api

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
)

// ownHost lets a request pass that is meant for this machine. A page of a browser on this
// machine can reach the port by a name of its own that leads here (DNS rebinding), and
// then reads all answers; its Host header gives that name. An address can be no such name.
// names are further ones that the port has.
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
			fail(w, http.StatusMisdirectedRequest, fmt.Errorf("the Host %.80q is none of this port's: call it by its address, by localhost, or by the name that --listen gives", name))
			return
		}
		h.ServeHTTP(w, r)
	})
}

// hostName is a Host header's name or address in lower case, without its port.
func hostName(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return strings.ToLower(strings.TrimSuffix(strings.Trim(host, "[]"), "."))
}

// isAddress is true of an IP address, and of the empty name that clients of HTTP/1.0 send
// and browsers do not.
func isAddress(name string) bool {
	_, err := netip.ParseAddr(name)
	return err == nil || name == ""
}
