package objectstore

import (
	"fmt"
	"net/http"

	"github.com/stager-dev/stager/backends"
)

// ProxyError is a refusal of the proxy that HTTP_PROXY or HTTPS_PROXY names. The store has not seen
// the request.
type ProxyError struct {
	Status int
	Host   string // and port of the store
}

// ErrProxyCredentials is the refusal of a proxy that demands credentials.
var ErrProxyCredentials error = &ProxyError{Status: http.StatusProxyAuthRequired}

func (e *ProxyError) Error() string {
	if e.Status == http.StatusProxyAuthRequired {
		return fmt.Sprintf("the proxy demands credentials (HTTP %d): write them into the URL of HTTPS_PROXY or HTTP_PROXY", e.Status)
	}
	return fmt.Sprintf("the proxy cannot connect to %s (HTTP %d %s)", e.Host, e.Status, http.StatusText(e.Status))
}

// Is reports whether target is backends.ErrProxy.
func (e *ProxyError) Is(target error) bool { return target == backends.ErrProxy }

// Kind returns Permission if credentials are missing or the proxy denies the host, else Unavailable.
func (e *ProxyError) Kind() backends.Kind {
	if e.Status == http.StatusProxyAuthRequired || e.Status == http.StatusForbidden {
		return backends.Permission
	}
	return backends.Unavailable
}
