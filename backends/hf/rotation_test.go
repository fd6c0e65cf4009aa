package hf

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/stager-dev/stager/backends/conformance/hub"
	"github.com/stager-dev/stager/backends/conformance/rotation"
)

func TestRotatedCredentialsAreUsed(t *testing.T) {
	rotation.Run(t, rotation.Case{
		Scheme: Scheme(), Reads: true,
		URL:     func(server string) string { return "hf://org/name/?endpoint=" + url.QueryEscape(server) },
		Files:   func(g string) map[string]string { return map[string]string{"HF_TOKEN": g} },
		Has:     func(r *http.Request, g string) bool { return r.Header.Get("Authorization") == "Bearer "+g },
		Refuse:  func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) },
		Lists:   func(r *http.Request) bool { return strings.Contains(r.URL.Path, "/tree/") },
		Listing: `[{"type":"file","path":"key","size":1,"oid":"c1b0730e0133447badcfd47fd144e254807b06e1"}]`,
		Serve: func(w http.ResponseWriter, r *http.Request) {
			if strings.HasPrefix(r.URL.Path, "/api/") {
				fmt.Fprintf(w, `{"sha":%q}`, hub.Commit)
				return
			}
			w.Header().Set("ETag", `"c1b0730e0133447badcfd47fd144e254807b06e1"`)
			w.Header().Set("Content-Length", "1")
			_, _ = io.WriteString(w, "x") // the client sees if it fails
		},
	})
}
