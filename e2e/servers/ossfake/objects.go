package ossfake

import (
	"crypto/md5" // what ETags are made of
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc64"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"
)

var ecma = crc64.MakeTable(crc64.ECMA)

// bucket is guarded by its server's mu.
type bucket struct {
	public     bool
	versioning string // "", Enabled or Suspended
	objects    map[string]*object
	uploads    map[string]*upload
}

// object is one state of one key; it does not change.
type object struct {
	pieces []piece
	size   int64
	etag   string // with quotes
	crc    uint64
	kind   string // Normal or Multipart
	time   time.Time
	header map[string]string // Content-Type and x-oss-meta-*
}

// piece is a file with some of an object's bytes.
type piece struct {
	path string
	size int64
	md5  []byte
	crc  uint64
	came time.Time
}

// receive writes the request's body to a file.
func (c *call) receive() (p piece, err error) {
	if c.ContentLength < 0 {
		return p, fail(http.StatusLengthRequired, "MissingContentLength", "You must provide the Content-Length HTTP header.")
	}
	f, err := os.CreateTemp(c.s.dir, "piece-")
	if err != nil {
		return p, err
	}
	p.path, p.came = f.Name(), time.Now()
	defer func() {
		err = errors.Join(err, f.Close())
		if err != nil {
			_ = os.Remove(p.path) // the error says more
		}
	}()
	var body io.Reader = c.Body
	if c.fault != nil && c.fault.Kind == FlipUpload {
		body = &flipped{Reader: body}
	}
	m, h := md5.New(), crc64.New(ecma)
	if p.size, err = io.Copy(io.MultiWriter(f, m, h), body); err != nil || p.size != c.ContentLength {
		return p, fail(http.StatusBadRequest, "IncompleteBody", "The request's body came to %d of %d bytes.", p.size, c.ContentLength)
	}
	p.md5, p.crc = m.Sum(nil), h.Sum64()
	if want := c.Header.Get("Content-MD5"); want != "" && want != base64.StdEncoding.EncodeToString(p.md5) {
		return p, fail(http.StatusBadRequest, "InvalidDigest", "The Content-MD5 you specified was invalid.")
	}
	return p, nil
}

// tellSum says what bytes the server has.
func (c *call) tellSum(crc uint64) {
	if c.fault != nil && c.fault.Kind == WrongCRC {
		crc++
	}
	c.w.Header().Set("x-oss-hash-crc64ecma", strconv.FormatUint(crc, 10))
}

// described are the headers that come back with an object.
func (c *call) described() map[string]string {
	header := map[string]string{"Content-Type": "application/octet-stream"}
	for name := range c.Header {
		if name == "Content-Type" || strings.HasPrefix(name, "X-Oss-Meta-") {
			header[name] = c.Header.Get(name)
		}
	}
	return header
}

func (c *call) put() error {
	p, err := c.receive()
	if err != nil {
		return err
	}
	obj := &object{
		pieces: []piece{p}, size: p.size, crc: p.crc, etag: `"` + strings.ToUpper(hex.EncodeToString(p.md5)) + `"`,
		kind: "Normal", time: time.Now(), header: c.described(),
	}
	if err := c.publish(obj); err != nil {
		return err
	}
	c.w.Header().Set("ETag", obj.etag)
	c.tellSum(obj.crc)
	return nil
}

// publish gives the object its key, in one step.
func (c *call) publish(obj *object) error {
	c.s.mu.Lock()
	old := c.bucket.objects[c.key]
	taken := old != nil && c.bucket.versioning == "" && c.Header.Get("x-oss-forbid-overwrite") == "true"
	if !taken {
		c.bucket.objects[c.key] = obj
	}
	c.s.mu.Unlock()
	if taken {
		obj.remove()
		return fail(http.StatusConflict, "FileAlreadyExists", "The object you specified already exists and can not be overwritten.")
	}
	old.remove()
	return nil
}

// remove removes the files; who reads them has them open.
func (o *object) remove() {
	if o == nil {
		return
	}
	for _, p := range o.pieces {
		_ = os.Remove(p.path) // it may be gone with the directory
	}
}

func (c *call) delete() error {
	c.s.mu.Lock()
	old := c.bucket.objects[c.key]
	delete(c.bucket.objects, c.key)
	c.s.mu.Unlock()
	old.remove()
	c.w.WriteHeader(http.StatusNoContent)
	return nil
}

