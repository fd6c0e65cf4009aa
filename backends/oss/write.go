package oss

import (
	"bytes"
	"context"
	"crypto/md5" // what OSS checks a single request by
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"hash"
	"io"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/aliyun/aliyun-oss-go-sdk/oss"

	"github.com/stager-dev/stager/backends"
)

// smallObject is up to which size an object waits in memory for Commit and is then
// one request. Larger ones are on the way before.
const smallObject = 8 << 20

// abortWithin is how long Abort waits for the store.
const abortWithin = 15 * time.Second

// markName is the metadata that holds an upload's mark.
const markName = "stager-write"

// upload is one object on its way: small, kept until Commit, or in parts.
type upload struct {
	b      *bucket
	key    string
	opts   backends.CreateOptions
	length int64           // of its parts
	mark   string          // by which it knows its own object; in the metadata
	ctx    context.Context // Abort works after that of Create ended

	id    string // of the multipart upload; "" when small
	ended bool   // committed or aborted

	mu    sync.Mutex // guards all below
	small []byte
	parts map[int]part
}

type part struct {
	etag string
	size int64
	sum  []byte // CRC-64/ECMA
}

func (b *bucket) newUpload(ctx context.Context, key string, opts backends.CreateOptions) *upload {
	return &upload{
		b: b, key: key, opts: opts, length: b.Facts().PartLength(opts.Size), mark: rand.Text(),
		ctx: context.WithoutCancel(ctx), parts: make(map[int]part),
	}
}

// CreateParts begins an object of known size.
func (b *bucket) CreateParts(ctx context.Context, key string, opts backends.CreateOptions) (backends.PartWriter, error) {
	u := b.newUpload(ctx, key, opts)
	if opts.Size > smallObject {
		if err := u.begin(ctx); err != nil {
			return nil, err
		}
	}
	return u, nil
}

