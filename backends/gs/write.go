package gs

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/xml"
	"hash"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/internal/objectstore"
)

// markName is the metadata key of an upload's mark.
const markName = "stager-write"

const contentType = "application/octet-stream"

// upload writes one object.
type upload struct {
	b        *bucket
	key      string
	at       string // the key of the multipart upload: key, or a temporary name
	ifAbsent bool
	replaces backends.Version // CreateOptions.IfVersion
	mark     string           // identifies the object in its metadata
	id       string           // of the multipart upload; "" for a small object
	whole    bool             // the store has no multipart uploads: Publish sends all parts by one request
	copies   bool             // the source of a part is valid only as long as Send runs
	there    map[int]listed   // parts sent by an earlier writer
	small    hash.Hash        // CRC-32C of a small object
	parted   resource         // the object under the temporary name, once it is complete

	mu    sync.Mutex // guards the fields below
	parts map[int]part
	held  map[int]*backends.Part // parts that Publish sends
	sums  map[int][]byte         // CRC-32C of parts that were tried and not yet accepted
}

var _ objectstore.Uploader = (*upload)(nil)

type part struct {
	etag string
	size int64
	sum  []byte // CRC-32C
}

func (b *bucket) newUpload(key string, opts backends.CreateOptions) *upload {
	u := &upload{
		b: b, key: key, at: key, ifAbsent: opts.IfAbsent, replaces: opts.IfVersion, mark: rand.Text(),
		parts: make(map[int]part), held: make(map[int]*backends.Part), sums: make(map[int][]byte),
	}
	if u.conditional() {
		u.at = temporaryName(key, rand.Text())
	}
	return u
}

// conditional reports whether the object is published only in place of a certain state.
func (u *upload) conditional() bool { return u.ifAbsent || u.replaces != "" }

// generation returns the generation that must be current; 0: the key must be absent.
func (u *upload) generation() string {
	if u.ifAbsent {
		return "0"
	}
	return string(u.replaces)
}

// Create implements backends.Sink.
func (b *bucket) Create(ctx context.Context, key string, opts backends.CreateOptions) (backends.Writer, error) {
	if err := b.CheckKey(key); err != nil {
		return nil, err
	}
	u := b.newUpload(key, opts)
	u.copies = true
	return objectstore.Create(ctx, u, key, opts, b.Capabilities()), nil
}

// CreateParts implements backends.PartCreator.
func (b *bucket) CreateParts(ctx context.Context, key string, opts backends.CreateOptions) (backends.PartWriter, error) {
	if err := b.CheckKey(key); err != nil {
		return nil, err
	}
	return objectstore.CreateParts(ctx, b.newUpload(key, opts), key, opts, b.Capabilities())
}

// Begin starts the multipart upload, if the store has those.
func (u *upload) Begin(ctx context.Context) error {
	if u.whole = u.b.withoutXML.Load(); u.whole {
		return nil
	}
	q := u.b.inXML(http.MethodPost, u.at)
	q.query.Set("uploads", "")
	q.header.Set("Content-Type", contentType)
	q.header.Set("X-Goog-Meta-"+markName, u.mark)
	var out struct {
		XMLName  xml.Name `xml:"InitiateMultipartUploadResult"`
		UploadID string   `xml:"UploadId"`
	}
	_, err := u.b.client.xml(ctx, q, &out)
	if err == nil && out.UploadID == "" {
		err = strange()
	}
	if err != nil {
		if u.whole = lacksXML(err); u.whole {
			return nil
		}
		return u.b.explain("create", u.key, err)
	}
	u.id = out.UploadID
	return nil
}

