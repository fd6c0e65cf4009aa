package oss

import (
	"context"
	"crypto/md5" // OSS verifies single requests with it
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"hash"
	"io"
	"maps"
	"net/http"
	"slices"
	"sync"

	"github.com/aliyun/aliyun-oss-go-sdk/oss"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/internal/objectstore"
)

// markName is the metadata key of an upload's mark.
const markName = "stager-write"

// upload writes one object.
type upload struct {
	b        *bucket
	key      string
	ifAbsent bool
	replaces backends.Version // CreateOptions.IfVersion
	claim    *backends.Claim
	mark     string // identifies the object in its metadata
	id       string // of the multipart upload; "" for a small object

	there map[int]oss.UploadedPart // parts sent by an earlier writer

	// Of a small object: the MD5 that verifies the request, and the CRC-64/ECMA.
	smallMD5, smallSum hash.Hash

	mu    sync.Mutex // guards the fields below
	parts map[int]part
}

var _ objectstore.Uploader = (*upload)(nil)

type part struct {
	etag string
	size int64
	sum  []byte // CRC-64/ECMA
}

func (b *bucket) newUpload(key string, opts backends.CreateOptions) *upload {
	return &upload{b: b, key: key, ifAbsent: opts.IfAbsent, replaces: opts.IfVersion, mark: rand.Text(), parts: make(map[int]part)}
}

// Create implements backends.Sink.
func (b *bucket) Create(ctx context.Context, key string, opts backends.CreateOptions) (backends.Writer, error) {
	return objectstore.Create(ctx, b.newUpload(key, opts), key, opts, b.Capabilities()), nil
}

// CreateParts implements backends.PartCreator.
func (b *bucket) CreateParts(ctx context.Context, key string, opts backends.CreateOptions) (backends.PartWriter, error) {
	return objectstore.CreateParts(ctx, b.newUpload(key, opts), key, opts, b.Capabilities())
}

// Begin starts the multipart upload.
func (u *upload) Begin(ctx context.Context) error {
	opts, err := u.b.with(ctx, oss.Meta(markName, u.mark))
	if err == nil {
		var out oss.InitiateMultipartUploadResult
		if out, err = u.b.client.InitiateMultipartUpload(u.key, opts...); err == nil {
			u.id = out.UploadID
			return nil
		}
	}
	return u.b.explain("create", u.key, err)
}

// sdk returns the upload as the SDK's type.
func (u *upload) sdk() oss.InitiateMultipartUploadResult {
	return oss.InitiateMultipartUploadResult{Bucket: u.b.name, Key: u.key, UploadID: u.id}
}

// Send sends a part and computes its checksum on the way. The response contains the checksum of the
// received bytes.
func (u *upload) Send(ctx context.Context, number int, src *backends.Part) error {
	if p, ok, err := u.has(number, src); err != nil {
		return err
	} else if ok {
		backends.Moved(ctx)
		u.mu.Lock()
		defer u.mu.Unlock()
		u.parts[number] = p
		return nil
	}
	var reported http.Header
	opts, err := u.b.with(ctx, oss.GetResponseHeader(&reported))
	if err != nil {
		return u.b.explain("write", u.key, err)
	}
	from := newSumming(src.Reader())
	out, err := u.b.client.UploadPart(u.sdk(), from, src.Size(), number, opts...)
	if err != nil {
		return u.b.explain("write", u.key, err)
	}
	sum, err := from.check(src.Size(), reported)
	if err != nil {
		return u.b.explain("write", u.key, err)
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.parts[number] = part{out.ETag, src.Size(), sum}
	return nil
}

// summing computes the checksum of the bytes that a request reads. Reading may continue briefly
// after the response.
type summing struct {
	src io.Reader

	mu sync.Mutex // guards the fields below
	h  hash.Hash
	n  int64
}

func newSumming(src io.Reader) *summing { return &summing{src: src, h: backends.CRC64ECMA.New()} }

func (s *summing) Read(p []byte) (int, error) {
	n, err := s.src.Read(p)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.h.Write(p[:n])
	s.n += int64(n)
	return n, err
}

// check compares the sent bytes with what the store reports as received, and returns their
// checksum. Corruption in transit is of kind Unknown: worth a few retries, but not endless ones.
func (s *summing) check(size int64, reported http.Header) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.n != size {
		return nil, backends.Errorf(backends.Unavailable, "write", "", "the server reported success before all %d bytes were sent", size)
	}
	sent, got := backends.SumOf(backends.CRC64ECMA, s.h), sumOf(reported)
	if !got.IsZero() && got != sent {
		return nil, backends.Errorf(backends.Unknown, "write", "", "the received bytes differ from the sent bytes: their checksum is %s, not %s", got, sent)
	}
	return s.h.Sum(nil), nil
}

// Sum starts the checksums of a small object.
func (u *upload) Sum() io.Writer {
	u.smallMD5, u.smallSum = md5.New(), backends.CRC64ECMA.New()
	return io.MultiWriter(u.smallMD5, u.smallSum)
}

