package gsfake

import (
	"compress/gzip"
	"crypto/md5" // what ETags are made of
	"crypto/rand"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// bucket is guarded by its server's mu.
type bucket struct {
	public  bool
	objects map[string]*object
	uploads map[string]*upload
}

// object is one state of one key; it does not change.
type object struct {
	pieces     []piece
	size       int64
	generation int64
	crc        uint32
	time       time.Time
	header     map[string]string // Content-Type, Content-Encoding
	metadata   map[string]string
}

// piece is a file with some of an object's bytes.
type piece struct {
	path string
	size int64
	md5  []byte
	crc  uint32
	came time.Time
}

func (p piece) etag() string { return `"` + hex.EncodeToString(p.md5) + `"` }

// validKey applies the rules of the service.
func validKey(key string) error {
	if len(key) > 1024 || !utf8.ValidString(key) || strings.ContainsAny(key, "\r\n") || key == "." || key == ".." || strings.HasPrefix(key, ".well-known/acme-challenge/") {
		return fail(http.StatusBadRequest, "InvalidArgument", "The object name is not valid.")
	}
	return nil
}

func encodeCRC(crc uint32) string {
	return base64.StdEncoding.EncodeToString(binary.BigEndian.AppendUint32(nil, crc))
}

// receive writes the body of the request to a file.
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
	m, h := md5.New(), crc32.New(castagnoli)
	if p.size, err = io.Copy(io.MultiWriter(f, m, h), body); err != nil || p.size != c.ContentLength {
		return p, fail(http.StatusBadRequest, "IncompleteBody", "The body had %d of %d bytes.", p.size, c.ContentLength)
	}
	p.md5, p.crc = m.Sum(nil), h.Sum32()
	for _, stated := range strings.Split(c.Header.Get("X-Goog-Hash"), ",") {
		name, want, _ := strings.Cut(strings.TrimSpace(stated), "=")
		have, known := map[string]string{"": "", "crc32c": encodeCRC(p.crc), "md5": base64.StdEncoding.EncodeToString(p.md5)}[name]
		if !known || have != want {
			return p, fail(http.StatusBadRequest, "BadDigest", "The %s you specified did not match what we computed.", name)
		}
	}
	return p, nil
}

// stateSum sets the checksum of a response.
func (c *call) stateSum(crc uint32) {
	if c.fault != nil && c.fault.Kind == WrongCRC {
		crc++
	}
	c.w.Header().Set("X-Goog-Hash", "crc32c="+encodeCRC(crc))
}

// described returns an object without bytes by the headers of a request.
func (c *call) described() *object {
	o := &object{header: map[string]string{"Content-Type": "application/octet-stream"}, metadata: make(map[string]string)}
	for name := range c.Header {
		if name == "Content-Type" || name == "Content-Encoding" {
			o.header[name] = c.Header.Get(name)
		}
		if meta, ok := strings.CutPrefix(name, "X-Goog-Meta-"); ok {
			o.metadata[strings.ToLower(meta)] = c.Header.Get(name)
		}
	}
	return o
}

func (c *call) put() error {
	p, err := c.receive()
	if err != nil {
		return err
	}
	obj := c.described()
	obj.pieces, obj.size, obj.crc = []piece{p}, p.size, p.crc
	c.s.mu.Lock()
	old, err := c.publishLocked(obj, c.Header.Get("X-Goog-If-Generation-Match"))
	c.s.mu.Unlock()
	if err != nil {
		obj.remove()
		return err
	}
	old.remove()
	c.w.Header().Set("ETag", p.etag())
	c.w.Header().Set("X-Goog-Generation", strconv.FormatInt(obj.generation, 10))
	c.stateSum(obj.crc)
	return nil
}

// publishLocked gives the object its key if the current generation is the wanted one; "" is any.
func (c *call) publishLocked(obj *object, want string) (old *object, err error) {
	old = c.bucket.objects[c.key]
	if err := matches(old, want); err != nil {
		return nil, err
	}
	c.s.generation++
	obj.generation, obj.time = c.s.generation, time.Now()
	c.bucket.objects[c.key] = obj
	return old, nil
}

// matches compares the generation of an object, which may be nil, with a precondition.
func matches(is *object, want string) error {
	if want == "" {
		return nil
	}
	n, err := strconv.ParseInt(want, 10, 64)
	if err != nil {
		return fail(http.StatusBadRequest, "InvalidArgument", "A generation must be a number.")
	}
	if is == nil && n != 0 || is != nil && is.generation != n {
		return fail(http.StatusPreconditionFailed, "PreconditionFailed", "At least one of the pre-conditions you specified did not hold.")
	}
	return nil
}

// remove removes the files; a reader has them open.
func (o *object) remove() {
	if o == nil {
		return
	}
	for _, p := range o.pieces {
		_ = os.Remove(p.path) // it may be gone with the directory
	}
}

func (c *call) noObject() error {
	if c.json {
		return fail(http.StatusNotFound, "NoSuchKey", "No such object: %s/%s", c.name, c.key)
	}
	return fail(http.StatusNotFound, "NoSuchKey", "The specified key does not exist.")
}

func (c *call) delete() error {
	c.s.mu.Lock()
	old := c.bucket.objects[c.key]
	delete(c.bucket.objects, c.key)
	c.s.mu.Unlock()
	if old == nil {
		return c.noObject()
	}
	old.remove()
	c.w.WriteHeader(http.StatusNoContent)
	return nil
}

