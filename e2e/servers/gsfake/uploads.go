package gsfake

import (
	"crypto/rand"
	"encoding/xml"
	"io"
	"maps"
	"net/http"
	"os"
	"slices"
	"strconv"
	"time"
)

// upload is an object whose parts are uploaded one by one.
type upload struct {
	key   string
	parts map[int]piece
	obj   *object
	begun time.Time
}

// smallestPart is the minimum size of all parts but the last.
const smallestPart = 5 << 20

func (c *call) beginUpload() error {
	if c.ContentLength != 0 {
		return fail(http.StatusBadRequest, "InvalidArgument", "The request must have no body.")
	}
	id := rand.Text()
	c.s.mu.Lock()
	c.bucket.uploads[id] = &upload{key: c.key, parts: make(map[int]piece), obj: c.described(), begun: time.Now()}
	c.s.mu.Unlock()
	return c.send(struct {
		XMLName     xml.Name `xml:"InitiateMultipartUploadResult"`
		Bucket, Key string
		UploadID    string `xml:"UploadId"`
	}{Bucket: c.name, Key: "see the request", UploadID: id})
}

// uploadLocked finds an upload of this key.
func (c *call) uploadLocked(id string) (*upload, error) {
	u := c.bucket.uploads[id]
	if u == nil || u.key != c.key {
		return nil, fail(http.StatusNotFound, "NoSuchUpload", "The requested upload was not found.")
	}
	return u, nil
}

func (c *call) putPart(id string) error {
	number, err := strconv.Atoi(c.query.Get("partNumber"))
	if err != nil || number < 1 || number > 10_000 {
		return fail(http.StatusBadRequest, "InvalidArgument", "The part number must be between 1 and 10000.")
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
		_ = os.Remove(old.path) // nothing refers to it
	}
	c.w.Header().Set("ETag", p.etag())
	c.stateSum(p.crc)
	return nil
}

// completion is the body of a request to complete an upload.
type completion struct {
	XMLName xml.Name `xml:"CompleteMultipartUpload"`
	Part    []struct {
		PartNumber int
		ETag       string
	}
}

func (c *call) completeUpload(id string) error {
	var in completion
	if err := xml.NewDecoder(io.LimitReader(c.Body, 4<<20)).Decode(&in); err != nil || len(in.Part) == 0 {
		return fail(http.StatusBadRequest, "MalformedCompleteMultipartUploadRequest", "The XML is not valid.")
	}
	for i := range in.Part[1:] {
		if in.Part[i].PartNumber >= in.Part[i+1].PartNumber {
			return fail(http.StatusBadRequest, "InvalidPartOrder", "The list of parts was not in ascending order.")
		}
	}
	obj, err := c.assemble(id, in)
	if err != nil {
		return err
	}
	c.stateSum(obj.crc)
	c.w.Header().Set("X-Goog-Generation", strconv.FormatInt(obj.generation, 10))
	return c.send(struct {
		XMLName xml.Name `xml:"CompleteMultipartUploadResult"`
		Bucket  string
	}{Bucket: c.name})
}

// assemble publishes the parts as an object, in one step.
func (c *call) assemble(id string, in completion) (*object, error) {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	u, err := c.uploadLocked(id)
	if err != nil {
		return nil, err
	}
	parts := maps.Clone(u.parts)
	obj := &object{header: u.obj.header, metadata: u.obj.metadata}
	for i, want := range in.Part {
		p, ok := parts[want.PartNumber]
		switch {
		case !ok || p.etag() != want.ETag:
			return nil, fail(http.StatusBadRequest, "InvalidPart", "One or more of the specified parts could not be found.")
		case p.size < smallestPart && i < len(in.Part)-1:
			return nil, fail(http.StatusBadRequest, "EntityTooSmall", "A part is smaller than the minimum allowed size.")
		}
		obj.pieces, obj.size = append(obj.pieces, p), obj.size+p.size
		delete(parts, want.PartNumber)
	}
	if err := obj.sum(); err != nil {
		return nil, err
	}
	old, err := c.publishLocked(obj, "")
	if err != nil {
		return nil, err
	}
	delete(c.bucket.uploads, id)
	old.remove()
	for _, number := range slices.Sorted(maps.Keys(parts)) {
		_ = os.Remove(parts[number].path) // it was sent and not wanted
	}
	return obj, nil
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
