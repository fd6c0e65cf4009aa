package gsfake

import (
	"cmp"
	"encoding/base64"
	"encoding/xml"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// most returns how many entries a page may have, by a parameter of the request.
func (c *call) most(parameter string) (int, error) {
	text := c.query.Get(parameter)
	if text == "" {
		return 1000, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > 1000 {
		return 0, fail(http.StatusBadRequest, "InvalidArgument", "%s must be between 1 and 1000.", parameter)
	}
	return n, nil
}

// list answers with one page of objects.
func (c *call) list() error {
	most, err := c.most("maxResults")
	if err != nil {
		return err
	}
	after, err := base64.URLEncoding.DecodeString(c.query.Get("pageToken"))
	if err != nil {
		return fail(http.StatusBadRequest, "InvalidArgument", "Invalid page token.")
	}
	glob := globbing(c.query.Get("matchGlob"))
	var out struct {
		NextPageToken string     `json:"nextPageToken,omitempty"`
		Items         []resource `json:"items,omitempty"`
	}
	c.s.mu.Lock()
	looked, last := 0, ""
	for _, key := range slices.Sorted(maps.Keys(c.bucket.objects)) {
		if key <= string(after) || !strings.HasPrefix(key, c.query.Get("prefix")) {
			continue
		}
		if looked++; looked > most { // also what does not match the glob, so pages may be short
			out.NextPageToken = base64.URLEncoding.EncodeToString([]byte(last))
			break
		}
		last = key
		if glob.MatchString(key) {
			item := c.bucket.objects[key].resource(key)
			item.Metadata = nil
			out.Items = append(out.Items, item)
		}
	}
	c.s.mu.Unlock()
	return c.send(out)
}

// globbing returns the regular expression of a glob of "*" and "**".
func globbing(glob string) *regexp.Regexp {
	if glob == "" {
		glob = "**"
	}
	text := strings.ReplaceAll(regexp.QuoteMeta(glob), `\*\*`, ".*")
	return regexp.MustCompile("(?s)^" + strings.ReplaceAll(text, `\*`, "[^/]*") + "$")
}

// listBuckets answers with the buckets of the project.
func (c *call) listBuckets(who bool) error {
	switch {
	case c.Method != http.MethodGet || !c.json:
		return fail(http.StatusNotImplemented, "NotImplemented", "This request to no bucket is not known here.")
	case !who:
		return fail(http.StatusUnauthorized, "AccessDenied", "Anonymous caller does not have storage.buckets.list access to the Google Cloud project.")
	case c.query.Get("project") != Project:
		return fail(http.StatusForbidden, "AccessDenied", "The account does not have storage.buckets.list access to the Google Cloud project.")
	}
	type item struct {
		Name string `json:"name"`
	}
	var out struct {
		Items []item `json:"items,omitempty"`
	}
	c.s.mu.Lock()
	for _, name := range slices.Sorted(maps.Keys(c.s.buckets)) {
		out.Items = append(out.Items, item{name})
	}
	c.s.mu.Unlock()
	return c.send(out)
}

type uploadList struct {
	XMLName            xml.Name `xml:"ListMultipartUploadsResult"`
	Bucket             string
	EncodingType       string `xml:",omitempty"`
	IsTruncated        bool
	NextKeyMarker      string
	NextUploadIDMarker string `xml:"NextUploadIdMarker,omitempty"`
	Upload             []uploadEntry
}

type uploadEntry struct {
	Key       string
	UploadID  string `xml:"UploadId"`
	Initiated string
}

const listTime = "2006-01-02T15:04:05.000Z"

// listUploads answers with one page of multipart uploads.
func (c *call) listUploads() error {
	most, err := c.most("max-uploads")
	if err != nil {
		return err
	}
	encode := func(s string) string { return s }
	if c.query.Get("encoding-type") == "url" {
		encode = url.QueryEscape
	}
	out := uploadList{Bucket: c.name, EncodingType: c.query.Get("encoding-type")}
	c.s.mu.Lock()
	all := c.bucket.uploads
	ids := slices.SortedFunc(maps.Keys(all), func(a, b string) int {
		return cmp.Or(strings.Compare(all[a].key, all[b].key), strings.Compare(a, b))
	})
	for _, id := range ids {
		u := all[id]
		after := cmp.Or(strings.Compare(u.key, c.query.Get("key-marker")), strings.Compare(id, c.query.Get("upload-id-marker")))
		if after <= 0 || !strings.HasPrefix(u.key, c.query.Get("prefix")) {
			continue
		}
		if len(out.Upload) == most {
			out.IsTruncated = true
			break
		}
		out.Upload = append(out.Upload, uploadEntry{encode(u.key), id, u.begun.UTC().Format(listTime)})
		out.NextKeyMarker, out.NextUploadIDMarker = encode(u.key), id
	}
	c.s.mu.Unlock()
	return c.send(out)
}

type partList struct {
	XMLName              xml.Name `xml:"ListPartsResult"`
	Bucket, Key          string
	UploadID             string `xml:"UploadId"`
	NextPartNumberMarker int
	IsTruncated          bool
	Part                 []partEntry
}

type partEntry struct {
	PartNumber   int
	LastModified string
	ETag         string
	Size         int64
}

// listParts answers with one page of the parts of an upload.
func (c *call) listParts(id string) error {
	most, err := c.most("max-parts")
	if err != nil {
		return err
	}
	after, _ := strconv.Atoi(c.query.Get("part-number-marker")) // without it from the first on
	out := partList{Bucket: c.name, Key: c.key, UploadID: id}
	c.s.mu.Lock()
	u, err := c.uploadLocked(id)
	var all map[int]piece
	if err == nil {
		all = maps.Clone(u.parts)
	}
	c.s.mu.Unlock()
	if err != nil {
		return err
	}
	for _, number := range slices.Sorted(maps.Keys(all)) {
		if number <= after {
			continue
		}
		if len(out.Part) == most {
			out.IsTruncated = true
			break
		}
		p := all[number]
		out.Part = append(out.Part, partEntry{number, p.came.UTC().Format(listTime), p.etag(), p.size})
		out.NextPartNumberMarker = number
	}
	return c.send(out)
}