// Drop removes the objects of a bucket whose keys begin with prefix.
func (s *Server) Drop(name, prefix string) {
	s.mu.Lock()
	var dropped []*object
	for key, o := range s.buckets[name].objects {
		if strings.HasPrefix(key, prefix) {
			dropped = append(dropped, o)
			delete(s.buckets[name].objects, key)
		}
	}
	s.mu.Unlock()
	for _, o := range dropped {
		o.remove()
	}
}

// get answers GET and HEAD.
func (c *call) get() error {
	obj, body, first, n, status, err := c.lookup()
	if err != nil {
		return err
	}
	defer body.Close()
	h := c.w.Header()
	for name, value := range obj.header {
		h.Set(name, value)
	}
	h.Set("ETag", obj.etag)
	h.Set("Last-Modified", obj.time.UTC().Format(http.TimeFormat))
	h.Set("x-oss-object-type", obj.kind)
	h.Set("Accept-Ranges", "bytes")
	h.Set("Content-Length", strconv.FormatInt(n, 10))
	c.tellSum(obj.crc)
	if status == http.StatusPartialContent {
		h.Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", first, first+n-1, obj.size))
	}
	c.w.WriteHeader(status)
	if c.Method == http.MethodHead {
		return nil
	}
	from := io.LimitReader(body, n)
	if c.fault != nil {
		from = c.fault.body(c, from, n)
	}
	if _, err := io.Copy(c.w, from); err != nil {
		return http.ErrAbortHandler
	}
	return nil
}

// lookup finds the object and opens the range of it that is asked for.
func (c *call) lookup() (obj *object, body *opened, first, n int64, status int, err error) {
	c.s.mu.Lock()
	defer c.s.mu.Unlock() // until it is open, so that it is not removed before
	if obj = c.bucket.objects[c.key]; obj == nil {
		return nil, nil, 0, 0, 0, fail(http.StatusNotFound, "NoSuchKey", "The specified key does not exist.")
	}
	if want := c.Header.Get("If-Match"); want != "" && want != obj.etag {
		return nil, nil, 0, 0, 0, fail(http.StatusPreconditionFailed, "PreconditionFailed", "At least one of the pre-conditions you specified did not hold.")
	}
	status, n = http.StatusOK, obj.size
	if text := c.Header.Get("Range"); text != "" && c.Method == http.MethodGet && (c.fault == nil || c.fault.Kind != IgnoreRange) {
		f, l, ok := parseRange(text, obj.size)
		switch {
		case ok:
			first, n, status = f, l, http.StatusPartialContent
		case c.Header.Get("x-oss-range-behavior") == "standard":
			return nil, nil, 0, 0, 0, fail(http.StatusRequestedRangeNotSatisfiable, "InvalidRange", "The requested range cannot be satisfied.")
		} // else the whole object, as the service does
	}
	body, err = obj.open(first, n)
	return obj, body, first, n, status, err
}

// parseRange understands bytes=a- and bytes=a-b.
func parseRange(text string, size int64) (first, n int64, ok bool) {
	from, to, ok := strings.Cut(strings.TrimPrefix(text, "bytes="), "-")
	first, err := strconv.ParseInt(from, 10, 64)
	last := size - 1
	if to != "" && err == nil {
		var l int64
		l, err = strconv.ParseInt(to, 10, 64)
		last = min(last, l)
	}
	return first, last - first + 1, ok && err == nil && first < size && last >= first
}

// opened is a range of an object whose files are open.
type opened struct {
	io.Reader
	files []*os.File
}

func (o *object) open(first, n int64) (*opened, error) {
	r := new(opened)
	var parts []io.Reader
	at := int64(0)
	for _, p := range o.pieces {
		from, to := max(first-at, 0), min(first+n-at, p.size)
		at += p.size
		if from >= to {
			continue
		}
		f, err := os.Open(p.path)
		if err != nil {
			return nil, errors.Join(err, r.Close())
		}
		r.files = append(r.files, f)
		parts = append(parts, io.NewSectionReader(f, from, to-from))
	}
	r.Reader = io.MultiReader(parts...)
	return r, nil
}

func (o *opened) Close() error {
	var errs []error
	for _, f := range o.files {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}
