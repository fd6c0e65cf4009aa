package gsfake

import (
	"cmp"
	"compress/gzip"
	"encoding/hex"
	"encoding/json"
	"encoding/xml"
	"hash/crc32"
	"io"
	"net/http"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/stager-dev/stager/e2e/servers/fake"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// metaPrefix is how headers with custom metadata begin.
const metaPrefix = "X-Goog-Meta-"

// validKey applies the rules of the service.
func validKey(key string) error {
	if len(key) > 1024 || !utf8.ValidString(key) || strings.ContainsAny(key, "\r\n") || key == "." || key == ".." || strings.HasPrefix(key, ".well-known/acme-challenge/") {
		return fake.Fail(http.StatusBadRequest, "InvalidArgument", "The object name is not valid.")
	}
	return nil
}

func etag(md5 []byte) string { return `"` + hex.EncodeToString(md5) + `"` }

// verifySums compares the checksums that a request states with those of the bytes.
func verifySums(c *fake.Call, p fake.Piece) error {
	for stated := range strings.SplitSeq(c.Header.Get("X-Goog-Hash"), ",") {
		name, want, _ := strings.Cut(strings.TrimSpace(stated), "=")
		have, known := map[string]string{"": "", "crc32c": encodeSum(p.Sum), "md5": encodeSum(p.MD5)}[name]
		if !known || have != want {
			return fake.Fail(http.StatusBadRequest, "BadDigest", "The %s you specified did not match what we computed.", name)
		}
	}
	return nil
}

// report sets the checksum of a response.
func report(c *fake.Call, sum []byte) {
	c.W.Header().Set("X-Goog-Hash", "crc32c="+encodeSum(c.Reported(sum)))
}

func (c *call) put() error {
	p, err := c.Receive()
	if err != nil {
		return err
	}
	obj := c.NewObject(metaPrefix, p)
	c.s.Mu.Lock()
	old, err := c.publishLocked(obj, c.Header.Get("X-Goog-If-Generation-Match"))
	c.s.Mu.Unlock()
	if err != nil {
		obj.Remove()
		return err
	}
	old.Remove()
	c.W.Header().Set("ETag", etag(p.MD5))
	c.W.Header().Set("X-Goog-Generation", obj.Version)
	report(c.Call, obj.Sum)
	return nil
}

// publishLocked gives the object its key if the current generation is the wanted one; "" is any.
func (c *call) publishLocked(obj *fake.Object, want string) (old *fake.Object, err error) {
	if err := matches(c.Bucket.Objects[c.Key], want); err != nil {
		return nil, err
	}
	c.s.generation++
	obj.Version = strconv.FormatInt(c.s.generation, 10)
	return c.PublishLocked(obj), nil
}

// matches compares the generation of an object, which may be nil, with a precondition.
func matches(is *fake.Object, want string) error {
	if want == "" {
		return nil
	}
	if _, err := strconv.ParseInt(want, 10, 64); err != nil {
		return fake.Fail(http.StatusBadRequest, "InvalidArgument", "A generation must be a number.")
	}
	if is == nil && want != "0" || is != nil && is.Version != want {
		return fake.Fail(http.StatusPreconditionFailed, "PreconditionFailed", "At least one of the pre-conditions you specified did not hold.")
	}
	return nil
}

func (c *call) noObject() error {
	if c.json {
		return fake.Fail(http.StatusNotFound, "NoSuchKey", "No such object: %s/%s", c.Name, c.Key)
	}
	return fake.Fail(http.StatusNotFound, "NoSuchKey", "The specified key does not exist.")
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

func newResource(key string, o *fake.Object) resource {
	r := resource{key, strconv.FormatInt(o.Size, 10), o.Version, o.Time.UTC().Format(fake.TimeFormat), encodeSum(o.Sum), make(map[string]string)}
	for name, value := range o.Header {
		if meta, ok := strings.CutPrefix(name, metaPrefix); ok {
			r.Metadata[strings.ToLower(meta)] = value
		}
	}
	return r
}

// describe answers with the metadata of an object.
func (c *call) describe() error {
	c.s.Mu.Lock()
	obj := c.Bucket.Objects[c.Key]
	c.s.Mu.Unlock()
	if obj == nil {
		return c.noObject()
	}
	return c.send(newResource(c.Key, obj))
}

// get answers GET and HEAD.
func (c *call) get() error {
	check := func(obj *fake.Object) error {
		if obj == nil {
			return c.noObject()
		}
		return matches(obj, cmp.Or(c.Header.Get("X-Goog-If-Generation-Match"), c.Query.Get("ifGenerationMatch")))
	}
	return c.Get(check, func(obj *fake.Object, body io.Reader) (io.Reader, error) {
		h := c.W.Header()
		h.Set("X-Goog-Generation", obj.Version)
		h.Set("X-Goog-Stored-Content-Length", strconv.FormatInt(obj.Size, 10))
		h.Set("X-Goog-Stored-Content-Encoding", "identity")
		report(c.Call, obj.Sum)
		if obj.Header["Content-Encoding"] != "gzip" {
			return body, nil
		}
		h.Set("X-Goog-Stored-Content-Encoding", "gzip")
		if strings.Contains(c.Header.Get("Accept-Encoding"), "gzip") {
			return body, nil
		}
		h.Del("Content-Encoding") // it is decompressed on the way
		h.Del("Content-Length")
		return gzip.NewReader(body)
	}, true)
}

type completed struct {
	XMLName xml.Name `xml:"CompleteMultipartUploadResult"`
	Bucket  string
}

func (c *call) completeUpload(id string) error {
	obj, err := c.Complete(id, func(obj *fake.Object, _ [][]byte) error {
		old, err := c.publishLocked(obj, "")
		old.Remove()
		return err
	})
	if err != nil {
		return err
	}
	report(c.Call, obj.Sum)
	c.W.Header().Set("X-Goog-Generation", obj.Version)
	return c.XML(completed{Bucket: c.Name})
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
		return fake.Fail(http.StatusBadRequest, "InvalidArgument", "The number of source components must be between 1 and 32.")
	}
	obj, err := c.composed(in)
	if err != nil {
		return err
	}
	return c.send(newResource(c.Key, obj))
}

func (c *call) composed(in composition) (*fake.Object, error) {
	c.s.Mu.Lock()
	defer c.s.Mu.Unlock()
	obj := c.NewObject(metaPrefix)
	obj.Header["Content-Type"] = in.Destination.ContentType
	for name, value := range in.Destination.Metadata {
		obj.Header[http.CanonicalHeaderKey(metaPrefix+name)] = value
	}
	for _, from := range in.SourceObjects {
		source := c.Bucket.Objects[from.Name]
		if source == nil || from.Generation != "" && from.Generation != source.Version {
			return nil, fake.Fail(http.StatusNotFound, "NoSuchKey", "Object %s/%s#%s was not found.", c.Name, from.Name, from.Generation)
		}
		if err := obj.AppendCopy(source); err != nil {
			return nil, err
		}
	}
	if err := c.s.Summed(obj); err != nil {
		return nil, err
	}
	old, err := c.publishLocked(obj, c.Query.Get("ifGenerationMatch"))
	if err != nil {
		obj.Remove()
		return nil, err
	}
	old.Remove()
	return obj, nil
}
