package oss

import (
	"context"
	"crypto/md5" // ETags of parts use it
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/aliyun/aliyun-oss-go-sdk/oss"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/internal/objectstore"
)

var _ backends.Sweeper = (*bucket)(nil)

// resumeToken is what another process needs to continue an upload.
type resumeToken struct {
	ID   string `json:"id"`
	Mark string `json:"mark"`
}

// Token implements objectstore.Uploader.
func (u *upload) Token() (id, token string, err error) {
	text, err := json.Marshal(resumeToken{u.id, u.mark})
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
		if statusOf(err) == http.StatusNotFound {
			return false, nil
		}
		return false, u.b.explain("create", u.key, err)
	}
	u.id, u.mark, u.there = t.ID, t.Mark, there
	return true, nil
}

// has reports whether the store already has the part with the bytes of src: its ETag is their MD5.
func (u *upload) has(number int, src *backends.Part) (part, bool, error) {
	there, ok := u.there[number]
	if !ok || int64(there.Size) != src.Size() {
		return part{}, false, nil
	}
	mark, sum := md5.New(), backends.CRC64ECMA.New()
	if err := objectstore.Digest(io.MultiWriter(mark, sum), src.Unpaced()); err != nil {
		return part{}, false, err
	}
	same := strings.EqualFold(string(version(there.ETag)), hex.EncodeToString(mark.Sum(nil)))
	return part{there.ETag, src.Size(), sum.Sum(nil)}, same, nil
}

// parts returns the parts of an upload in the store.
func (b *bucket) parts(ctx context.Context, key, id string) (map[int]oss.UploadedPart, error) {
	parts := make(map[int]oss.UploadedPart)
	of := oss.InitiateMultipartUploadResult{Bucket: b.name, Key: key, UploadID: id}
	for marker := 0; ; {
		opts, err := b.with(ctx, oss.MaxParts(perPage), oss.PartNumberMarker(marker))
		if err != nil {
			return nil, err
		}
		page, err := b.client.ListUploadedParts(of, opts...)
		if err != nil {
			return nil, err
		}
		for _, p := range page.UploadedParts {
			parts[p.PartNumber] = p
		}
		next, err := strconv.Atoi(page.NextPartNumberMarker)
		if !page.IsTruncated || err != nil || next <= marker {
			return parts, nil
		}
		marker = next
	}
}

// Sweep implements backends.Sweeper. It aborts abandoned multipart uploads and deletes stale claims
// in the directory of prefix.
func (b *bucket) Sweep(ctx context.Context, prefix string, over func(backends.Orphan) bool) error {
	if err := b.sweepClaims(ctx, prefix, over); err != nil {
		return err
	}
	key, id := "", ""
	for {
		opts, err := b.with(ctx, oss.Prefix(prefix), oss.MaxUploads(perPage), oss.KeyMarker(key), oss.UploadIDMarker(id))
		if err != nil {
			return b.explain("sweep", prefix, err)
		}
		page, err := b.client.ListMultipartUploads(opts...)
		if err != nil {
			return b.explain("sweep", prefix, err)
		}
		for _, found := range page.Uploads {
			if err := b.sweepUpload(ctx, found, over); err != nil {
				return b.explain("sweep", found.Key, err)
			}
		}
		if !page.IsTruncated || page.NextKeyMarker == key && page.NextUploadIDMarker == id {
			return nil
		}
		key, id = page.NextKeyMarker, page.NextUploadIDMarker
	}
}

// sweepUpload aborts one upload if over returns true.
func (b *bucket) sweepUpload(ctx context.Context, found oss.UncompletedUpload, over func(backends.Orphan) bool) error {
	parts, err := b.parts(ctx, found.Key, found.UploadID)
	if err != nil {
		if statusOf(err) == http.StatusNotFound {
			return nil // it has ended
		}
		return err
	}
	left := backends.Orphan{Key: found.Key, ID: found.UploadID, Touched: found.Initiated}
	for _, p := range parts {
		left.Size += int64(p.Size)
		if p.LastModified.After(left.Touched) {
			left.Touched = p.LastModified
		}
	}
	if !over(left) {
		return nil
	}
	return (&upload{b: b, key: found.Key, id: found.UploadID}).Drop(ctx)
}
