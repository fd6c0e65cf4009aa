package s3

import (
	"context"
	"crypto/md5" // ETags of parts use it
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"net/url"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/internal/objectstore"
)

var _ backends.Sweeper = (*bucket)(nil)

// resumeToken is what another process needs to continue an upload.
type resumeToken struct {
	ID     string `json:"id"`
	Mark   string `json:"mark"`
	Summed bool   `json:"summed,omitempty"`
}

// Token implements objectstore.Uploader.
func (u *upload) Token() (id, token string, err error) {
	text, err := json.Marshal(resumeToken{u.id, u.mark, u.summed.Load()})
	return u.id, string(text), err
}

// Resume lists the parts in the store.
func (u *upload) Resume(ctx context.Context, text string) (bool, error) {
	var t resumeToken
	if json.Unmarshal([]byte(text), &t) != nil || t.ID == "" {
		return false, nil
	}
	there, err := u.b.parts(ctx, u.key, t.ID)
	if err != nil {
		if serverErrorOf(err).status == http.StatusNotFound {
			return false, nil
		}
		return false, u.b.explain("create", u.key, err)
	}
	u.id, u.mark, u.there = t.ID, t.Mark, there
	u.summed.Store(t.Summed)
	return true, nil
}

// has reports whether the store already has the part with the bytes of src. It compares the
// checksum, or else an ETag that is an MD5. The ETag is not an MD5 if the store encrypts the parts
// with its own key.
func (u *upload) has(number int32, p part, src *backends.Part) (bool, error) {
	there, ok := u.there[number]
	if !ok || value(there.Size) != p.size {
		return false, nil
	}
	if reported, err := base64.StdEncoding.DecodeString(value(there.ChecksumCRC64NVME)); err == nil && len(reported) > 0 && p.sum != nil {
		return string(reported) == string(p.sum), nil
	}
	h := md5.New()
	if err := objectstore.Digest(h, src.Unpaced()); err != nil {
		return false, err
	}
	return string(version(there.ETag)) == hex.EncodeToString(h.Sum(nil)), nil
}

// parts returns the parts of an upload in the store.
func (b *bucket) parts(ctx context.Context, key, id string) (map[int32]types.Part, error) {
	parts := make(map[int32]types.Part)
	c := &b.extras.customer
	pages := s3.NewListPartsPaginator(b.client, &s3.ListPartsInput{
		Bucket: &b.name, Key: &key, UploadId: &id, RequestPayer: b.payer,
		SSECustomerAlgorithm: of(c.algorithm), SSECustomerKey: of(c.key), SSECustomerKeyMD5: of(c.sum),
	})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, err
		}
		for _, p := range page.Parts {
			parts[value(p.PartNumber)] = p
		}
	}
	return parts, nil
}

// Sweep implements backends.Sweeper. It aborts abandoned multipart uploads and deletes stale claims
// in the directory of prefix.
func (b *bucket) Sweep(ctx context.Context, prefix string, over func(backends.Orphan) bool) error {
	if err := b.sweepClaims(ctx, prefix, over); err != nil {
		return err
	}
	pages := s3.NewListMultipartUploadsPaginator(b.client, &s3.ListMultipartUploadsInput{
		Bucket: &b.name, Prefix: &prefix, EncodingType: types.EncodingTypeUrl, RequestPayer: b.payer,
	})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return b.explain("sweep", prefix, err)
		}
		for _, found := range page.Uploads {
			key := value(found.Key)
			if page.EncodingType == types.EncodingTypeUrl {
				if plain, err := url.QueryUnescape(key); err == nil {
					key = plain
				}
			}
			if err := b.sweepUpload(ctx, key, value(found.UploadId), value(found.Initiated), over); err != nil {
				return b.explain("sweep", key, err)
			}
		}
	}
	return nil
}

// sweepUpload aborts one upload if over returns true.
func (b *bucket) sweepUpload(ctx context.Context, key, id string, begun time.Time, over func(backends.Orphan) bool) error {
	parts, err := b.parts(ctx, key, id)
	if err != nil {
		if serverErrorOf(err).status == http.StatusNotFound {
			return nil // it has ended
		}
		return err
	}
	left := backends.Orphan{Key: key, ID: id, Touched: begun}
	for _, p := range parts {
		left.Size += value(p.Size)
		if at := value(p.LastModified); at.After(left.Touched) {
			left.Touched = at
		}
	}
	if !over(left) {
		return nil
	}
	return (&upload{b: b, key: key, id: id}).Drop(ctx)
}