// resource is an object in the JSON API.
type resource struct {
	Name        string            `json:"name"`
	Size        string            `json:"size"`
	Generation  string            `json:"generation"`
	TimeCreated string            `json:"timeCreated"`
	CRC32C      string            `json:"crc32c"`
	Metadata    map[string]string `json:"metadata,omitempty"`
}

func (o *object) resource(key string) resource {
	return resource{
		key, strconv.FormatInt(o.size, 10), strconv.FormatInt(o.generation, 10),
		o.time.UTC().Format("2006-01-02T15:04:05.000Z"), encodeCRC(o.crc), o.metadata,
	}
}

// describe answers with the metadata of an object.
func (c *call) describe() error {
	c.s.mu.Lock()
	obj := c.bucket.objects[c.key]
	c.s.mu.Unlock()
	if obj == nil {
		return c.noObject()
	}
	return c.send(obj.resource(c.key))
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
	for name, value := range obj.metadata {
		h.Set("X-Goog-Meta-"+name, value)
	}
	h.Set("X-Goog-Generation", strconv.FormatInt(obj.generation, 10))
	h.Set("X-Goog-Stored-Content-Length", strconv.FormatInt(obj.size, 10))
	h.Set("X-Goog-Stored-Content-Encoding", "identity")
	h.Set("Last-Modified", obj.time.UTC().Format(http.TimeFormat))
	h.Set("Content-Length", strconv.FormatInt(n, 10))
	c.stateSum(obj.crc)
	if status == http.StatusPartialContent {
		h.Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", first, first+n-1, obj.size))
	}
	from := io.LimitReader(body, n)
	if obj.header["Content-Encoding"] == "gzip" {
		h.Set("X-Goog-Stored-Content-Encoding", "gzip")
		if !strings.Contains(c.Header.Get("Accept-Encoding"), "gzip") { // decompressed on the way
			h.Del("Content-Encoding")
			h.Del("Content-Length")
			unzipped, err := gzip.NewReader(from)
			if err != nil {
				return err
			}
			from = io.LimitReader(unzipped, 1<<30)
		}
	}
	c.w.WriteHeader(status)
	if c.Method == http.MethodHead {
		return nil
	}
	if c.fault != nil {
		from = c.fault.body(c, from, n)
	}
	if _, err := io.Copy(c.w, from); err != nil {
		return http.ErrAbortHandler
	}
	return nil
}

// lookup finds the object and opens the requested range.
func (c *call) lookup() (obj *object, body *opened, first, n int64, status int, err error) {
	c.s.mu.Lock()
	defer c.s.mu.Unlock() // until it is open, so that it is not removed before
	if obj = c.bucket.objects[c.key]; obj == nil {
		return nil, nil, 0, 0, 0, c.noObject()
	}
	if err := matches(obj, c.Header.Get("X-Goog-If-Generation-Match")); err != nil {
		return nil, nil, 0, 0, 0, err
	}
	status, n = http.StatusOK, obj.size
	if text := c.Header.Get("Range"); text != "" && c.Method == http.MethodGet && (c.fault == nil || c.fault.Kind != IgnoreRange) {
		f, l, ok := parseRange(text, obj.size)
		if !ok {
			return nil, nil, 0, 0, 0, fail(http.StatusRequestedRangeNotSatisfiable, "InvalidRange", "The requested range cannot be satisfied.")
		}
		first, n, status = f, l, http.StatusPartialContent
	}
	body, err = obj.open(first, n)
	return obj, body, first, n, status, err
}

// parseRange parses bytes=a- and bytes=a-b.
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

// sum reads the bytes again, since a sum made of the parts' sums would prove nothing to a client that
// makes the same.
func (o *object) sum() error {
	body, err := o.open(0, o.size)
	if err != nil {
		return err
	}
	defer body.Close()
	h := crc32.New(castagnoli)
	_, err = io.Copy(h, body)
	o.crc = h.Sum32()
	return err
}

// composition is the body of a request to compose.
type composition struct {
	SourceObjects []struct{ Name, Generation string }
	Destination   struct {
		ContentType string
		Metadata    map[string]string
	}
}

// compose creates an object from the bytes of others, in one step.
func (c *call) compose() error {
	var in composition
	dec := json.NewDecoder(io.LimitReader(c.Body, 1<<20))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&in); err != nil || len(in.SourceObjects) < 1 || len(in.SourceObjects) > 32 {
		return fail(http.StatusBadRequest, "InvalidArgument", "The number of source components must be between 1 and 32.")
	}
	obj, err := c.composed(in)
	if err != nil {
		return err
	}
	return c.send(obj.resource(c.key))
}

func (c *call) composed(in composition) (*object, error) {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	obj := &object{header: map[string]string{"Content-Type": in.Destination.ContentType}, metadata: in.Destination.Metadata}
	for _, from := range in.SourceObjects {
		source := c.bucket.objects[from.Name]
		if source == nil || from.Generation != "" && from.Generation != strconv.FormatInt(source.generation, 10) {
			return nil, fail(http.StatusNotFound, "NoSuchKey", "Object %s/%s#%s was not found.", c.name, from.Name, from.Generation)
		}
		for _, p := range source.pieces {
			shared := p.path
			p.path += "+" + rand.Text()
			if err := os.Link(shared, p.path); err != nil {
				return nil, err
			}
			obj.pieces, obj.size = append(obj.pieces, p), obj.size+p.size
		}
	}
	if err := obj.sum(); err != nil {
		return nil, err
	}
	old, err := c.publishLocked(obj, c.query.Get("ifGenerationMatch"))
	if err != nil {
		obj.remove()
		return nil, err
	}
	old.remove()
	return obj, nil
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
