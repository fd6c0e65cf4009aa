package ossfake

import (
	"encoding/base64"
	"encoding/xml"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

type listing struct {
	XMLName               xml.Name `xml:"ListBucketResult"`
	Name                  string
	Prefix                string
	StartAfter            string `xml:",omitempty"`
	ContinuationToken     string `xml:",omitempty"`
	MaxKeys               int
	EncodingType          string `xml:",omitempty"`
	IsTruncated           bool
	NextContinuationToken string `xml:",omitempty"`
	Marker                string `xml:",omitempty"`
	NextMarker            string `xml:",omitempty"`
	Contents              []listed
	KeyCount              int
}

type listed struct {
	Key          string
	LastModified string
	ETag         string
	Type         string
	Size         int64
	StorageClass string
}

// list answers one page, of version 2, or of the first version to those who ask for none.
func (c *call) list() error {
	if c.query.Get("delimiter") != "" {
		return fail(http.StatusNotImplemented, "NotImplemented", "A delimiter is not known here.")
	}
	most := 100
	if text := c.query.Get("max-keys"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > 1000 {
			return fail(http.StatusBadRequest, "InvalidArgument", "Argument max-keys must be an integer between 1 and 1000.")
		}
		most = n
	}
	encode := func(s string) string { return s }
	switch e := c.query.Get("encoding-type"); e {
	case "url":
		encode = escape
	case "":
	default:
		return fail(http.StatusBadRequest, "InvalidArgument", "Argument encoding-type is url.")
	}
	first := !c.query.Has("list-type")
	prefix, after := c.query.Get("prefix"), c.query.Get("start-after")
	if first {
		after = c.query.Get("marker")
	}
	if token := c.query.Get("continuation-token"); token != "" {
		raw, err := base64.URLEncoding.DecodeString(token)
		if err != nil {
			return fail(http.StatusBadRequest, "InvalidArgument", "The continuation token provided is incorrect.")
		}
		after = string(raw)
	}
	out := listing{
		Name: c.name, Prefix: encode(prefix), StartAfter: encode(c.query.Get("start-after")), MaxKeys: most,
		ContinuationToken: c.query.Get("continuation-token"), EncodingType: c.query.Get("encoding-type"),
		Marker: encode(c.query.Get("marker")),
	}
	c.s.mu.Lock()
	for _, key := range slices.Sorted(maps.Keys(c.bucket.objects)) {
		if key <= after || !strings.HasPrefix(key, prefix) {
			continue
		}
		if len(out.Contents) == most {
			out.IsTruncated = true
			break
		}
		o := c.bucket.objects[key]
		out.Contents = append(out.Contents, listed{
			encode(key), o.time.UTC().Format("2006-01-02T15:04:05.000Z"), o.etag, o.kind, o.size, "Standard",
		})
		out.NextMarker = encode(key)
		out.NextContinuationToken = base64.URLEncoding.EncodeToString([]byte(key))
	}
	c.s.mu.Unlock()
	if out.KeyCount = len(out.Contents); !out.IsTruncated || first {
		out.NextContinuationToken = ""
	}
	if !out.IsTruncated || !first {
		out.NextMarker = ""
	}
	return c.xml(out)
}

type versioning struct {
	XMLName xml.Name `xml:"VersioningConfiguration"`
	Status  string   `xml:",omitempty"`
}

func (c *call) versioning() error {
	c.s.mu.Lock()
	v := versioning{Status: c.bucket.versioning}
	c.s.mu.Unlock()
	return c.xml(v)
}
