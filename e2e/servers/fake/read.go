package fake

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
)

// Get answers GET and HEAD. check compares the object, which is nil if there is none, with the
// request. describe adds headers to those of the object, and may change the body. A range that cannot
// be satisfied is an error if refuse is set; otherwise the response has the whole object.
func (c *Call) Get(check func(*Object) error, describe func(*Object, io.Reader) (io.Reader, error), refuse bool) error {
	obj, body, first, n, status, err := c.lookup(check, refuse)
	if err != nil {
		return err
	}
	defer body.Close()
	h := c.W.Header()
	for name, value := range obj.Header {
		h.Set(name, value)
	}
	h.Set("Last-Modified", obj.Time.UTC().Format(http.TimeFormat))
	h.Set("Content-Length", strconv.FormatInt(n, 10))
	if status == http.StatusPartialContent {
		h.Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", first, first+n-1, obj.Size))
	}
	from, err := describe(obj, io.LimitReader(body, n))
	if err != nil {
		return err
	}
	c.W.WriteHeader(status)
	if c.Method == http.MethodHead {
		return nil
	}
	if _, err := io.Copy(c.W, c.broken(from, n)); err != nil {
		return http.ErrAbortHandler
	}
	return nil
}

// lookup finds the object and opens the requested range.
func (c *Call) lookup(check func(*Object) error, refuse bool) (obj *Object, body *opened, first, n int64, status int, err error) {
	c.server.Mu.Lock()
	defer c.server.Mu.Unlock() // until it is open, so that it is not removed before
	obj = c.Bucket.Objects[c.Key]
	if err := check(obj); err != nil {
		return nil, nil, 0, 0, 0, err
	}
	status, n = http.StatusOK, obj.Size
	if text := c.Header.Get("Range"); text != "" && c.Method == http.MethodGet && !c.has(IgnoreRange) {
		f, l, ok := parseRange(text, obj.Size)
		switch {
		case ok:
			first, n, status = f, l, http.StatusPartialContent
		case refuse:
			return nil, nil, 0, 0, 0, Fail(http.StatusRequestedRangeNotSatisfiable, "InvalidRange", "The requested range cannot be satisfied.")
		}
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

func (o *Object) open(first, n int64) (*opened, error) {
	r := new(opened)
	var parts []io.Reader
	at := int64(0)
	for _, p := range o.pieces {
		from, to := max(first-at, 0), min(first+n-at, p.Size)
		at += p.Size
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
