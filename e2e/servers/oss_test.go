package servers

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestOSSLeavesNothingBehind(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	s, err := StartOSS(OSSOptions{TLS: true, Buckets: []string{"one", "two"}, Versions: []string{"two"}})
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(s.Env(), " "); !strings.Contains(got, "OSS_CA_BUNDLE=") || !strings.HasPrefix(s.Endpoint, "https://") {
		t.Errorf("Env = %s at %s, want an authority and https", got, s.Endpoint)
	}
	if err := s.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	if left, err := filepath.Glob(filepath.Join(os.TempDir(), "*", "*")); err != nil || len(left) > 0 {
		t.Errorf("%v is left behind, %v", left, err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.Control+"/counts", nil)
	if err != nil {
		t.Fatal(err)
	}
	if res, err := http.DefaultClient.Do(req); err == nil {
		res.Body.Close()
		t.Error("the server still answers")
	}
	if _, err := StartOSS(OSSOptions{Public: []string{"none-of-them"}}); err == nil {
		t.Error("a public bucket that does not exist is no error")
	}
}
