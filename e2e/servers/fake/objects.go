package fake

import (
	"crypto/md5" // what ETags are made of
	"crypto/rand"
	"errors"
	"io"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"
)

// Bucket is guarded by its server's Mu.
type Bucket struct {
	Public     bool
	Versioning string // "", Enabled or Suspended
	Objects    map[string]*Object
	uploads    map[string]*upload
}

// Object is one state of one key; it does not change.
type Object struct {
	Size    int64
	Version string            // what conditions are compared with
	Sum     []byte            // of all bytes
	Header  map[string]string // what responses repeat, by canonical name
	Time    time.Time

	pieces []Piece
}

// Piece is a file with some of an object's bytes.
type Piece struct {
	Size     int64
	MD5, Sum []byte

	path string
	came time.Time
}

// NewObject returns an object with the bytes of p and the headers of the request that describe it:
// Content-Type and those that begin with meta.
func (c *Call) NewObject(meta string, p ...Piece) *Object {
	o := &Object{Header: map[string]string{"Content-Type": "application/octet-stream"}, Time: time.Now()}
	for name := range c.Header {
		if name == "Content-Type" || name == "Content-Encoding" || strings.HasPrefix(name, meta) {
			o.Header[name] = c.Header.Get(name)
		}
	}
	o.Append(p...)
	if len(p) == 1 {
		o.Sum = p[0].Sum
	}
	return o
}

// Append adds bytes.
func (o *Object) Append(pieces ...Piece) {
	for _, p := range pieces {
		o.pieces, o.Size = append(o.pieces, p), o.Size+p.Size
	}
}

// AppendCopy adds the bytes of another object, which may be removed later.
func (o *Object) AppendCopy(from *Object) error {
	for _, p := range from.pieces {
		shared := p.path
		p.path += "+" + rand.Text()
		if err := os.Link(shared, p.path); err != nil {
			return err
		}
		o.Append(p)
	}
	return nil
}

// Receive writes the body of the request to a file.
func (c *Call) Receive() (p Piece, err error) {
	if c.ContentLength < 0 {
		return p, Fail(http.StatusLengthRequired, "MissingContentLength", "You must provide the Content-Length HTTP header.")
	}
	p, err = c.ReceiveFrom(c.Body)
	if err == nil && p.Size != c.ContentLength {
		p.Remove()
		err = Fail(http.StatusBadRequest, "IncompleteBody", "The body had %d of %d bytes.", p.Size, c.ContentLength)
	}
	return p, err
}

// ReceiveFrom writes a part of the body of the request to a file.
func (c *Call) ReceiveFrom(body io.Reader) (p Piece, err error) {
	f, err := os.CreateTemp(c.server.dir, "piece-")
	if err != nil {
		return p, err
	}
	p.path, p.came = f.Name(), time.Now()
	defer func() {
		err = errors.Join(err, f.Close())
		if err != nil {
			p.Remove()
		}
	}()
	if c.has(FlipUpload) {
		body = &flipped{Reader: body}
	}
	m, h := md5.New(), c.server.store.Sum()
	if p.Size, err = io.Copy(io.MultiWriter(f, m, h), body); err != nil {
		return p, Fail(http.StatusBadRequest, "IncompleteBody", "The body had %d bytes: %v", p.Size, err)
	}
	p.MD5, p.Sum = m.Sum(nil), h.Sum(nil)
	return p, c.server.store.Verify(c, p)
}

// Reported returns the checksum that a response reports.
func (c *Call) Reported(sum []byte) []byte {
	if c.has(WrongCRC) {
		sum = slices.Clone(sum)
		sum[len(sum)-1] ^= 1
	}
	return sum
}

// Remove removes the file; a reader has it open.
func (p Piece) Remove() { _ = os.Remove(p.path) } // it may be gone with the directory

// Remove removes the files of an object, which may be nil; a reader has them open.
func (o *Object) Remove() {
	if o == nil {
		return
	}
	for _, p := range o.pieces {
		p.Remove()
	}
}

// PublishLocked gives the object its key and returns the one that had it.
func (c *Call) PublishLocked(o *Object) (old *Object) {
	old, c.Bucket.Objects[c.Key] = c.Bucket.Objects[c.Key], o
	return old
}

// Delete removes the object of the request and reports whether there was one.
func (c *Call) Delete() bool {
	c.server.Mu.Lock()
	old := c.Bucket.Objects[c.Key]
	delete(c.Bucket.Objects, c.Key)
	c.server.Mu.Unlock()
	old.Remove()
	if old != nil {
		c.W.WriteHeader(http.StatusNoContent)
	}
	return old != nil
}

// Drop removes the objects of a bucket whose keys begin with prefix.
func (s *Server) Drop(name, prefix string) {
	s.Mu.Lock()
	var dropped []*Object
	for key, o := range s.Buckets[name].Objects {
		if strings.HasPrefix(key, prefix) {
			dropped = append(dropped, o)
			delete(s.Buckets[name].Objects, key)
		}
	}
	s.Mu.Unlock()
	for _, o := range dropped {
		o.Remove()
	}
}

// Keys returns the keys of a bucket's objects, and how many of its uploads are neither completed nor
// aborted.
func (s *Server) Keys(bucket string) (keys []string, uploads int) {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	b := s.Buckets[bucket]
	return slices.Sorted(maps.Keys(b.Objects)), len(b.uploads)
}

// Summed computes the checksum of the object. It reads the bytes again, since a checksum made of the
// parts' checksums would prove nothing to a client that makes the same.
func (s *Server) Summed(o *Object) error {
	body, err := o.open(0, o.Size)
	if err != nil {
		return err
	}
	defer body.Close()
	h := s.store.Sum()
	_, err = io.Copy(h, body)
	o.Sum = h.Sum(nil)
	return err
}