// Send reads the part twice, because its checksum precedes the bytes. That is cheaper than buffering
// all parts in flight. A retry reuses the checksum.
func (u *upload) Send(ctx context.Context, number int, src *backends.Part) error {
	if u.whole {
		return u.hold(number, src)
	}
	sum, err := u.sumOf(number, src)
	if err != nil {
		return err
	}
	p, there, err := u.has(number, sum, src)
	switch {
	case err != nil:
		return err
	case there:
		backends.Moved(ctx)
	default:
		if p, err = u.sendPart(ctx, number, sum, src); err != nil {
			if classify(err) == backends.Unknown {
				u.forgetSum(number) // the bytes may have changed
			}
			return u.b.explain("write", u.key, err)
		}
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.parts[number] = p
	delete(u.sums, number)
	return nil
}

func (u *upload) sendPart(ctx context.Context, number int, sum []byte, src *backends.Part) (part, error) {
	q := u.ofUpload(http.MethodPut)
	q.query.Set("partNumber", strconv.Itoa(number))
	q.header.Set("X-Goog-Hash", hashField(sum))
	q.body = src
	_, header, err := u.b.client.document(ctx, q)
	if err != nil {
		return part{}, err
	}
	return part{header.Get("ETag"), src.Size(), sum}, compareSums(sumIn(header), sum)
}

// ofUpload returns a call for the multipart upload.
func (u *upload) ofUpload(method string) *call {
	q := u.b.inXML(method, u.at)
	q.query.Set("uploadId", u.id)
	return q
}

func hashField(sum []byte) string { return "crc32c=" + base64.StdEncoding.EncodeToString(sum) }

// compareSums compares what the store reports as received with what was sent. Corruption in transit
// is of kind Unknown: worth a few retries, but not endless ones.
func compareSums(reported backends.Checksum, sent []byte) error {
	if reported.IsZero() || reported.Value == hex.EncodeToString(sent) {
		return nil
	}
	return backends.Errorf(backends.Unknown, "write", "", "the received bytes differ from the sent bytes: their checksum is %s, not crc32c:%x", reported, sent)
}

// sumOf computes the checksum of a part, once for all attempts.
func (u *upload) sumOf(number int, src *backends.Part) ([]byte, error) {
	u.mu.Lock()
	sum := u.sums[number]
	u.mu.Unlock()
	if sum != nil {
		return sum, nil
	}
	h := backends.CRC32C.New()
	if err := objectstore.Digest(h, src.Unpaced()); err != nil {
		return nil, err
	}
	sum = h.Sum(nil)
	u.mu.Lock()
	defer u.mu.Unlock()
	u.sums[number] = sum
	return sum, nil
}

// forgetSum discards the checksum of a part.
func (u *upload) forgetSum(number int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.sums, number)
}

// Sum starts the checksum of a small object, which precedes its bytes.
func (u *upload) Sum() io.Writer {
	u.small = backends.CRC32C.New()
	return u.small
}

// sum returns the checksum of all bytes sent.
func (u *upload) sum() []byte {
	if u.small != nil {
		return u.small.Sum(nil)
	}
	all := backends.CRC32C.New().Sum(nil) // of no bytes
	for _, number := range slices.Sorted(maps.Keys(u.parts)) {
		all = backends.CRC32C.Combine(all, u.parts[number].sum, u.parts[number].size)
	}
	return all
}

// Publish creates the object. After a failure it finds out the outcome.
func (u *upload) Publish(ctx context.Context, small *backends.Part, size int64) (obj backends.Object, err error) {
	switch {
	case u.whole || u.b.withoutXML.Load() && u.id == "":
		obj, err = u.insert(ctx, small)
	case u.id == "":
		if obj, err = u.put(ctx, small); lacksXML(err) {
			obj, err = u.insert(ctx, small)
		}
	case u.conditional():
		obj, err = u.compose(ctx)
	default:
		obj, err = u.complete(ctx)
	}
	if err != nil {
		if obj, err = u.resolve(ctx, err); err != nil {
			return backends.Object{}, err
		}
	}
	if sent := hex.EncodeToString(u.sum()); !obj.Sum.IsZero() && obj.Sum.Value != sent {
		return obj, backends.Errorf(backends.Corrupt, "commit", u.key, "the stored object differs from the sent bytes: its checksum is %s, not crc32c:%s", obj.Sum, sent)
	}
	obj.Key, obj.Size = u.key, size
	return obj, nil
}

// put creates a small object.
func (u *upload) put(ctx context.Context, small *backends.Part) (backends.Object, error) {
	q := u.b.inXML(http.MethodPut, u.key)
	q.header.Set("Content-Type", contentType)
	q.header.Set("X-Goog-Hash", hashField(u.small.Sum(nil)))
	q.header.Set("X-Goog-Meta-"+markName, u.mark)
	if u.conditional() {
		q.header.Set("X-Goog-If-Generation-Match", u.generation())
	}
	q.body = small
	_, header, err := u.b.client.document(ctx, q)
	if err != nil {
		return backends.Object{}, err
	}
	return u.created(ctx, u.key, header)
}

// created returns the object that a response of the XML API describes.
func (u *upload) created(ctx context.Context, key string, header http.Header) (backends.Object, error) {
	obj := backends.Object{Key: key, Version: backends.Version(header.Get("X-Goog-Generation")), Sum: sumIn(header)}
	if obj.Version != "" {
		return obj, nil
	}
	is, err := u.b.stat(ctx, key)
	if err == nil && is.Metadata[markName] == u.mark {
		return is.object(), nil
	}
	return obj, err
}

