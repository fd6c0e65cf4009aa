package kube

import (
	"encoding/pem"
	"errors"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestConfigInCluster(t *testing.T) {
	dir := t.TempDir()
	var asked []string
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.Method+" "+r.URL.String()+" "+r.Header.Get("Authorization"))
		if strings.HasSuffix(r.URL.Path, "/gone") {
			w.WriteHeader(http.StatusNotFound)
			_, _ = w.Write([]byte(`{"kind":"Status","message":"gone is not there"}`))
			return
		}
		_, _ = w.Write([]byte(`{"kind":"Secret"}`))
	}))
	defer server.Close()
	at, _ := url.Parse(server.URL)
	host, port, _ := net.SplitHostPort(at.Host)
	if _, _, err := InCluster(host, port, dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without a service account: %v, want that it does not exist", err)
	}
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("ca.crt", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})))
	write("namespace", "stager\n")
	write("token", "first\n")
	c, namespace, err := InCluster(host, port, dir)
	if err != nil || namespace != "stager" {
		t.Fatalf("InCluster = %q, %v; want stager", namespace, err)
	}
	var object struct{ Kind string }
	if err := c.Get(t.Context(), "/api/v1/x", &object); err != nil || object.Kind != "Secret" {
		t.Errorf("Get = %v, %v; want a Secret", object, err)
	}
	write("token", "second\n") // the kubelet renews the token
	if err := c.Put(t.Context(), "/api/v1/x", object); err != nil {
		t.Error(err)
	}
	err = c.Get(t.Context(), "/api/v1/gone", &object)
	var status *StatusError
	if !errors.As(err, &status) || status.Code != 404 || !strings.Contains(err.Error(), "gone is not there") || Conflict(err) {
		t.Errorf("Get = %v, want the server's 404 and its message", err)
	}
	if want := []string{"GET /api/v1/x Bearer first", "PUT /api/v1/x Bearer second", "GET /api/v1/gone Bearer second"}; strings.Join(asked, "\n") != strings.Join(want, "\n") {
		t.Errorf("asked %q, want %q", asked, want)
	}
}
