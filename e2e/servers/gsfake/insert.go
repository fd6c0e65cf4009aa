package gsfake

import (
	"encoding/json"
	"encoding/xml"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"strings"

	"github.com/stager-dev/stager/e2e/servers/fake"
)

// insertion describes an object in the first part of a request that inserts it.
type insertion struct {
	ContentType string            `json:"contentType"`
	CRC32C      string            `json:"crc32c"`
	Metadata    map[string]string `json:"metadata"`
}

// insert creates an object by a request with two parts: its description and its bytes.
func (c *call) insert() error {
	kind, params, err := mime.ParseMediaType(c.Header.Get("Content-Type"))
	if err != nil || kind != "multipart/related" || c.Query.Get("uploadType") != "multipart" {
		return fake.Fail(http.StatusBadRequest, "InvalidArgument", "Only multipart uploads are known here.")
	}
	parts := multipart.NewReader(c.Body, params["boundary"])
	description, err := parts.NextRawPart()
	if err != nil {
		return incomplete(err)
	}
	var in insertion
	dec := json.NewDecoder(description)
	dec.DisallowUnknownFields()
	if err := dec.Decode(&in); err != nil {
		return fake.Fail(http.StatusBadRequest, "InvalidArgument", "The metadata are not valid: %v", err)
	}
	contents, err := parts.NextRawPart()
	if err != nil {
		return incomplete(err)
	}
	p, err := c.ReceiveFrom(contents)
	if err != nil {
		return err
	}
	if _, err = parts.NextRawPart(); err != io.EOF { //nolint:errorlint // the end itself
		p.Remove()
		return incomplete(err)
	}
	if sum := encodeSum(p.Sum); in.CRC32C != sum {
		p.Remove()
		return fake.Fail(http.StatusBadRequest, "InvalidArgument", "Provided CRC32C %q doesn't match calculated CRC32C %q.", in.CRC32C, sum)
	}
	obj := c.NewObject(metaPrefix, p)
	obj.Header["Content-Type"] = in.ContentType
	for name, value := range in.Metadata {
		obj.Header[http.CanonicalHeaderKey(metaPrefix+name)] = value
	}
	c.s.Mu.Lock()
	old, err := c.publishLocked(obj, c.Query.Get("ifGenerationMatch"))
	c.s.Mu.Unlock()
	if err != nil {
		obj.Remove()
		return err
	}
	old.Remove()
	r := newResource(c.Key, obj)
	r.CRC32C = encodeSum(c.Reported(obj.Sum))
	return c.send(r)
}

func incomplete(err error) error {
	return fake.Fail(http.StatusBadRequest, "IncompleteBody", "The body is not two parts: %v", err)
}

// withoutXML answers requests of the XML API on a server that has none.
func (c *call) withoutXML() error {
	if c.Query.Has("uploads") && c.Method == http.MethodGet { // as fake-gcs-server, which ignores it
		return c.XML(struct {
			XMLName xml.Name `xml:"ListBucketResult"`
		}{})
	}
	return fake.Fail(http.StatusBadRequest, "InvalidArgument", "invalid uploadType")
}

// inUpload returns the path of a request that inserts an object, as one of the JSON API.
func inUpload(path string) (string, bool) { return strings.CutPrefix(path, "/upload") }
