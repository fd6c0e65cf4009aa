package fake

import (
	"cmp"
	"encoding/xml"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// TimeFormat is that of times in listings.
const TimeFormat = "2006-01-02T15:04:05.000Z"

// PageSize returns how many entries a page may have, by a parameter of the request.
func (c *Call) PageSize(parameter string, otherwise int) (int, error) {
	text := c.Query.Get(parameter)
	if text == "" {
		return otherwise, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > 1000 {
		return 0, Fail(http.StatusBadRequest, "InvalidArgument", "%s must be between 1 and 1000.", parameter)
	}
	return n, nil
}

// Page returns the objects whose keys begin with prefix and come after another key, at most n. With
// a delimiter it returns those keys up to the next one, without an object, for all that have one
// behind prefix. more reports whether others follow.
func (c *Call) Page(prefix, delimiter, after string, n int) (keys []string, objects []*Object, more bool) {
	c.server.Mu.Lock()
	defer c.server.Mu.Unlock()
	for _, key := range slices.Sorted(maps.Keys(c.Bucket.Objects)) {
		rest, ok := strings.CutPrefix(key, prefix)
		if !ok {
			continue
		}
		object := c.Bucket.Objects[key]
		if i := strings.Index(rest, delimiter); delimiter != "" && i >= 0 {
			key, object = prefix+rest[:i+len(delimiter)], nil
		}
		switch {
		case key <= after || len(keys) > 0 && key == keys[len(keys)-1]:
		case len(keys) == n:
			return keys, objects, true
		default:
			keys, objects = append(keys, key), append(objects, object)
		}
	}
	return keys, objects, false
}

// Encode returns s as the request wants keys to be written: for a URL, or as they are.
func (c *Call) Encode(s string) string {
	if c.Query.Get("encoding-type") != "url" {
		return s
	}
	return strings.ReplaceAll(url.QueryEscape(s), "+", "%20")
}

type uploadList struct {
	XMLName            xml.Name `xml:"ListMultipartUploadsResult"`
	Bucket             string
	Prefix             string
	EncodingType       string `xml:",omitempty"`
	IsTruncated        bool
	NextKeyMarker      string `xml:",omitempty"`
	NextUploadIDMarker string `xml:"NextUploadIdMarker,omitempty"`
	Upload             []uploadEntry
}

type uploadEntry struct {
	Key       string
	UploadID  string `xml:"UploadId"`
	Initiated string
}

// ListUploads answers with one page of the multipart uploads of a bucket.
func (c *Call) ListUploads() error {
	most, err := c.PageSize("max-uploads", 1000)
	if err != nil {
		return err
	}
	out := uploadList{Bucket: c.Name, Prefix: c.Encode(c.Query.Get("prefix")), EncodingType: c.Query.Get("encoding-type")}
	c.server.Mu.Lock()
	all := c.Bucket.uploads
	ids := slices.SortedFunc(maps.Keys(all), func(a, b string) int {
		return cmp.Or(strings.Compare(all[a].key, all[b].key), strings.Compare(a, b))
	})
	for _, id := range ids {
		u := all[id]
		after := cmp.Or(strings.Compare(u.key, c.Query.Get("key-marker")), strings.Compare(id, c.Query.Get("upload-id-marker")))
		if after <= 0 || !strings.HasPrefix(u.key, c.Query.Get("prefix")) {
			continue
		}
		if len(out.Upload) == most {
			out.IsTruncated = true
			break
		}
		out.Upload = append(out.Upload, uploadEntry{c.Encode(u.key), id, u.begun.UTC().Format(TimeFormat)})
		out.NextKeyMarker, out.NextUploadIDMarker = c.Encode(u.key), id
	}
	c.server.Mu.Unlock()
	return c.XML(out)
}

type partList struct {
	XMLName              xml.Name `xml:"ListPartsResult"`
	Bucket, Key          string
	UploadID             string `xml:"UploadId"`
	EncodingType         string `xml:",omitempty"`
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
func (c *Call) listParts(id string) error {
	most, err := c.PageSize("max-parts", 1000)
	if err != nil {
		return err
	}
	after, _ := strconv.Atoi(c.Query.Get("part-number-marker")) // without it from the first on
	out := partList{Bucket: c.Name, Key: c.Encode(c.Key), UploadID: id, EncodingType: c.Query.Get("encoding-type")}
	c.server.Mu.Lock()
	u, err := c.uploadLocked(id)
	var all map[int]Piece
	if err == nil {
		all = maps.Clone(u.parts)
	}
	c.server.Mu.Unlock()
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
		out.Part = append(out.Part, partEntry{number, p.came.UTC().Format(TimeFormat), c.server.store.ETag(p.MD5), p.Size})
		out.NextPartNumberMarker = number
	}
	return c.XML(out)
}

// XML answers with a document.
func (c *Call) XML(v any) error {
	text, err := xml.Marshal(v)
	if err != nil {
		return err
	}
	c.W.Header().Set("Content-Type", "application/xml")
	_, _ = io.WriteString(c.W, xml.Header) // the client may have left
	_, _ = c.W.Write(text)
	return nil
}
