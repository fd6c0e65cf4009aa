package http

import (
	"io"
	"net/http"
	"testing"

	"github.com/stager-dev/stager/backends/conformance/rotation"
)

func TestRotatedCredentialsAreUsed(t *testing.T) {
	rotation.Run(t, rotation.Case{
		Scheme: Schemes()[0], Reads: true,
		URL:    func(server string) string { return server + "/" },
		Files:  func(g string) map[string]string { return map[string]string{"token": g} },
		Has:    func(r *http.Request, g string) bool { return r.Header.Get("Authorization") == "Bearer "+g },
		Refuse: func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) },
		Serve: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("ETag", `"e"`)
			w.Header().Set("Content-Type", "application/octet-stream")
			w.Header().Set("Content-Length", "1")
			_, _ = io.WriteString(w, "x") // the client sees if it fails
		},
	})
}
