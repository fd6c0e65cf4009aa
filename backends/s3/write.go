package s3

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"io"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/stager-dev/stager/backends"
)

// smallObject is up to which size an object waits in memory for Commit and is then
// one request. Larger ones are on the way before.
const smallObject = 8 << 20

// abortWithin is how long Abort waits for the store.
const abortWithin = 15 * time.Second

// upload is one object on its way: small, kept until Commit, or in parts.
type upload struct {
	b      *bucket
	key    string
	opts   backends.CreateOptions
	length int64           // of its parts
	mark   string          // by which it knows its own object; in the metadata
	ctx    context.Context // Abort works after that of Create ended

	id     string // of the multipart upload; "" when small
	summed bool   // its parts carry checksums
	ended  bool   // committed or aborted

	mu    sync.Mutex // guards all below
	small []byte
	parts map[int32]part
}

type part struct {
	etag *string
	size int64
	sum  []byte // CRC-64/NVME; nil when not summed
}

func (b *bucket) newUpload(ctx context.Context, key string, opts backends.CreateOptions) *upload {
	return &upload{
		b: b, key: key, opts: opts, length: b.Facts().PartLength(opts.Size), mark: rand.Text(),
		ctx: context.WithoutCancel(ctx), parts: make(map[int32]part),
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
	in := &s3.CreateMultipartUploadInput{Bucket: &u.b.name, Key: &u.key, RequestPayer: u.b.payer, Metadata: u.metadata()}
	err := u.b.withSum(func(sum bool) error {
		u.summed, in.ChecksumAlgorithm, in.ChecksumType = sum, "", ""
		if sum {
			in.ChecksumAlgorithm, in.ChecksumType = types.ChecksumAlgorithmCrc64nvme, types.ChecksumTypeFullObject
		}
		out, err := u.b.client.CreateMultipartUpload(ctx, in)
		if err == nil {
			u.id = value(out.UploadId)
		}
		return err
	})
	if err != nil {
		return u.b.explain("create", u.key, err)
	}
	return nil
}

func (u *upload) metadata() map[string]string { return map[string]string{markName: u.mark} }

const markName = "stager-write"

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
	return u.send(ctx, int32(off/u.length)+1, src)
}

// send reads the part twice when it is to carry a checksum, which stands before the
// bytes: cheaper than memory for all parts under way.
func (u *upload) send(ctx context.Context, number int32, src *io.SectionReader) error {
	p := part{size: src.Size()}
	in := &s3.UploadPartInput{
		Bucket: &u.b.name, Key: &u.key, UploadId: &u.id, PartNumber: &number, RequestPayer: u.b.payer,
		Body: io.NewSectionReader(src, 0, p.size), ContentLength: &p.size,
	}
	if u.summed {
		h := backends.CRC64NVME.New()
		if _, err := io.Copy(h, backends.Unpaced(src)); err != nil {
			return &backends.LocalError{Err: err}
		}
		p.sum = h.Sum(nil)
		in.ChecksumCRC64NVME = new(base64.StdEncoding.EncodeToString(p.sum))
	}
	out, err := u.b.client.UploadPart(ctx, in)
	if err != nil {
		return u.b.explain("write", u.key, err)
	}
	p.etag = out.ETag
	u.mu.Lock()
	defer u.mu.Unlock()
	u.parts[number] = p
	return nil
}

// Commit publishes the object. It may be called again after it failed, also when
// the failure was only that the answer got lost.
func (u *upload) Commit(ctx context.Context) (obj backends.Object, err error) {
	if u.ended {
		return obj, backends.Errorf(backends.Invalid, "commit", u.key, "this write has ended")
	}
	if u.id == "" {
		obj, err = u.put(ctx)
	} else {
		obj, err = u.complete(ctx)
	}
	if err != nil {
		if obj, err = u.settle(ctx, err); err != nil {
			return backends.Object{}, err
		}
	}
	u.ended = true
	return obj, nil
}

func (u *upload) put(ctx context.Context) (backends.Object, error) {
	size := int64(len(u.small))
	if u.opts.Size >= 0 && size != u.opts.Size {
		return backends.Object{}, backends.Errorf(backends.Invalid, "commit", u.key, "%d of %d bytes were written", size, u.opts.Size)
	}
	in := &s3.PutObjectInput{
		Bucket: &u.b.name, Key: &u.key, RequestPayer: u.b.payer, Metadata: u.metadata(), ContentLength: &size, IfNoneMatch: u.ifNoneMatch(),
	}
	var out *s3.PutObjectOutput
	err := u.b.withSum(func(sum bool) (err error) {
		in.Body, in.ChecksumCRC64NVME = bytes.NewReader(u.small), nil
		if sum {
			h := backends.CRC64NVME.New()
			h.Write(u.small)
			in.ChecksumCRC64NVME = new(base64.StdEncoding.EncodeToString(h.Sum(nil)))
		}
		out, err = u.b.client.PutObject(ctx, in)
		return err
	})
	if err != nil {
		return backends.Object{}, err
	}
	return backends.Object{
		Key: u.key, Size: size, Version: version(out.ETag),
		Sum: wholeSum(out.ChecksumType, out.ChecksumCRC64NVME, out.ChecksumCRC32C, out.ChecksumCRC32, out.ChecksumSHA256, out.ChecksumSHA1),
	}, nil
}

