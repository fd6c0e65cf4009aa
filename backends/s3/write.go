package s3

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"hash"
	"io"
	"maps"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/smithy-go"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/internal/objectstore"
)

// upload writes one object.
type upload struct {
	b        *bucket
	key      string
	ifAbsent bool
	replaces backends.Version // CreateOptions.IfVersion
	claim    *backends.Claim
	mark     string // identifies the object in its metadata

	id     string               // of the multipart upload; "" for a small object
	summed atomic.Bool          // its parts carry checksums
	there  map[int32]types.Part // parts sent by an earlier writer
	small  hash.Hash            // CRC-64/NVME of a small object

	mu    sync.Mutex // guards the fields below
	parts map[int32]part
	sums  map[int32][]byte // CRC-64/NVME of parts that were tried and not yet accepted
}

var _ objectstore.Uploader = (*upload)(nil)

type part struct {
	etag *string
	size int64
	sum  []byte // CRC-64/NVME; nil if not computed
}

func (b *bucket) newUpload(key string, opts backends.CreateOptions) *upload {
	return &upload{b: b, key: key, ifAbsent: opts.IfAbsent, replaces: opts.IfVersion, mark: rand.Text()}
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
	e := &u.b.extras
	in := &s3.CreateMultipartUploadInput{
		Bucket: &u.b.name, Key: &u.key, RequestPayer: u.b.payer, Metadata: u.metadata(),
		ServerSideEncryption: types.ServerSideEncryption(e.sse), SSEKMSKeyId: of(e.kmsKey), Tagging: of(e.tags),
		SSECustomerAlgorithm: of(e.customer.algorithm), SSECustomerKey: of(e.customer.key), SSECustomerKeyMD5: of(e.customer.sum),
	}
	err := u.b.withSum(createOperation, u.b.sums.Load(), func(sum bool) error {
		in.ChecksumAlgorithm, in.ChecksumType = "", ""
		if u.summed.Store(sum); sum {
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

// Send reads the part twice if it carries a checksum, because the checksum precedes the bytes. That
// is cheaper than buffering all parts in flight. A retry reuses the checksum. Otherwise all parts
// would be read from disk again and again while a store is away for minutes.
func (u *upload) Send(ctx context.Context, n int, src *backends.Part) error {
	number, p := int32(n), part{size: src.Size()} // at most 10,000
	if u.summed.Load() {
		var err error
		if p.sum, err = u.sumOf(number, src); err != nil {
			return err
		}
	}
	there, err := u.has(number, p, src)
	if err != nil {
		return err
	}
	if there {
		p.etag = u.there[number].ETag
		backends.Moved(ctx)
	} else {
		if err := u.sendPart(ctx, number, &p, src); err != nil {
			if serverErrorOf(err).brokenBytes() {
				u.forgetSum(number)
			}
			return u.b.explain("write", u.key, err)
		}
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.parts == nil {
		u.parts = make(map[int32]part)
	}
	u.parts[number] = p
	delete(u.sums, number)
	return nil
}

// sendPart sends the bytes of a part and sets its ETag. If the store accepts the part only without
// a checksum, the upload is also completed without checksums.
func (u *upload) sendPart(ctx context.Context, number int32, p *part, src *backends.Part) error {
	return u.b.withSum(partOperation, p.sum != nil, func(sum bool) error {
		q := u.b.reader.part(u.key, u.id, int(number))
		q.body = src
		if sum {
			q.values[crcField] = base64.StdEncoding.EncodeToString(p.sum)
		}
		h, err := u.b.requests.put(ctx, q)
		if err != nil {
			return err
		}
		if !sum && p.sum != nil {
			p.sum = nil
			u.summed.Store(false)
		}
		p.etag = new(h.Get("Etag"))
		return nil
	})
}

// sumOf computes the checksum of a part, once for all attempts.
func (u *upload) sumOf(number int32, src *backends.Part) ([]byte, error) {
	u.mu.Lock()
	sum := u.sums[number]
	u.mu.Unlock()
	if sum != nil {
		return sum, nil
	}
	h := backends.CRC64NVME.New()
	if err := objectstore.Digest(h, src.Unpaced()); err != nil {
		return nil, err
	}
	sum = h.Sum(nil)
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.sums == nil {
		u.sums = make(map[int32][]byte)
	}
	u.sums[number] = sum
	return sum, nil
}

// forgetSum discards the checksum of a part whose bytes changed or were corrupted in transit.
func (u *upload) forgetSum(number int32) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.sums, number)
}

// Sum starts the checksum of a small object, which precedes its bytes.
func (u *upload) Sum() io.Writer {
	u.small = backends.CRC64NVME.New()
	return u.small
}

// Publish creates the object. After a failure it finds out the outcome.
func (u *upload) Publish(ctx context.Context, small *backends.Part, size int64) (obj backends.Object, err error) {
	if u.replaces != "" {
		return u.swap(ctx, small, size)
	}
	return u.make(ctx, small, size)
}

// make creates the object. After a failure it finds out the outcome.
func (u *upload) make(ctx context.Context, small *backends.Part, size int64) (obj backends.Object, err error) {
	if decides := u.id == "" && u.b.decidesOne || u.b.decidesParts; u.ifAbsent && !decides {
		err = u.checkFirst(ctx)
	}
	switch {
	case err != nil:
	case u.id == "":
		obj, err = u.put(ctx, small, size)
	default:
		obj, err = u.complete(ctx, size)
	}
	if err != nil {
		return u.resolveCommit(ctx, err)
	}
	return obj, nil
}

const preconditionFailed = "PreconditionFailed"

// checkFirst checks for an existing key where If-None-Match may be ignored. It returns the error
// that the header would cause.
func (u *upload) checkFirst(ctx context.Context) error {
	_, err := u.b.head(ctx, u.key)
	switch {
	case err == nil:
		return &smithy.GenericAPIError{Code: preconditionFailed, Message: "the key already exists"}
	case serverErrorOf(err).status == http.StatusNotFound:
		return nil
	}
	return err
}

// put uploads an object with one request.
func (u *upload) put(ctx context.Context, small *backends.Part, size int64) (backends.Object, error) {
	q := u.b.reader.object(u.key)
	q.body = small
	u.b.extras.create(q)
	q.values[typeField], q.values[markField], q.values[noneMatchField] = "application/octet-stream", u.mark, value(u.ifNoneMatch())
	q.values[matchField] = value(u.ifMatch())
	var h http.Header
	err := u.b.withSum(putOperation, u.b.sums.Load(), func(sum bool) (err error) {
		q = new(*q) // an earlier attempt may still read its own
		if q.values[crcField] = ""; sum {
			q.values[crcField] = base64.StdEncoding.EncodeToString(u.small.Sum(nil))
		}
		h, err = u.b.requests.put(ctx, q)
		return err
	})
	if err != nil {
		return backends.Object{}, err
	}
	return backends.Object{Key: u.key, Size: size, Version: version(new(h.Get("Etag"))), Sum: sumIn(h)}, nil
}

func (u *upload) complete(ctx context.Context, size int64) (backends.Object, error) {
	var (
		out *s3.CompleteMultipartUploadOutput
		sum []byte
	)
	summed := u.summed.Load() // no part is in flight any more
	err := u.completeWithSum(ctx, summed, func(ctx context.Context, with bool) (err error) {
		var in *s3.CompleteMultipartUploadInput
		in, sum = u.completion(size, with)
		out, err = u.b.client.CompleteMultipartUpload(ctx, in)
		return err
	})
	if err != nil {
		return backends.Object{}, err
	}
	if version(out.ETag) == "" { // Ceph 16 leaves it empty
		if there, err := u.b.head(ctx, u.key); err == nil && there.Metadata[markName] == u.mark {
			out.ETag = there.ETag
		}
	}
	obj := backends.Object{
		Key: u.key, Size: size, Version: version(out.ETag),
		Sum: wholeSum(types.Checksum{
			ChecksumType: out.ChecksumType, ChecksumCRC64NVME: out.ChecksumCRC64NVME, ChecksumCRC32C: out.ChecksumCRC32C,
			ChecksumCRC32: out.ChecksumCRC32, ChecksumSHA256: out.ChecksumSHA256, ChecksumSHA1: out.ChecksumSHA1,
		}),
	}
	if reported := obj.Sum; summed && reported.Algorithm == backends.CRC64NVME && reported.Value != hex.EncodeToString(sum) {
		return obj, backends.Errorf(backends.Corrupt, "commit", u.key, "the store assembled the parts incorrectly: the checksum is %s, not crc64nvme:%x", reported, sum)
	}
	return obj, nil
}

// completion returns the request that completes the upload, and the checksum of the whole object.
func (u *upload) completion(size int64, summed bool) (in *s3.CompleteMultipartUploadInput, sum []byte) {
	in = &s3.CompleteMultipartUploadInput{
		Bucket: &u.b.name, Key: &u.key, UploadId: &u.id, RequestPayer: u.b.payer, IfNoneMatch: u.ifNoneMatch(), IfMatch: u.ifMatch(),
		MultipartUpload: &types.CompletedMultipartUpload{},
	}
	c := &u.b.extras.customer
	in.SSECustomerAlgorithm, in.SSECustomerKey, in.SSECustomerKeyMD5 = of(c.algorithm), of(c.key), of(c.sum)
	sum = backends.CRC64NVME.New().Sum(nil) // of no bytes
	for _, number := range slices.Sorted(maps.Keys(u.parts)) {
		p := u.parts[number]
		done := types.CompletedPart{PartNumber: new(number), ETag: p.etag}
		if u.summed.Load() {
			sum = backends.CRC64NVME.Combine(sum, p.sum, p.size)
		}
		if summed {
			done.ChecksumCRC64NVME = new(base64.StdEncoding.EncodeToString(p.sum))
		}
		in.MultipartUpload.Parts = append(in.MultipartUpload.Parts, done)
	}
	if summed {
		in.ChecksumType, in.ChecksumCRC64NVME, in.MpuObjectSize = types.ChecksumTypeFullObject, new(base64.StdEncoding.EncodeToString(sum)), &size
	}
	return in, sum
}

func (u *upload) ifNoneMatch() *string {
	if u.ifAbsent {
		return new("*")
	}
	return nil
}

// resolveCommit finds out the outcome of a failed commit. If a response was lost, the store reports
// on the next attempt that the key exists or the upload is gone: our own success.
func (u *upload) resolveCommit(ctx context.Context, failure error) (backends.Object, error) {
	refused := u.b.explain("commit", u.key, failure)
	if kind := backends.KindOf(refused); kind == backends.Unavailable || kind == backends.Unknown {
		if whole, ok := u.whole(ctx); ok {
			return whole, nil
		}
		return backends.Object{}, refused
	}
	a := serverErrorOf(failure)
	failed := a.status == http.StatusPreconditionFailed || a.code == preconditionFailed
	if u.replaces != "" && a.code == "NoSuchKey" { // the AWS response to If-Match on a missing key
		failed = true
	}
	taken := failed || a.status == http.StatusConflict || a.code == "ConditionalRequestConflict"
	if !taken && a.code != "NoSuchUpload" {
		return backends.Object{}, refused
	}
	there, err := u.b.head(ctx, u.key)
	switch {
	case err != nil && serverErrorOf(err).status == http.StatusNotFound:
		if u.replaces != "" {
			return backends.Object{}, backends.CompareVersion(u.key, u.replaces, "")
		}
		if failed { // it existed a moment ago
			return backends.Object{}, backends.Errorf(backends.Unavailable, "commit", u.key, "the key existed and was removed again")
		}
		return backends.Object{}, refused
	case err != nil:
		return backends.Object{}, u.b.explain("commit", u.key, u.b.reason(ctx, err))
	case there.Metadata[markName] == u.mark:
		return u.b.described(u.key, there), nil
	case u.replaces != "" && version(there.ETag) != u.replaces:
		return backends.Object{}, backends.CompareVersion(u.key, u.replaces, version(there.ETag))
	case taken && u.ifAbsent:
		return backends.Object{}, backends.Errorf(backends.Exist, "commit", u.key, "the key already exists")
	}
	return backends.Object{}, refused
}

// whole looks for the object of a commit whose response was lost or truncated, or was an error
// after the server had done its work.
func (u *upload) whole(ctx context.Context) (backends.Object, bool) {
	ctx, cancel := backends.AfterStall(ctx, statTimeout)
	defer cancel()
	there, err := u.b.head(ctx, u.key)
	if err != nil || there.Metadata[markName] != u.mark {
		return backends.Object{}, false
	}
	return u.b.described(u.key, there), true
}

// statTimeout limits that lookup after the stall detector cancelled the commit.
const statTimeout = 10 * time.Second

// Drop discards the parts in the store.
func (u *upload) Drop(ctx context.Context) error {
	_, err := u.b.client.AbortMultipartUpload(ctx, &s3.AbortMultipartUploadInput{Bucket: &u.b.name, Key: &u.key, UploadId: &u.id, RequestPayer: u.b.payer})
	if err == nil || serverErrorOf(err).status == http.StatusNotFound {
		return nil
	}
	return u.b.explain("abort", u.key, err)
}
