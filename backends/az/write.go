package az

import (
	"context"
	"crypto/md5" // emulators verify requests with it
	"crypto/rand"
	"encoding/binary"
	"hash"
	"io"
	"maps"
	"net/http"
	"slices"
	"sync"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/internal/objectstore"
)

// upload writes one object.
type upload struct {
	s        *store
	key      string
	ifAbsent bool
	replaces backends.Version // CreateOptions.IfVersion
	id       string           // identifies the upload in its block IDs and the blob in its metadata
	begun    bool             // it is in blocks

	there map[int]block // blocks sent by an earlier writer

	small sums // of a small object

	mu     sync.Mutex // guards the fields below
	blocks map[int]block
}

var _ objectstore.Uploader = (*upload)(nil)

func (s *store) newUpload(key string, opts backends.CreateOptions) *upload {
	return &upload{s: s, key: key, ifAbsent: opts.IfAbsent, replaces: opts.IfVersion, id: rand.Text()[:uploadLength], blocks: make(map[int]block)}
}

// Create implements backends.Sink.
func (s *store) Create(ctx context.Context, key string, opts backends.CreateOptions) (backends.Writer, error) {
	if err := s.CheckKey(key); err != nil {
		return nil, err
	}
	return objectstore.Create(ctx, s.newUpload(key, opts), key, opts, s.Capabilities()), nil
}

// CreateParts implements backends.PartCreator.
func (s *store) CreateParts(ctx context.Context, key string, opts backends.CreateOptions) (backends.PartWriter, error) {
	if err := s.CheckKey(key); err != nil {
		return nil, err
	}
	return objectstore.CreateParts(ctx, s.newUpload(key, opts), key, opts, s.Capabilities())
}

// Begin needs no request: an upload exists as soon as it has a block.
func (u *upload) Begin(context.Context) error {
	u.begun = true
	return nil
}

// Send sends a block. Its ID contains its checksum, so the block is read twice.
func (u *upload) Send(ctx context.Context, number int, src *backends.Part) error {
	h := u.s.newSums()
	if err := objectstore.Digest(h, src.Unpaced()); err != nil {
		return err
	}
	sum := h.crc.Sum(nil)
	if b, ok := u.there[number]; ok && b.size == src.Size() && b.hasSum(sum) {
		backends.Moved(ctx)
		u.keep(number, b)
		return nil
	}
	to := newBlock(u.id, number, src.Size(), sum)
	client, err := u.s.blob(ctx, u.key)
	if err == nil {
		_, err = client.StageBlock(ctx, to.id, body(src), &blockblob.StageBlockOptions{TransactionalValidation: h.validation()})
	}
	if err != nil {
		return u.s.explain("write", u.key, err)
	}
	u.keep(number, to)
	return nil
}

func (u *upload) keep(number int, b block) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.blocks[number] = b
}

// sums are the checksums of the bytes of one request.
type sums struct {
	crc hash.Hash // Azure's CRC-64 is that of NVMe
	md5 hash.Hash // nil where the server knows CRC-64, which takes a tenth of the time
}

func (s *store) newSums() sums {
	all := sums{crc: backends.CRC64NVME.New()}
	if !s.access.place.azure {
		all.md5 = md5.New()
	}
	return all
}

func (s sums) Write(p []byte) (int, error) {
	s.crc.Write(p)
	if s.md5 != nil {
		s.md5.Write(p)
	}
	return len(p), nil
}

// validation makes the server compare a checksum of the received bytes.
func (s sums) validation() blob.TransferValidationType {
	if s.md5 != nil {
		return blob.TransferValidationTypeMD5(s.md5.Sum(nil))
	}
	return blob.TransferValidationTypeCRC64(binary.BigEndian.Uint64(s.crc.Sum(nil)))
}

// body returns a request body that begins at the first byte of src.
func body(src *backends.Part) io.ReadSeekCloser {
	return unclosed{src.Reader()}
}

type unclosed struct{ *io.SectionReader }

func (unclosed) Close() error { return nil }

// Sum starts the checksum of a small object.
func (u *upload) Sum() io.Writer {
	u.small = u.s.newSums()
	return u.small
}

