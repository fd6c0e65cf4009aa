package oss

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/stager-dev/stager/backends/conformance/rotation"
)

// A rotated access key was used for five minutes more, and each refusal of it was final.
func TestRotatedCredentialsAreUsed(t *testing.T) {
	rotation.Run(t, rotation.Case{
		Scheme: Scheme(), Writes: true,
		URL: func(server string) string { return "oss://bucket/?signature=v1&endpoint=" + url.QueryEscape(server) },
		Files: func(g string) map[string]string {
			return map[string]string{"OSS_ACCESS_KEY_ID": g, "OSS_ACCESS_KEY_SECRET": "secret"}
		},
		Has: func(r *http.Request, g string) bool {
			return strings.HasPrefix(r.Header.Get("Authorization"), "OSS "+g+":")
		},
		Refuse: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/xml")
			w.WriteHeader(http.StatusForbidden)
			fmt.Fprint(w, "<Error><Code>InvalidAccessKeyId</Code><Message>unknown</Message></Error>")
		},
		Lists:   func(r *http.Request) bool { return r.URL.Query().Has("list-type") },
		Listing: `<?xml version="1.0"?><ListBucketResult><Name>bucket</Name><KeyCount>1</KeyCount><IsTruncated>false</IsTruncated><Contents><Key>key</Key><Size>1</Size><ETag>&quot;e&quot;</ETag><LastModified>2026-11-24T00:00:00.000Z</LastModified></Contents></ListBucketResult>`,
		Serve: func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("ETag", `"e"`)
			w.Header().Set("X-Oss-Hash-Crc64ecma", "727031140999736901") // of "x"
			w.Header().Set("Last-Modified", "Tue, 24 Nov 2026 00:00:00 GMT")
			if r.Method == http.MethodDelete {
				w.WriteHeader(http.StatusNoContent)
			}
		},
	})
}
