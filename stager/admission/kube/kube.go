// Package kube is a minimal REST client for the few objects that stager's webhook reads and writes
// in a cluster. It uses the pod's service account and does not watch. [InCluster] returns the
// client.
package kube

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// AccountDir is the directory of a pod's service account.
const AccountDir = "/var/run/secrets/kubernetes.io/serviceaccount"

// maxResponse is the largest response that is read, in bytes.
const maxResponse = 64 << 20

// Client is a client of one API server. It is safe for concurrent use.
type Client struct {
	URL   string                 // https://host:port
	HTTP  *http.Client           // trusts the server's CA
	Token func() (string, error) // of the service account; called for each request, because tokens rotate
}

// InCluster returns the client of a pod and the pod's namespace. host and port are the values of
// KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT; dir is [AccountDir].
func InCluster(host, port, dir string) (c *Client, namespace string, err error) {
	authorities, err := os.ReadFile(filepath.Join(dir, "ca.crt"))
	if err != nil {
		return nil, "", err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(authorities) {
		return nil, "", fmt.Errorf("%s contains no certificate", filepath.Join(dir, "ca.crt"))
	}
	text, err := os.ReadFile(filepath.Join(dir, "namespace"))
	if err != nil {
		return nil, "", err
	}
	return &Client{
		URL: "https://" + net.JoinHostPort(host, port),
		HTTP: &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{
			TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pool}, ForceAttemptHTTP2: true, IdleConnTimeout: 2 * time.Minute,
		}},
		Token: func() (string, error) {
			token, err := os.ReadFile(filepath.Join(dir, "token"))
			return strings.TrimSpace(string(token)), err
		},
	}, strings.TrimSpace(string(text)), nil
}

// StatusError is an error response of the API server.
type StatusError struct {
	Code    int
	Message string // from the server
}

func (e *StatusError) Error() string {
	hint := ""
	switch e.Code {
	case http.StatusForbidden, http.StatusUnauthorized:
		hint = `; "stager manifests rbac" prints the required permissions`
	case http.StatusNotFound:
		hint = `; "stager manifests webhook" prints the required objects`
	}
	return fmt.Sprintf("the API server returned %d: %s%s", e.Code, e.Message, hint)
}

// Conflict reports whether err means that another client wrote the object after it was read.
func Conflict(err error) bool {
	var status *StatusError
	return errors.As(err, &status) && status.Code == http.StatusConflict
}

// Get reads the object or list at a path such as /api/v1/namespaces/x/secrets/y into a value.
func (c *Client) Get(ctx context.Context, path string, into any) error {
	return c.do(ctx, http.MethodGet, path, nil, into)
}

// Put writes the object at a path. It fails with a [Conflict] if the object has a resourceVersion
// and another client has written a newer one.
func (c *Client) Put(ctx context.Context, path string, object any) error {
	body, err := json.Marshal(object)
	if err != nil {
		return err
	}
	return c.do(ctx, http.MethodPut, path, body, nil)
}

func (c *Client) do(ctx context.Context, method, path string, body []byte, into any) error {
	req, err := http.NewRequestWithContext(ctx, method, c.URL+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	token, err := c.Token()
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Accept", "application/json")
	req.Header.Set("Content-Type", "application/json")
	resp, err := c.HTTP.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxResponse))
	if err != nil {
		return err
	}
	if resp.StatusCode/100 != 2 {
		var status struct{ Message string }
		if json.Unmarshal(text, &status) != nil || status.Message == "" {
			status.Message = http.StatusText(resp.StatusCode)
		}
		return &StatusError{resp.StatusCode, status.Message}
	}
	if into == nil {
		return nil
	}
	// Keep the numbers of objects that are written back exactly as they are.
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	return d.Decode(into)
}