// Publish creates the object. After a failure it finds out the outcome.
func (u *upload) Publish(ctx context.Context, small *backends.Part, size int64) (obj backends.Object, err error) {
	if u.begun {
		obj, err = u.complete(ctx)
	} else {
		obj, err = u.put(ctx, small)
	}
	if err != nil {
		obj, err = u.resolveCommit(ctx, err)
	}
	obj.Size = size
	return obj, err
}

func (u *upload) metadata() map[string]*string { return map[string]*string{metaWrite: &u.id} }

// conditions of the commit; nil if there are none.
func (u *upload) conditions() *blob.AccessConditions {
	switch {
	case u.replaces != "":
		return inVersion(u.replaces)
	case u.ifAbsent:
		return ifNothing()
	}
	return nil
}

func (u *upload) put(ctx context.Context, small *backends.Part) (backends.Object, error) {
	client, err := u.s.blob(ctx, u.key)
	if err != nil {
		return backends.Object{}, err
	}
	res, err := client.Upload(ctx, body(small), &blockblob.UploadOptions{
		Metadata: u.metadata(), AccessConditions: u.conditions(), TransactionalValidation: u.small.validation(),
	})
	if err != nil {
		return backends.Object{}, err
	}
	return backends.Object{Key: u.key, Version: version(res.ETag)}, nil
}

func (u *upload) complete(ctx context.Context) (backends.Object, error) {
	var ids []string
	for _, number := range slices.Sorted(maps.Keys(u.blocks)) {
		ids = append(ids, u.blocks[number].id)
	}
	client, err := u.s.blob(ctx, u.key)
	if err != nil {
		return backends.Object{}, err
	}
	res, err := client.CommitBlockList(ctx, ids, &blockblob.CommitBlockListOptions{Metadata: u.metadata(), AccessConditions: u.conditions()})
	if err != nil {
		return backends.Object{}, err
	}
	return backends.Object{Key: u.key, Version: version(res.ETag)}, nil
}

// resolveCommit finds out the outcome of a failed commit. If a response was lost, the store reports
// on the next attempt that the key exists, has changed or has other blocks: our own success.
func (u *upload) resolveCommit(ctx context.Context, failure error) (backends.Object, error) {
	refused := u.s.explain("commit", u.key, failure)
	status := statusOf(failure)
	lost := codeOf(failure) == "InvalidBlockList"
	if !lost && status != http.StatusConflict && status != http.StatusPreconditionFailed && (status != http.StatusNotFound || codeOf(failure) == noContainer) {
		return backends.Object{}, refused
	}
	obj, all, err := u.s.head(ctx, u.key)
	missing := classify(err) == backends.NotExist
	switch {
	case err != nil && !missing:
		return backends.Object{}, u.s.explain("commit", u.key, err)
	case err == nil && meta(all, metaWrite) == u.id:
		return obj, nil
	case u.replaces != "" && (missing || obj.Version != u.replaces):
		return backends.Object{}, backends.CompareVersion(u.key, u.replaces, obj.Version)
	case u.ifAbsent && err == nil && hidden(all, obj.Size):
		return backends.Object{}, u.clear(ctx, obj)
	case u.ifAbsent && err == nil:
		return backends.Object{}, backends.Errorf(backends.Exist, "commit", u.key, "the key already exists")
	case lost:
		return backends.Object{}, backends.Errorf(backends.Invalid, "commit", u.key, "another writer of this key has removed the blocks: %w", backends.ErrStartOver)
	case u.ifAbsent: // it existed a moment ago
		return backends.Object{}, backends.Errorf(backends.Unavailable, "commit", u.key, "the key existed and was removed again")
	}
	return backends.Object{}, refused
}

// clear removes the empty blob that another's Abort left. The result is always an error, after which
// Commit is repeated.
func (u *upload) clear(ctx context.Context, obj backends.Object) error {
	if err := u.s.remove(ctx, u.key, obj.Version); err != nil && statusOf(err) != http.StatusNotFound && statusOf(err) != http.StatusPreconditionFailed {
		return u.s.explain("commit", u.key, err)
	}
	return backends.Errorf(backends.Unavailable, "commit", u.key, "an aborted write of this key was being removed")
}
