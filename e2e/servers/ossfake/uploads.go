package ossfake

import (
	"cmp"
	"crypto/md5" // what ETags are made of
	"crypto/rand"
	"encoding/hex"
	"encoding/xml"
	"fmt"
	"hash/crc64"
	"io"
	"maps"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// upload is an object whose parts come one by one.
type upload struct {
	key    string
	parts  map[int]piece
	header map[string]string
	begun  time.Time
}

// smallestPart is what all parts but the last must have.
const smallestPart = 100 << 10

type begun struct {
	XMLName  xml.Name `xml:"InitiateMultipartUploadResult"`
	Bucket   string
	Key      string
	UploadID string `xml:"UploadId"`
}

func (c *call) beginUpload() error {
	id := rand.Text()
	c.s.mu.Lock()
	c.bucket.uploads[id] = &upload{key: c.key, parts: make(map[int]piece), header: c.described(), begun: time.Now()}
	c.s.mu.Unlock()
	return c.xml(begun{Bucket: c.name, Key: c.key, UploadID: id})
}

// uploadLocked finds an upload of this key.
func (c *call) uploadLocked(id string) (*upload, error) {
	u := c.bucket.uploads[id]
	if u == nil || u.key != c.key {
		return nil, fail(http.StatusNotFound, "NoSuchUpload", "The specified upload does not exist. The upload ID may be invalid, or the upload may have been aborted or completed.")
	}
	return u, nil
}

func (c *call) putPart(id string) error {
	number, err := strconv.Atoi(c.query.Get("partNumber"))
	if err != nil || number < 1 || number > 10_000 {
		return fail(http.StatusBadRequest, "InvalidArgument", "Part number must be an integer between 1 and 10000, inclusive.")
	}
	p, err := c.receive()
	if err != nil {
		return err
	}
	c.s.mu.Lock()
	u, err := c.uploadLocked(id)
	var old piece
	if err == nil {
		old, u.parts[number] = u.parts[number], p
	}
	c.s.mu.Unlock()
	if err != nil {
		_ = os.Remove(p.path) // the error says more
		return err
	}
	if old.path != "" {
		_ = os.Remove(old.path) // nobody knows it
	}
	c.w.Header().Set("ETag", p.etag())
	c.tellSum(p.crc)
	return nil
}

func (p piece) etag() string { return `"` + strings.ToUpper(hex.EncodeToString(p.md5)) + `"` }

type complete struct {
	XMLName xml.Name `xml:"CompleteMultipartUpload"`
	Part    []struct {
		PartNumber int
		ETag       string
	}
}

type completed struct {
	XMLName  xml.Name `xml:"CompleteMultipartUploadResult"`
	Location string
	Bucket   string
	Key      string
	ETag     string
}

func (c *call) completeUpload(id string) error {
	var in complete
	if err := xml.NewDecoder(io.LimitReader(c.Body, 4<<20)).Decode(&in); err != nil || len(in.Part) == 0 {
		return fail(http.StatusBadRequest, "MalformedXML", "The XML you provided was not well-formed or did not validate against our published schema.")
	}
	c.s.mu.Lock()
	u, err := c.uploadLocked(id)
	var parts map[int]piece
	if err == nil {
		parts = maps.Clone(u.parts)
	}
	c.s.mu.Unlock()
	if err != nil {
		return err
	}
	obj := &object{kind: "Multipart", time: time.Now(), header: u.header}
	for i := range in.Part[1:] {
		if in.Part[i].PartNumber >= in.Part[i+1].PartNumber {
			return fail(http.StatusBadRequest, "InvalidPartOrder", "The list of parts was not in ascending order.")
		}
	}
	sums := md5.New()
	for i, want := range in.Part {
		p, ok := parts[want.PartNumber]
		switch {
		case !ok || p.etag() != want.ETag:
			return fail(http.StatusBadRequest, "InvalidPart", "One or more of the specified parts could not be found or the specified entity tag might not have matched the part's entity tag.")
		case p.size < smallestPart && i < len(in.Part)-1:
			return fail(http.StatusBadRequest, "EntityTooSmall", "Your proposed upload smaller than the minimum allowed size.")
		}
		sums.Write(p.md5)
		obj.pieces, obj.size = append(obj.pieces, p), obj.size+p.size
		delete(parts, want.PartNumber)
	}
	obj.etag = fmt.Sprintf(`"%X-%d"`, sums.Sum(nil), len(in.Part))
	if err := obj.sum(); err != nil {
		return err
	}
	if err := c.finish(id, obj); err != nil {
		return err
	}
	for _, p := range parts {
		_ = os.Remove(p.path) // it was sent and not wanted
	}
	c.w.Header().Set("ETag", obj.etag)
	c.tellSum(obj.crc)
	return c.xml(completed{Bucket: c.name, Key: c.key, ETag: obj.etag})
}

// sum reads the bytes again, since a sum made of the parts' sums would prove nothing
// to a client that makes the same.
func (o *object) sum() error {
	body, err := o.open(0, o.size)
	if err != nil {
		return err
	}
	defer body.Close()
	h := crc64.New(ecma)
	_, err = io.Copy(h, body)
	o.crc = h.Sum64()
	return err
}

// finish publishes the object in place of the upload, in one step.
func (c *call) finish(id string, obj *object) error {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	if _, err := c.uploadLocked(id); err != nil { // another was faster
		return err
	}
	old := c.bucket.objects[c.key]
	if old != nil && c.bucket.versioning == "" && c.Header.Get("x-oss-forbid-overwrite") == "true" {
		return fail(http.StatusConflict, "FileAlreadyExists", "The object you specified already exists and can not be overwritten.")
	}
	delete(c.bucket.uploads, id)
	c.bucket.objects[c.key] = obj
	old.remove()
	return nil
}

func (c *call) abortUpload(id string) error {
	c.s.mu.Lock()
	u, err := c.uploadLocked(id)
	if err == nil {
		delete(c.bucket.uploads, id)
	}
	c.s.mu.Unlock()
	if err != nil {
		return err
	}
	for _, p := range u.parts {
		_ = os.Remove(p.path) // it may be gone with the directory
	}
	c.w.WriteHeader(http.StatusNoContent)
	return nil
}

type uploads struct {
	XMLName            xml.Name `xml:"ListMultipartUploadsResult"`
	Bucket             string
	Prefix             string
	EncodingType       string `xml:",omitempty"`
	IsTruncated        bool
	NextKeyMarker      string `xml:",omitempty"`
	NextUploadIDMarker string `xml:"NextUploadIdMarker,omitempty"`
	Upload             []underway
}

type underway struct {
	Key       string
	UploadID  string `xml:"UploadId"`
	Initiated string
}

const listTime = "2006-01-02T15:04:05.000Z"

// most is how many entries a page may have, by a parameter of the request.
func (c *call) most(parameter string) (int, error) {
	text := c.query.Get(parameter)
	if text == "" {
		return 1000, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > 1000 {
		return 0, fail(http.StatusBadRequest, "InvalidArgument", "Argument %s must be an integer between 1 and 1000.", parameter)
	}
	return n, nil
}

// listUploads answers with one page.
func (c *call) listUploads() error {
	most, err := c.most("max-uploads")
	if err != nil {
		return err
	}
	out := uploads{Bucket: c.name, Prefix: escape(c.query.Get("prefix")), EncodingType: c.query.Get("encoding-type")}
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
		out.Upload = append(out.Upload, underway{escape(u.key), id, u.begun.UTC().Format(listTime)})
		out.NextKeyMarker, out.NextUploadIDMarker = escape(u.key), id
	}
	c.s.mu.Unlock()
	return c.xml(out)
}

type parts struct {
	XMLName              xml.Name `xml:"ListPartsResult"`
	Bucket               string
	Key                  string
	UploadID             string `xml:"UploadId"`
	EncodingType         string `xml:",omitempty"`
	NextPartNumberMarker int
	IsTruncated          bool
	Part                 []sent
}

type sent struct {
	PartNumber   int
	LastModified string
	ETag         string
	Size         int64
}

// listParts answers with one page.
func (c *call) listParts(id string) error {
	most, err := c.most("max-parts")
	if err != nil {
		return err
	}
	after, _ := strconv.Atoi(c.query.Get("part-number-marker")) // without it from the first on
	out := parts{Bucket: c.name, Key: escape(c.key), UploadID: id, EncodingType: c.query.Get("encoding-type")}
	var all map[int]piece
	c.s.mu.Lock()
	u, err := c.uploadLocked(id)
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
		out.Part = append(out.Part, sent{number, p.came.UTC().Format(listTime), p.etag(), p.size})
		out.NextPartNumberMarker = number
	}
	return c.xml(out)
}
