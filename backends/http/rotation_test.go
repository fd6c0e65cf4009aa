package http

import (
	"fmt"
	"io"
	"net/http"
	"testing"

	"github.com/stager-dev/stager/backends/conformance/rotation"
)

// A listing by braces asks for each object. Its errors did not say that the token had been replaced, so it
// ended at the first one that was refused; a listing of an index did so with HTTP 403.
func TestRotatedCredentialsAreUsed(t *testing.T) {
	for name, path := range map[string]string{"index": "/", "braces": "/{key,other}"} {
		for _, status := range []int{http.StatusUnauthorized, http.StatusForbidden} {
			t.Run(fmt.Sprint(name, " ", status), func(t *testing.T) {
				rotation.Run(t, rotation.Case{
					Scheme: Schemes()[0], Reads: true,
					URL:     func(server string) string { return server + path },
					Files:   func(g string) map[string]string { return map[string]string{"token": g} },
					Has:     func(r *http.Request, g string) bool { return r.Header.Get("Authorization") == "Bearer "+g },
					Refuse:  func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) },
					Lists:   func(r *http.Request) bool { return r.URL.Path == "/" },
					Listing: "<html><title>Index of /</title><h1>Index of /</h1><hr><pre><a href=\"../\">../</a>\n<a href=\"key\">key</a> 24-Nov-2026 00:00 1\n</pre></html>",
					Serve: func(w http.ResponseWriter, _ *http.Request) {
						w.Header().Set("ETag", `"e"`)
						w.Header().Set("Content-Type", "application/octet-stream")
						w.Header().Set("Content-Length", "1")
						_, _ = io.WriteString(w, "x") // the client sees if it fails
					},
				})
			})
		}
	}
}
