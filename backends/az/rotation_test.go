package az

import (
	"net/http"
	"net/url"
	"testing"

	"github.com/stager-dev/stager/backends/conformance/rotation"
)

// A wrong token was tried again until the end of all retries.
func TestRotatedCredentialsAreUsed(t *testing.T) {
	rotation.Run(t, rotation.Case{
		Scheme: Schemes()[0], Writes: true,
		URL: func(server string) string { return "az://test/?endpoint=" + url.QueryEscape(server+"/mine") },
		Files: func(g string) map[string]string {
			return map[string]string{"AZURE_STORAGE_SAS_TOKEN": "sv=2024-11-04&sig=" + g}
		},
		Has: func(r *http.Request, g string) bool { return r.URL.Query().Get("sig") == g },
		Refuse: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("x-ms-error-code", "AuthenticationFailed")
			w.WriteHeader(http.StatusForbidden)
		},
		Lists:   func(r *http.Request) bool { return r.URL.Query().Get("comp") == "list" },
		Listing: `<?xml version="1.0"?><EnumerationResults><Blobs><Blob><Name>key</Name><Properties><Content-Length>1</Content-Length><Etag>"e"</Etag><BlobType>BlockBlob</BlobType><Last-Modified>Tue, 24 Nov 2026 00:00:00 GMT</Last-Modified></Properties></Blob></Blobs></EnumerationResults>`,
		Serve: func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("ETag", `"e"`)
			w.Header().Set("x-ms-blob-type", "BlockBlob")
			w.Header().Set("Last-Modified", "Tue, 24 Nov 2026 00:00:00 GMT")
			switch r.Method {
			case http.MethodPut:
				w.WriteHeader(http.StatusCreated)
			case http.MethodDelete:
				w.WriteHeader(http.StatusAccepted)
			}
		},
	})
}
