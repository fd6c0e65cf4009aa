package ossfake

import (
	"encoding/base64"
	"encoding/xml"
	"maps"
	"net/http"
	"slices"

	"github.com/stager-dev/stager/e2e/servers/fake"
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
	Delimiter             string `xml:",omitempty"`
	Contents              []listed
	CommonPrefixes        []common
	KeyCount              int
}

// common is a directory, in a listing with a delimiter.
type common struct{ Prefix string }

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
	most, err := c.PageSize("max-keys", 100)
	if err != nil {
		return err
	}
	if e := c.Query.Get("encoding-type"); e != "" && e != "url" {
		return fake.Fail(http.StatusBadRequest, "InvalidArgument", "Argument encoding-type is url.")
	}
	first := !c.Query.Has("list-type")
	prefix, after := c.Query.Get("prefix"), c.Query.Get("start-after")
	if first {
		after = c.Query.Get("marker")
	}
	if token := c.Query.Get("continuation-token"); token != "" {
		raw, err := base64.URLEncoding.DecodeString(token)
		if err != nil {
			return fake.Fail(http.StatusBadRequest, "InvalidArgument", "The continuation token provided is incorrect.")
		}
		after = string(raw)
	}
	out := listing{
		Name: c.Name, Prefix: c.Encode(prefix), StartAfter: c.Encode(c.Query.Get("start-after")), MaxKeys: most,
		ContinuationToken: c.Query.Get("continuation-token"), EncodingType: c.Query.Get("encoding-type"),
		Marker: c.Encode(c.Query.Get("marker")), Delimiter: c.Encode(c.Query.Get("delimiter")),
	}
	keys, objects, more := c.Page(prefix, c.Query.Get("delimiter"), after, most)
	out.IsTruncated = more
	for i, key := range keys {
		if o := objects[i]; o != nil {
			out.Contents = append(out.Contents, listed{
				c.Encode(key), o.Time.UTC().Format(fake.TimeFormat), o.Version, o.Header[typeHeader], o.Size, "Standard",
			})
		} else {
			out.CommonPrefixes = append(out.CommonPrefixes, common{c.Encode(key)})
		}
		out.NextMarker = c.Encode(key)
		out.NextContinuationToken = base64.URLEncoding.EncodeToString([]byte(key))
	}
	if out.KeyCount = len(keys); !out.IsTruncated || first {
		out.NextContinuationToken = ""
	}
	if !out.IsTruncated || !first {
		out.NextMarker = ""
	}
	return c.XML(out)
}

type bucketList struct {
	XMLName xml.Name       `xml:"ListAllMyBucketsResult"`
	Buckets []listedBucket `xml:"Buckets>Bucket"`
}

type listedBucket struct{ Name string }

// listBuckets answers with all buckets, on one page.
func (c *call) listBuckets(who string) error {
	switch {
	case c.Method != http.MethodGet || c.Key != "":
		return fake.Fail(http.StatusNotImplemented, "NotImplemented", "This request to no bucket is not known here.")
	case who == "":
		return fake.Fail(http.StatusForbidden, "AccessDenied", "You have no right to access this object because of bucket acl.")
	}
	var out bucketList
	c.s.Mu.Lock()
	for _, name := range slices.Sorted(maps.Keys(c.s.Buckets)) {
		out.Buckets = append(out.Buckets, listedBucket{name})
	}
	c.s.Mu.Unlock()
	return c.XML(out)
}

type versioning struct {
	XMLName xml.Name `xml:"VersioningConfiguration"`
	Status  string   `xml:",omitempty"`
}

func (c *call) versioning() error {
	c.s.Mu.Lock()
	v := versioning{Status: c.Bucket.Versioning}
	c.s.Mu.Unlock()
	return c.XML(v)
}