func (u *upload) complete(ctx context.Context) (backends.Object, error) {
	in := &s3.CompleteMultipartUploadInput{
		Bucket: &u.b.name, Key: &u.key, UploadId: &u.id, RequestPayer: u.b.payer, IfNoneMatch: u.ifNoneMatch(),
		MultipartUpload: &types.CompletedMultipartUpload{},
	}
	var size int64
	sum := backends.CRC64NVME.New().Sum(nil) // of nothing
	for _, number := range slices.Sorted(maps.Keys(u.parts)) {
		p := u.parts[number]
		done := types.CompletedPart{PartNumber: new(number), ETag: p.etag}
		if u.summed {
			done.ChecksumCRC64NVME = new(base64.StdEncoding.EncodeToString(p.sum))
			sum = backends.CRC64NVME.Combine(sum, p.sum, p.size)
		}
		size += p.size
		in.MultipartUpload.Parts = append(in.MultipartUpload.Parts, done)
	}
	if u.opts.Size >= 0 && size != u.opts.Size {
		return backends.Object{}, backends.Errorf(backends.Invalid, "commit", u.key, "%d of %d bytes were written", size, u.opts.Size)
	}
	if u.summed {
		in.ChecksumType, in.ChecksumCRC64NVME, in.MpuObjectSize = types.ChecksumTypeFullObject, new(base64.StdEncoding.EncodeToString(sum)), &size
	}
	out, err := u.b.client.CompleteMultipartUpload(ctx, in)
	if err != nil {
		return backends.Object{}, err
	}
	obj := backends.Object{
		Key: u.key, Size: size, Version: version(out.ETag),
		Sum: wholeSum(out.ChecksumType, out.ChecksumCRC64NVME, out.ChecksumCRC32C, out.ChecksumCRC32, out.ChecksumSHA256, out.ChecksumSHA1),
	}
	if told := obj.Sum; u.summed && told.Algorithm == backends.CRC64NVME && told.Value != hex.EncodeToString(sum) {
		return obj, backends.Errorf(backends.Corrupt, "commit", u.key, "the store put the parts together to something else: its checksum is %s, not crc64nvme:%x", told, sum)
	}
	return obj, nil
}

func (u *upload) ifNoneMatch() *string {
	if u.opts.IfAbsent {
		return new("*")
	}
	return nil
}

// settle finds out what a failed commit came to. After an answer that was lost the
// store says on the next attempt that the key is taken, or the upload gone: by us.
func (u *upload) settle(ctx context.Context, failure error) (backends.Object, error) {
	refused := u.b.explain("commit", u.key, failure)
	a := answerOf(failure)
	taken := a.status == http.StatusPreconditionFailed || a.code == "PreconditionFailed" ||
		a.status == http.StatusConflict || a.code == "ConditionalRequestConflict"
	if !taken && a.code != "NoSuchUpload" {
		return backends.Object{}, refused
	}
	there, err := u.b.head(ctx, u.key)
	switch {
	case err != nil && answerOf(err).status == http.StatusNotFound:
		if a.status == http.StatusPreconditionFailed { // it was there a moment ago
			return backends.Object{}, backends.Errorf(backends.Unavailable, "commit", u.key, "the key was taken and is free again")
		}
		return backends.Object{}, refused
	case err != nil:
		return backends.Object{}, u.b.explain("commit", u.key, err)
	case there.Metadata[markName] == u.mark:
		return backends.Object{
			Key: u.key, Size: value(there.ContentLength), ModTime: value(there.LastModified), Version: version(there.ETag),
			Sum: wholeSum(there.ChecksumType, there.ChecksumCRC64NVME, there.ChecksumCRC32C, there.ChecksumCRC32, there.ChecksumSHA256, there.ChecksumSHA1),
		}, nil
	case taken && u.opts.IfAbsent:
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
	_, err := u.b.client.AbortMultipartUpload(ctx, &s3.AbortMultipartUploadInput{Bucket: &u.b.name, Key: &u.key, UploadId: &u.id, RequestPayer: u.b.payer})
	if err == nil || answerOf(err).status == http.StatusNotFound {
		return nil
	}
	return u.b.explain("abort", u.key, err)
}

// withSum runs a request with a checksum if writes are to carry one. In checksum
// mode auto a store that refuses it, and takes the same request without, is not
// bothered again.
func (b *bucket) withSum(request func(sum bool) error) error {
	sum := b.sums.Load()
	err := request(sum)
	if !sum || !b.sumsMayGo || err == nil {
		return err
	}
	a := answerOf(err)
	if a.status != http.StatusNotImplemented && a.code != "InvalidArgument" && a.code != "InvalidRequest" && a.code != "NotImplemented" {
		return err
	}
	if err := request(false); err != nil {
		return err
	}
	if b.sums.Swap(false) {
		b.log.Info("the store takes no checksums with what is written; it gets none from now on", "bucket", b.name, "answer", shorten(a.message))
	}
	return nil
}
