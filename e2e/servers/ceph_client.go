package servers

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha1" // what the older signature of S3 is made of
	"encoding/base64"
	"encoding/xml"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// makeBuckets makes the buckets, some with versioning.
func (c *Ceph) makeBuckets(ctx context.Context, versions []string) error {
	for _, b := range c.Buckets {
		if _, err := c.ask(ctx, http.MethodPut, "/"+b, nil, ""); err != nil {
			return err
		}
		if !slices.Contains(versions, b) {
			continue
		}
		const enabled = "<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>"
		if _, err := c.ask(ctx, http.MethodPut, "/"+b, url.Values{versioning: nil}, enabled); err != nil {
			return err
		}
	}
	return nil
}

// Download copies what lies below a prefix of a bucket into a directory, without the
// product's libraries: to compare with what these say.
func (c *Ceph) Download(ctx context.Context, bucket, prefix, to string) error {
	text, err := c.ask(ctx, http.MethodGet, "/"+bucket, url.Values{"prefix": {prefix}}, "")
	if err != nil {
		return err
	}
	var page struct {
		IsTruncated bool
		Contents    []struct{ Key string }
	}
	if err := xml.Unmarshal(text, &page); err != nil {
		return err
	}
	if page.IsTruncated || len(page.Contents) == 0 {
		return fmt.Errorf("%d objects and more (%t) begin with %q; want them on one page", len(page.Contents), page.IsTruncated, prefix)
	}
	for _, object := range page.Contents {
		body, err := c.ask(ctx, http.MethodGet, "/"+bucket+"/"+object.Key, nil, "")
		if err != nil {
			return err
		}
		file := filepath.Join(to, filepath.FromSlash(strings.TrimPrefix(object.Key, prefix)))
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(file, body, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// The parts of a bucket that are signed.
const versioning, policy = "versioning", "policy"

// ask sends a request, signed as S3 first did it, and returns the answer, which must
// be good.
func (s *S3) ask(ctx context.Context, method, path string, query url.Values, body string) ([]byte, error) {
	transport, err := s.transport()
	if err != nil {
		return nil, err
	}
	resource := (&url.URL{Path: path}).EscapedPath() // the rest of a query is not signed
	address := s.Endpoint + resource + "?" + query.Encode()
	for _, signed := range []string{versioning, policy} {
		if query.Has(signed) {
			resource += "?" + signed
			address = s.Endpoint + resource
		}
	}
	req, err := http.NewRequestWithContext(ctx, method, address, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	date := time.Now().UTC().Format(http.TimeFormat)
	mac := hmac.New(sha1.New, []byte(s.SecretKey))
	fmt.Fprintf(mac, "%s\n\n\n%s\n%s", method, date, resource)
	req.Header.Set("Date", date)
	req.Header.Set("Authorization", "AWS "+s.AccessKey+":"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	res, err := transport.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close() // it was read
	var answer bytes.Buffer
	if _, err := io.Copy(&answer, res.Body); err != nil {
		return nil, err
	}
	if res.StatusCode/100 != 2 {
		return nil, fmt.Errorf("%s %s: %s: %s", method, resource, res.Status, answer.String())
	}
	return answer.Bytes(), nil
}