// complete assembles the parts.
func (u *upload) complete(ctx context.Context) (backends.Object, error) {
	type listed struct {
		PartNumber int
		ETag       string
	}
	var in struct {
		XMLName xml.Name `xml:"CompleteMultipartUpload"`
		Part    []listed
	}
	for _, number := range slices.Sorted(maps.Keys(u.parts)) {
		in.Part = append(in.Part, listed{number, u.parts[number].etag})
	}
	text, err := xml.Marshal(in)
	if err != nil {
		return backends.Object{}, err
	}
	var out struct {
		XMLName xml.Name `xml:"CompleteMultipartUploadResult"`
	}
	header, err := u.b.client.xml(ctx, u.ofUpload(http.MethodPost).with(text, "application/xml"), &out)
	if err != nil {
		return backends.Object{}, err
	}
	return u.created(ctx, u.at, header)
}

// compose assembles the parts under the temporary name and publishes the result, by one conditional
// request.
func (u *upload) compose(ctx context.Context) (backends.Object, error) {
	if u.parted.Generation == "" {
		if err := u.completeAside(ctx); err != nil {
			return backends.Object{}, err
		}
	}
	type source struct {
		Name       string           `json:"name"`
		Generation backends.Version `json:"generation"`
	}
	text, err := json.Marshal(map[string]any{
		"sourceObjects": []source{{u.at, u.parted.Generation}},
		"destination":   map[string]any{"contentType": contentType, "metadata": map[string]string{markName: u.mark}},
	})
	if err != nil {
		return backends.Object{}, err
	}
	q := u.b.inJSON(http.MethodPost, "o", u.key, "compose").with(text, "application/json")
	q.query.Set("ifGenerationMatch", u.generation())
	q.query.Set("fields", fields)
	var out resource
	if err := u.b.client.json(ctx, q, &out); err != nil {
		return backends.Object{}, err
	}
	u.dropAside(ctx)
	return out.object(), nil
}

// completeAside assembles the parts under the temporary name. If an earlier response was lost, the
// object is there.
func (u *upload) completeAside(ctx context.Context) error {
	obj, err := u.complete(ctx)
	if err == nil {
		u.parted = resource{Name: u.at, Generation: obj.Version}
		return nil
	}
	if is, there := u.own(ctx, u.at); there {
		u.parted = is
		return nil
	}
	return err
}

// dropAside removes the object under the temporary name. If that fails, Sweep finds it.
func (u *upload) dropAside(ctx context.Context) {
	if u.parted.Generation == "" {
		return
	}
	if err := u.b.Delete(ctx, u.at); err != nil {
		u.b.log.Debug("cannot remove the temporary object of an upload", "key", u.at, "error", err)
	}
}

// resolve finds out the outcome of a failed commit. If a response was lost, the store reports on the
// next attempt that the precondition fails or the upload is gone: our own success.
func (u *upload) resolve(ctx context.Context, failure error) (backends.Object, error) {
	refused := u.b.explain("commit", u.key, failure)
	a := refusal(failure)
	taken := a.status == http.StatusPreconditionFailed
	kind := backends.KindOf(refused)
	if !taken && !a.noUpload() && kind != backends.Unavailable && kind != backends.Unknown && kind != backends.NotExist {
		return backends.Object{}, refused
	}
	if is, there := u.own(ctx, u.key); there {
		u.dropAside(ctx)
		return is.object(), nil
	}
	if !taken {
		return backends.Object{}, refused
	}
	is, err := u.b.stat(ctx, u.key)
	switch missing := err != nil && classify(err) == backends.NotExist; {
	case err != nil && !missing:
		return backends.Object{}, u.b.explain("commit", u.key, err)
	case u.ifAbsent && missing: // it existed a moment ago
		return backends.Object{}, backends.Errorf(backends.Unavailable, "commit", u.key, "the key existed and was removed again")
	case u.ifAbsent:
		u.dropAside(ctx)
		return backends.Object{}, backends.Errorf(backends.Exist, "commit", u.key, "the key already exists")
	case is.Generation == u.replaces:
		return backends.Object{}, backends.Errorf(backends.Unavailable, "commit", u.key, "the store reports another generation and then the expected one")
	}
	u.dropAside(ctx)
	return backends.Object{}, backends.CompareVersion(u.key, u.replaces, is.Generation)
}

// statTimeout limits the lookup of an object after the stall detector cancelled the commit.
const statTimeout = 10 * time.Second

// own looks for the object of this write.
func (u *upload) own(ctx context.Context, key string) (resource, bool) {
	ctx, cancel := backends.AfterStall(ctx, statTimeout)
	defer cancel()
	is, err := u.b.stat(ctx, key)
	return is, err == nil && is.Metadata[markName] == u.mark
}

// Drop discards the parts in the store, or the object that they became.
func (u *upload) Drop(ctx context.Context) error {
	if u.whole {
		return nil
	}
	if u.parted.Generation != "" {
		return u.b.Delete(ctx, u.at)
	}
	_, _, err := u.b.client.document(ctx, u.ofUpload(http.MethodDelete))
	if err == nil || refusal(err).status == http.StatusNotFound {
		return nil
	}
	return u.b.explain("abort", u.key, err)
}