// begin starts the multipart upload.
func (u *upload) begin(ctx context.Context) error {
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

// sdk is the upload as the SDK knows it.
func (u *upload) sdk() oss.InitiateMultipartUploadResult {
	return oss.InitiateMultipartUploadResult{Bucket: u.b.name, Key: u.key, UploadID: u.id}
}

// WritePart sends a part, or keeps it if it is the whole of a small object.
func (u *upload) WritePart(ctx context.Context, off int64, src *io.SectionReader) error {
	if u.id == "" {
		small := make([]byte, src.Size())
		if _, err := io.ReadFull(src, small); err != nil {
			return &backends.LocalError{Err: err}
		}
		u.mu.Lock()
		defer u.mu.Unlock()
		u.small = small
		return nil
	}
	return u.send(ctx, int(off/u.length)+1, src)
}

// send sends a part and sums it on the way; the answer tells what arrived.
func (u *upload) send(ctx context.Context, number int, src *io.SectionReader) error {
	var told http.Header
	opts, err := u.b.with(ctx, oss.GetResponseHeader(&told))
	if err != nil {
		return u.b.explain("write", u.key, err)
	}
	from := newSumming(io.NewSectionReader(src, 0, src.Size()))
	out, err := u.b.client.UploadPart(u.sdk(), from, src.Size(), number, opts...)
	if err != nil {
		return u.b.explain("write", u.key, err)
	}
	sum, err := from.check(src.Size(), told)
	if err != nil {
		return u.b.explain("write", u.key, err)
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.parts[number] = part{out.ETag, src.Size(), sum}
	return nil
}

// summing sums what a request reads, which may go on for a moment after its answer
// came.
type summing struct {
	src io.Reader

	mu sync.Mutex // guards all below
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

// check compares what was sent with what the store says it got, and returns its sum.
// What was broken on the way is worth another try, but not for ever: kind Unknown.
func (s *summing) check(size int64, told http.Header) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.n != size {
		return nil, backends.Errorf(backends.Unavailable, "write", "", "the server said that it has the bytes before all %d were sent", size)
	}
	sent, got := backends.SumOf(backends.CRC64ECMA, s.h), sumOf(told)
	if !got.IsZero() && got != sent {
		return nil, backends.Errorf(backends.Unknown, "write", "", "the bytes that arrived are not those that were sent: their checksum is %s, not %s", got, sent)
	}
	return s.h.Sum(nil), nil
}

// Commit publishes the object. It may be called again after it failed, also when
// the failure was only that the answer got lost.
func (u *upload) Commit(ctx context.Context) (obj backends.Object, err error) {
	if u.ended {
		return obj, backends.Errorf(backends.Invalid, "commit", u.key, "this write has ended")
	}
	size := int64(len(u.small))
	if u.id != "" {
		size = 0
		for _, p := range u.parts {
			size += p.size
		}
	}
	if u.opts.Size >= 0 && size != u.opts.Size {
		return obj, backends.Errorf(backends.Invalid, "commit", u.key, "%d of %d bytes were written", size, u.opts.Size)
	}
	if u.opts.IfAbsent && !u.b.conditional {
		err = u.lookFirst(ctx)
	}
	if err == nil {
		if u.id == "" {
			obj, err = u.put(ctx)
		} else {
			obj, err = u.complete(ctx, size)
		}
	}
	if err != nil {
		if obj, err = u.settle(ctx, err); err != nil {
			return backends.Object{}, err
		}
	}
	u.ended = true
	return obj, nil
}

// lookFirst is what can be done in a bucket that does not decide itself: a key that
// is taken answers as such a bucket would.
func (u *upload) lookFirst(ctx context.Context) error {
	_, err := u.b.head(ctx, u.key)
	if err == nil {
		return &answer{status: http.StatusConflict, code: "FileAlreadyExists"}
	}
	if classify(err) == backends.NotExist && codeOf(err) != "NoSuchBucket" {
		return nil
	}
	return err
}

func (u *upload) put(ctx context.Context) (backends.Object, error) {
	var told http.Header
	digest := md5.Sum(u.small)
	opts, err := u.b.with(ctx, oss.Meta(markName, u.mark), oss.ContentMD5(base64.StdEncoding.EncodeToString(digest[:])), oss.GetResponseHeader(&told))
	if err != nil {
		return backends.Object{}, err
	}
	if u.opts.IfAbsent {
		opts = append(opts, oss.ForbidOverWrite(true))
	}
	size := int64(len(u.small))
	if err := u.b.client.PutObject(u.key, bytes.NewReader(u.small), opts...); err != nil {
		return backends.Object{}, err
	}
	return u.checked(backends.Object{Key: u.key, Size: size, Version: version(told.Get("ETag")), Sum: sumOf(told)})
}

func (u *upload) complete(ctx context.Context, size int64) (backends.Object, error) {
	var (
		told  http.Header
		parts []oss.UploadPart
	)
	for _, number := range slices.Sorted(maps.Keys(u.parts)) {
		parts = append(parts, oss.UploadPart{PartNumber: number, ETag: u.parts[number].etag})
	}
	opts, err := u.b.with(ctx, oss.GetResponseHeader(&told))
	if err != nil {
		return backends.Object{}, err
	}
	if u.opts.IfAbsent {
		opts = append(opts, oss.ForbidOverWrite(true))
	}
	out, err := u.b.client.CompleteMultipartUpload(u.sdk(), parts, opts...)
	if err != nil {
		return backends.Object{}, err
	}
	return u.checked(backends.Object{Key: u.key, Size: size, Version: version(out.ETag), Sum: sumOf(told)})
}

// checked is obj, if its sum is that of what was sent.
func (u *upload) checked(obj backends.Object) (backends.Object, error) {
	sum := backends.CRC64ECMA.New()
	sum.Write(u.small)
	all := sum.Sum(nil)
	for _, number := range slices.Sorted(maps.Keys(u.parts)) {
		p := u.parts[number]
		all = backends.CRC64ECMA.Combine(all, p.sum, p.size)
	}
	sent := backends.Checksum{Algorithm: backends.CRC64ECMA, Value: hex.EncodeToString(all)}
	if !obj.Sum.IsZero() && obj.Sum != sent {
		return obj, backends.Errorf(backends.Corrupt, "commit", u.key, "the store has something else than was sent: its checksum is %s, not %s", obj.Sum, sent)
	}
	return obj, nil
}

// settle finds out what a failed commit came to. After an answer that was lost the
// store says on the next attempt that the key is taken, or the upload gone: by us.
func (u *upload) settle(ctx context.Context, failure error) (backends.Object, error) {
	refused := u.b.explain("commit", u.key, failure)
	taken := classify(failure) == backends.Exist
	if !taken && codeOf(failure) != "NoSuchUpload" {
		return backends.Object{}, refused
	}
	h, err := u.b.head(ctx, u.key)
	switch {
	case err != nil && classify(err) == backends.NotExist:
		if taken { // it was there a moment ago
			return backends.Object{}, backends.Errorf(backends.Unavailable, "commit", u.key, "the key was taken and is free again")
		}
		return backends.Object{}, refused
	case err != nil:
		return backends.Object{}, u.b.explain("commit", u.key, err)
	case h.Get(oss.HTTPHeaderOssMetaPrefix+markName) == u.mark:
		return u.checked(described(u.key, h))
	case u.opts.IfAbsent:
		return backends.Object{}, backends.Errorf(backends.Exist, "commit", u.key, "the key is taken")
	}
	return backends.Object{}, refused
}

// Abort drops the parts that the store holds.
func (u *upload) Abort() error {
	if u.ended {
		return nil
	}
	u.ended, u.small = true, nil
	if u.id == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(u.ctx, abortWithin)
	defer cancel()
	opts, err := u.b.with(ctx)
	if err == nil {
		err = u.b.client.AbortMultipartUpload(u.sdk(), opts...)
	}
	if err == nil || statusOf(err) == http.StatusNotFound {
		return nil
	}
	return u.b.explain("abort", u.key, err)
}
