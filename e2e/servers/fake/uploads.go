package fake

import (
	"crypto/rand"
	"encoding/xml"
	"io"
	"maps"
	"net/http"
	"strconv"
	"time"
)

// upload is an object whose parts are uploaded one by one.
type upload struct {
	key    string
	parts  map[int]Piece
	header map[string]string
	begun  time.Time
}

// Uploads serves the requests of multipart uploads of one object. ok is false for others. complete
// completes an upload.
func (c *Call) Uploads(meta string, complete func(id string) error) (ok bool, err error) {
	id, multi := c.Query["uploadId"]
	switch {
	case c.Method == http.MethodPost && c.Query.Has("uploads"):
		return true, c.beginUpload(meta)
	case c.Method == http.MethodPut && multi:
		return true, c.putPart(id[0])
	case c.Method == http.MethodPost && multi:
		return true, complete(id[0])
	case c.Method == http.MethodGet && multi:
		return true, c.listParts(id[0])
	case c.Method == http.MethodDelete && multi:
		return true, c.abortUpload(id[0])
	}
	return false, nil
}

type begun struct {
	XMLName     xml.Name `xml:"InitiateMultipartUploadResult"`
	Bucket, Key string
	UploadID    string `xml:"UploadId"`
}

func (c *Call) beginUpload(meta string) error {
	if c.ContentLength != 0 {
		return Fail(http.StatusBadRequest, "InvalidArgument", "The request must have no body.")
	}
	u := &upload{key: c.Key, parts: make(map[int]Piece), header: c.NewObject(meta).Header, begun: time.Now()}
	id := rand.Text()
	c.server.Mu.Lock()
	c.Bucket.uploads[id] = u
	c.server.Mu.Unlock()
	return c.XML(begun{Bucket: c.Name, Key: c.Key, UploadID: id})
}

// uploadLocked finds an upload of this key.
func (c *Call) uploadLocked(id string) (*upload, error) {
	u := c.Bucket.uploads[id]
	if u == nil || u.key != c.Key {
		return nil, Fail(http.StatusNotFound, "NoSuchUpload", "The specified upload does not exist.")
	}
	return u, nil
}

func (c *Call) putPart(id string) error {
	number, err := strconv.Atoi(c.Query.Get("partNumber"))
	if err != nil || number < 1 || number > 10_000 {
		return Fail(http.StatusBadRequest, "InvalidArgument", "The part number must be between 1 and 10000.")
	}
	p, err := c.Receive()
	if err != nil {
		return err
	}
	c.server.Mu.Lock()
	u, err := c.uploadLocked(id)
	var old Piece
	if err == nil {
		old, u.parts[number] = u.parts[number], p
	}
	c.server.Mu.Unlock()
	if err != nil {
		p.Remove()
		return err
	}
	if old.path != "" {
		old.Remove() // nothing refers to it
	}
	c.W.Header().Set("ETag", c.server.store.ETag(p.MD5))
	c.server.store.Report(c, p.Sum)
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

// Complete makes the parts of an upload an object, in one step. publish, which runs with Mu held,
// gives it its key, or returns why it cannot. sums are the MD5 sums of the parts.
func (c *Call) Complete(id string, publish func(o *Object, sums [][]byte) error) (*Object, error) {
	var in completion
	if err := xml.NewDecoder(io.LimitReader(c.Body, 4<<20)).Decode(&in); err != nil || len(in.Part) == 0 {
		return nil, Fail(http.StatusBadRequest, "MalformedXML", "The XML is not valid.")
	}
	for i := range in.Part[1:] {
		if in.Part[i].PartNumber >= in.Part[i+1].PartNumber {
			return nil, Fail(http.StatusBadRequest, "InvalidPartOrder", "The list of parts was not in ascending order.")
		}
	}
	c.server.Mu.Lock()
	defer c.server.Mu.Unlock()
	u, err := c.uploadLocked(id)
	if err != nil {
		return nil, err
	}
	rest := maps.Clone(u.parts)
	o := &Object{Header: u.header, Time: time.Now()}
	var sums [][]byte
	for i, want := range in.Part {
		p, ok := rest[want.PartNumber]
		switch {
		case !ok || c.server.store.ETag(p.MD5) != want.ETag:
			return nil, Fail(http.StatusBadRequest, "InvalidPart", "One or more of the specified parts could not be found.")
		case p.Size < c.server.store.SmallestPart && i < len(in.Part)-1:
			return nil, Fail(http.StatusBadRequest, "EntityTooSmall", "A part is smaller than the minimum allowed size.")
		}
		o.Append(p)
		sums = append(sums, p.MD5)
		delete(rest, want.PartNumber)
	}
	if err := c.server.Summed(o); err != nil {
		return nil, err
	}
	if err := publish(o, sums); err != nil {
		return nil, err
	}
	delete(c.Bucket.uploads, id)
	for _, p := range rest {
		p.Remove() // it was sent and not wanted
	}
	return o, nil
}

func (c *Call) abortUpload(id string) error {
	c.server.Mu.Lock()
	u, err := c.uploadLocked(id)
	if err == nil {
		delete(c.Bucket.uploads, id)
	}
	c.server.Mu.Unlock()
	if err != nil {
		return err
	}
	for _, p := range u.parts {
		p.Remove()
	}
	c.W.WriteHeader(http.StatusNoContent)
	return nil
}
