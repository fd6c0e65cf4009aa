package ossfake

import (
	"crypto/md5" // what ETags are made of
	"encoding/base64"
	"encoding/binary"
	"encoding/xml"
	"fmt"
	"hash/crc64"
	"io"
	"net/http"
	"strconv"

	"github.com/stager-dev/stager/e2e/servers/fake"
)

var ecma = crc64.MakeTable(crc64.ECMA)

const (
	metaPrefix = "X-Oss-Meta-"       // how headers with custom metadata begin
	typeHeader = "X-Oss-Object-Type" // Normal or Multipart
)

func etag(md5 []byte) string { return fmt.Sprintf(`"%X"`, md5) }

// verifySum compares the checksum that a request states with that of the bytes.
func verifySum(c *fake.Call, p fake.Piece) error {
	if want := c.Header.Get("Content-MD5"); want != "" && want != base64.StdEncoding.EncodeToString(p.MD5) {
		return fake.Fail(http.StatusBadRequest, "InvalidDigest", "The Content-MD5 you specified was invalid.")
	}
	return nil
}

// report sets the checksum of a response.
func report(c *fake.Call, sum []byte) {
	c.W.Header().Set("x-oss-hash-crc64ecma", strconv.FormatUint(binary.BigEndian.Uint64(c.Reported(sum)), 10))
}

func (c *call) put() error {
	p, err := c.Receive()
	if err != nil {
		return err
	}
	obj := c.NewObject(metaPrefix, p)
	obj.Version, obj.Header[typeHeader] = etag(p.MD5), "Normal"
	c.s.Mu.Lock()
	err = c.publishLocked(obj)
	c.s.Mu.Unlock()
	if err != nil {
		obj.Remove()
		return err
	}
	c.W.Header().Set("ETag", obj.Version)
	report(c.Call, obj.Sum)
	return nil
}

// publishLocked gives the object its key, if it may.
func (c *call) publishLocked(obj *fake.Object) error {
	if c.Bucket.Objects[c.Key] != nil && c.Bucket.Versioning == "" && c.Header.Get("x-oss-forbid-overwrite") == "true" {
		return fake.Fail(http.StatusConflict, "FileAlreadyExists", "The object you specified already exists and can not be overwritten.")
	}
	c.PublishLocked(obj).Remove()
	return nil
}

// get answers GET and HEAD. A range that cannot be satisfied is answered with the whole object unless
// the client asks for standard behaviour, as the service does.
func (c *call) get() error {
	check := func(obj *fake.Object) error {
		if obj == nil {
			return fake.Fail(http.StatusNotFound, "NoSuchKey", "The specified key does not exist.")
		}
		if want := c.Header.Get("If-Match"); want != "" && want != obj.Version {
			return fake.Fail(http.StatusPreconditionFailed, "PreconditionFailed", "At least one of the pre-conditions you specified did not hold.")
		}
		return nil
	}
	return c.Get(check, func(obj *fake.Object, body io.Reader) (io.Reader, error) {
		c.W.Header().Set("ETag", obj.Version)
		c.W.Header().Set("Accept-Ranges", "bytes")
		report(c.Call, obj.Sum)
		return body, nil
	}, c.Header.Get("x-oss-range-behavior") == "standard")
}

type completed struct {
	XMLName  xml.Name `xml:"CompleteMultipartUploadResult"`
	Location string
	Bucket   string
	Key      string
	ETag     string
}

func (c *call) completeUpload(id string) error {
	obj, err := c.Complete(id, func(obj *fake.Object, parts [][]byte) error {
		sums := md5.New()
		for _, sum := range parts {
			sums.Write(sum)
		}
		obj.Version, obj.Header[typeHeader] = fmt.Sprintf(`"%X-%d"`, sums.Sum(nil), len(parts)), "Multipart"
		return c.publishLocked(obj)
	})
	if err != nil {
		return err
	}
	c.W.Header().Set("ETag", obj.Version)
	report(c.Call, obj.Sum)
	return c.XML(completed{Bucket: c.Name, Key: c.Key, ETag: obj.Version})
}