// Publish creates the object. After a failure it finds out the outcome.
func (u *upload) Publish(ctx context.Context, small *backends.Part, size int64) (obj backends.Object, err error) {
	if u.replaces != "" {
		obj, err = u.swap(ctx, small, size)
	} else {
		obj, err = u.make(ctx, small, size)
	}
	if err != nil {
		return backends.Object{}, err
	}
	if sent := u.sum(); !obj.Sum.IsZero() && obj.Sum != sent {
		return obj, backends.Errorf(backends.Corrupt, "commit", u.key, "the stored object differs from the sent bytes: its checksum is %s, not %s", obj.Sum, sent)
	}
	obj.Size = size
	return obj, nil
}

// make creates the object. After a failure it finds out the outcome.
func (u *upload) make(ctx context.Context, small *backends.Part, size int64) (obj backends.Object, err error) {
	if u.ifAbsent && !u.b.conditional {
		err = u.checkFirst(ctx)
	}
	if err == nil {
		if u.id == "" {
			obj, err = u.put(ctx, small, size)
		} else {
			obj, err = u.complete(ctx)
		}
	}
	if err != nil {
		return u.resolveCommit(ctx, err)
	}
	return obj, nil
}

// sum returns the checksum of all bytes sent.
func (u *upload) sum() backends.Checksum {
	first := u.smallSum
	if u.id != "" {
		first = backends.CRC64ECMA.New() // of no bytes
	}
	all := first.Sum(nil)
	for _, number := range slices.Sorted(maps.Keys(u.parts)) {
		p := u.parts[number]
		all = backends.CRC64ECMA.Combine(all, p.sum, p.size)
	}
	return backends.Checksum{Algorithm: backends.CRC64ECMA, Value: hex.EncodeToString(all)}
}

// checkFirst checks for an existing key in a bucket that ignores x-oss-forbid-overwrite. It returns
// the error that other buckets would.
func (u *upload) checkFirst(ctx context.Context) error {
	_, err := u.b.head(ctx, u.key)
	if err == nil {
		return &serverError{status: http.StatusConflict, code: "FileAlreadyExists"}
	}
	if classify(err) == backends.NotExist && codeOf(err) != "NoSuchBucket" {
		return nil
	}
	return err
}

func (u *upload) put(ctx context.Context, small *backends.Part, size int64) (backends.Object, error) {
	var reported http.Header
	opts, err := u.b.with(ctx, oss.Meta(markName, u.mark), oss.ContentMD5(base64.StdEncoding.EncodeToString(u.smallMD5.Sum(nil))), oss.GetResponseHeader(&reported))
	if err != nil {
		return backends.Object{}, err
	}
	if u.ifAbsent {
		opts = append(opts, oss.ForbidOverWrite(true))
	}
	// The SDK sets the length only for reader types that it knows.
	if err := u.b.client.PutObject(u.key, io.LimitReader(small.Reader(), size), opts...); err != nil {
		return backends.Object{}, err
	}
	return backends.Object{Key: u.key, Version: version(reported.Get("ETag")), Sum: sumOf(reported)}, nil
}

func (u *upload) complete(ctx context.Context) (backends.Object, error) {
	var (
		reported http.Header
		parts    []oss.UploadPart
	)
	for _, number := range slices.Sorted(maps.Keys(u.parts)) {
		parts = append(parts, oss.UploadPart{PartNumber: number, ETag: u.parts[number].etag})
	}
	opts, err := u.b.with(ctx, oss.GetResponseHeader(&reported))
	if err != nil {
		return backends.Object{}, err
	}
	if u.ifAbsent {
		opts = append(opts, oss.ForbidOverWrite(true))
	}
	out, err := u.b.client.CompleteMultipartUpload(u.sdk(), parts, opts...)
	if err != nil {
		return backends.Object{}, err
	}
	return backends.Object{Key: u.key, Version: version(out.ETag), Sum: sumOf(reported)}, nil
}

// resolveCommit finds out the outcome of a failed commit. If a response was lost, the store reports
// on the next attempt that the key exists or the upload is gone: our own success.
func (u *upload) resolveCommit(ctx context.Context, failure error) (backends.Object, error) {
	refused := u.b.explain("commit", u.key, failure)
	taken := classify(failure) == backends.Exist
	if !taken && codeOf(failure) != "NoSuchUpload" {
		return backends.Object{}, refused
	}
	h, err := u.b.head(ctx, u.key)
	switch {
	case err != nil && classify(err) == backends.NotExist:
		if taken { // it existed a moment ago
			return backends.Object{}, backends.Errorf(backends.Unavailable, "commit", u.key, "the key existed and was removed again")
		}
		return backends.Object{}, refused
	case err != nil:
		return backends.Object{}, u.b.explain("commit", u.key, err)
	case h.Get(oss.HTTPHeaderOssMetaPrefix+markName) == u.mark:
		return described(u.key, h), nil
	case u.ifAbsent:
		return backends.Object{}, backends.Errorf(backends.Exist, "commit", u.key, "the key already exists")
	}
	return backends.Object{}, refused
}

// Drop discards the parts in the store.
func (u *upload) Drop(ctx context.Context) error {
	opts, err := u.b.with(ctx)
	if err == nil {
		err = u.b.client.AbortMultipartUpload(u.sdk(), opts...)
	}
	if err == nil || statusOf(err) == http.StatusNotFound {
		return nil
	}
	return u.b.explain("abort", u.key, err)
}
